//! A JSON REST API over users, on SQLite or PostgreSQL.
//!
//! - [`user`]: the resource: its fields, their limits, its id.
//! - [`json`]: texts from strangers: bounds, faults with pointers, merge patches.
//! - [`store`]: where users, keys and answers to repeated requests are kept, behind one trait.
#![forbid(unsafe_code)]

pub mod cli;
pub mod json;
pub mod store;
pub mod user;
