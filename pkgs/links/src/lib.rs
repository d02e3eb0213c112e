//! A URL shortener that answers redirects at the limit of the machine.
//!
//! ```text
//!  visitors ─▶ listener ─▶ front: http_service ─▶ visit ─▶ cache: LocalCache ─▶ Cache ─▶ store: Reader ─▶ SQLite
//!                │                     │            │       (the worker's)  (shared)    (the worker's)     ▲
//!                ◀── render: templates ◀────────────┘                          ▲                           │
//!                                                   └▶ clicks: Counter ─▶ ClickBuffer ──── each second ───▶│
//!                                                      (the worker's)          │ what changed              │
//!  programs ─▶ admin: protocol ─▶ routes ─▶ api ─▶ store ──────────────────────┴────────▶ writer thread ───┘
//!  people ───▶ cli: commands ─▶ backend ─▶ store, or the API of a running server
//! ```
//!
//! - [`front`]: the public listener; answers `GET|HEAD /{code}` and nothing else.
//! - [`cache`]: ready-made answers by code, bounded by bytes, coherent with the store.
//! - [`clicks`]: what each worker counts, flushed to the store once a second.
//! - [`geoip`]: which country a visitor's address is in, where a file says so.
//! - [`store`]: SQLite, with one writer thread and one read connection per worker; or PostgreSQL, shared with other servers,
//!   where a miss is waited for.
//! - [`admin`]: the admin listener; the `/api/v1` API, health and metrics.
//! - [`domains`]: which host a link is at, and the table of them.
//! - [`cli`]: the command line, on the database itself or over the API.
//! - [`transfer`]: links as CSV and JSON, for import and export.
//! - [`link`], [`code`], [`target`], [`when`], [`agent`], [`country`]: the words the rest is written in.
#![forbid(unsafe_code)]

pub mod admin;
pub mod cache;
pub mod cli;
pub mod clicks;
pub mod front;
pub mod geoip;
pub mod model;
pub mod store;
pub mod transfer;

pub(crate) use model::patch;
pub use model::{agent, code, country, domains, invalid, link, target, when};

/// What is fuzzed, and of no use to anybody else.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::front::password_of;
}
