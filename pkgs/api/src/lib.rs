//! A JSON REST API over users, on SQLite or PostgreSQL.
//!
//! - [`user`]: the resource: its fields, their limits, its id.
//! - [`store`]: where users, keys and answers to repeated requests are kept, behind one trait.
#![forbid(unsafe_code)]

pub mod cli;
pub mod store;
pub mod user;
