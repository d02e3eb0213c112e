//! A URL shortener that answers redirects at the limit of the machine.
//!
//! The tree, from the socket inwards:
//! - [`front`]: the public listener; answers `GET|HEAD /{code}` and nothing else.
//! - [`cache`]: ready-made answers by code, bounded by bytes, coherent with the store.
//! - [`clicks`]: what each worker counts, flushed to the store once a second.
//! - [`store`]: SQLite; one writer thread, one read connection per worker.
//! - [`admin`]: the admin listener; the `/api/v1` API, health and metrics.
//! - [`domains`]: which host a link is at, and the table of them.
//! - [`cli`]: the command line, on the database itself or over the API.
//! - [`transfer`]: links as CSV and JSON, for import and export.
//! - [`link`], [`code`], [`target`], [`when`], [`agent`]: the words the rest is written in.
#![forbid(unsafe_code)]

pub mod admin;
pub mod agent;
pub mod cache;
pub mod cli;
pub mod clicks;
pub mod code;
pub mod domains;
pub mod front;
pub mod invalid;
pub mod link;
mod patch;
pub mod store;
pub mod target;
pub mod transfer;
pub mod when;

/// What is fuzzed, and of no use to anybody else.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::front::password_of;
}
