//! Load generators, and their results.

pub mod h2load;
#[cfg(feature = "http3")]
pub mod h3load;
pub mod load;
#[cfg(feature = "tls")]
pub mod tlsload;
pub mod wrk;
