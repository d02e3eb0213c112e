//! A JSON REST API over users, on SQLite or PostgreSQL.
//!
//! - [`user`]: the resource: its fields, their limits, its id.
//! - [`json`]: texts from strangers: bounds, faults with pointers, merge patches.
//! - [`seed`]: users that nobody is.
//! - [`store`]: where users, keys and answers to repeated requests are kept, behind one trait.
//! - [`users`]: users as the service sees them: a database, and a cache of what was read of it.
#![forbid(unsafe_code)]

pub mod cli;
pub mod json;
pub mod seed;
pub mod store;
mod thread;
pub mod user;
pub mod users;
