//! Why a head is refused.

/// Why a head is refused. Where the next request begins cannot be trusted after any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// 400: not HTTP/1.1 as RFC 9112 has it.
    #[error("{0}")]
    Malformed(&'static str),
    /// 414: the request line is longer than allowed.
    #[error("the request target is longer than allowed")]
    TargetTooLong,
    /// 417: something else than 100-continue.
    #[error("100-continue is all that can be expected")]
    Expectation,
    /// 431: more fields than allowed, or longer ones.
    #[error("the header fields are more than allowed")]
    TooLarge,
    /// 501: a transfer coding nobody here knows.
    #[error("chunked is the only transfer coding")]
    Coding,
    /// 505: another version than 1.1 and 1.0.
    #[error("HTTP/1.1 and 1.0 are spoken here")]
    Version,
}
