//! What stands between a socket and a handler.
//!
//! - `maybe_tls`, `connection`, `strict`: before actix-web: TLS, deadlines, and the one parser.
//! - `body`, `query`: what handlers read of a request.
//! - `failure`, `respond`, `compress`: what they answer.
//! - `request_log`: what a request leaves behind in its answer and in the access log.

pub(super) mod body;
pub(super) mod compress;
pub(super) mod connection;
pub(super) mod failure;
pub(super) mod maybe_tls;
pub(super) mod query;
pub(super) mod request_log;
pub(super) mod respond;
pub(super) mod strict;
