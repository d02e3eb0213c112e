//! A JSON REST API over users, on SQLite or PostgreSQL.
//!
//! ```text
//!  listener ─▶ http: front ─┬─ cached user ─────────▶ bytes, answered there and then
//!                (router,   │                  ▲
//!                 guard)    └▶ operations ─▶ users: Users ─▶ store ─┬▶ SQLite: a writer thread, readers
//!                                │   ▲         cache                └▶ PostgreSQL: pipelines, a pool
//!                   json ◀───────┘   └ response    ▲                          │
//!                 (bounds, faults,                 └──── what was written, here and on other nodes
//!                  merge patches)
//! ```
//!
//! The modules, from the socket inwards:
//! - [`http`]: from a request to an answer.
//! - [`json`]: clients' JSON: limits, faults with pointers, merge patches.
//! - [`user`]: the resource: its fields, their limits, its id.
//! - [`users`]: users as the service sees them: a database, and a cache of reads.
//! - [`store`]: stores users, keys and answers to repeated requests, behind one trait.
//! - [`keys`]: API keys: what a client holds, and what is stored.
//! - [`seed`]: generated users.
//! - [`cli`]: the command line.
#![forbid(unsafe_code)]

pub mod cli;
#[cfg(test)]
mod faults;
pub mod http;
pub mod json;
pub mod keys;
pub mod seed;
pub mod store;
mod thread;
pub mod user;
pub mod users;
