//! Targets: where a link leads.

/// What a target may be.
#[derive(Clone, Debug)]
pub struct TargetPolicy {
    /// URL schemes allowed; `http` and `https` unless configured.
    pub schemes: Vec<String>,
    /// The longest target, in bytes.
    pub max_bytes: usize,
    /// The shortener's own host names (lower case, without port): a target there would loop.
    pub own_hosts: Vec<String>,
}

/// Why a target is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// Not an absolute URL (WHATWG URL Standard).
    #[error("not an absolute URL: {0}")]
    Syntax(String),
    /// A scheme that is not allowed.
    #[error("the scheme {0:?} is not allowed")]
    Scheme(String),
    /// Too long.
    #[error("a target has at most {0} bytes")]
    TooLong(usize),
    /// It leads back here.
    #[error("the target leads back to this shortener")]
    Loop,
}
