//! Why a head is refused.

/// Why a head is refused. After any of these errors, it is unknown where the next request starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// 400: not valid HTTP/1.1 according to RFC 9112.
    #[error("{0}")]
    Malformed(&'static str),
    /// 414: the request line is longer than allowed.
    #[error("the request target is longer than allowed")]
    TargetTooLong,
    /// 417: an expectation other than 100-continue.
    #[error("100-continue is all that can be expected")]
    Expectation,
    /// 431: too many fields, or too long ones.
    #[error("the header fields are more than allowed")]
    TooLarge,
    /// 501: an unknown transfer coding.
    #[error("chunked is the only transfer coding")]
    Coding,
    /// 505: a version other than 1.1 and 1.0.
    #[error("HTTP/1.1 and 1.0 are spoken here")]
    Version,
}
