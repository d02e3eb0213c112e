//! What stands between the listener and a handler.
//!
//! - `mount`: actix-web's application as a service of the listener's.
//! - `body`, `query`: what handlers read of a request.
//! - `failure`, `respond`, `compress`: what they answer.

pub(super) mod body;
pub(super) mod compress;
pub(super) mod failure;
pub(super) mod mount;
pub(super) mod query;
pub(super) mod respond;
