//! A request's names (its id and trace), and the body of an error.

#[cfg(feature = "openapi")]
pub mod openapi;
pub mod problem;
pub mod request_id;
pub mod traceparent;
