//! The layer between the listener and handlers.
//!
//! - `mount`: actix-web's application as a service for the listener.
//! - `body`, `query`: what handlers read from a request.
//! - `failure`, `respond`, `compress`: their answers.

pub(super) mod body;
pub(super) mod compress;
pub(super) mod failure;
pub(super) mod mount;
pub(super) mod query;
pub(super) mod respond;
