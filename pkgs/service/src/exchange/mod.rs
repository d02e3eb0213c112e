//! What a request is called, and what is answered where it fails.

#[cfg(feature = "openapi")]
pub mod openapi;
pub mod problem;
pub mod request_id;
pub mod traceparent;
