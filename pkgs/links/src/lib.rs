//! A URL shortener that answers redirects at the limit of the machine.
//!
//! ```text
//!  visitors ─▶ listener ─▶ front: http_service ─▶ visit ─▶ cache: LocalCache ─▶ Cache ─▶ store: Reader ─▶ SQLite
//!                │                     │            │       (the worker's)  (shared)    (the worker's)     ▲
//!                ◀── render: templates ◀────────────┘                          ▲                           │
//!                                                   └▶ clicks: Counter ─▶ ClickBuffer ─ each 1 to 3.25 s ─▶│
//!                                                      (the worker's)          │ what changed              │
//!  programs ─▶ admin: protocol ─▶ routes ─▶ api ─▶ store ──────────────────────┴────────▶ writer thread ───┘
//!  people ───▶ cli: commands ─▶ backend ─▶ store, or the API of a running server
//! ```
//!
//! - [`front`]: the public listener, which only answers `GET|HEAD /{code}`.
//! - [`cache`]: prepared answers by code, limited in bytes, coherent with the store.
//! - [`clicks`]: each worker's counts, flushed to the store once a second, or less often if they are many.
//! - [`geoip`]: the country of a visitor's address, if a file is given.
//! - [`store`]: SQLite, with one writer thread and one read connection per worker; or PostgreSQL, shared with other
//!   servers, where a miss has to wait.
//! - [`admin`]: the admin listener: the `/api/v1` API, health and metrics.
//! - [`domains`]: the domains of links, and their table.
//! - [`cli`]: the command line, which uses the database or the API.
//! - [`transfer`]: links as CSV and JSON, for import and export.
//! - [`link`], [`code`], [`target`], [`when`], [`agent`], [`country`]: basic types.
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

/// Entry points for fuzz targets, not for other use.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::front::password_of;
}
