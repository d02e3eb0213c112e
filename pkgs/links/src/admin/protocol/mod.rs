//! The layer between the listener and handlers.
//!
//! - `mount`: actix-web's application as a service for the listener.
//! - `query`: the parameters of a request.
//! - `failure`, `respond`, `compress`: their answers.
//! - `budget`: the memory of large answers.

pub(super) mod budget;
pub(super) mod compress;
pub(super) mod failure;
pub(super) mod mount;
pub(super) mod query;
pub(super) mod respond;
