//! Codes: what stands after the host in a short URL.

/// The longest code, in bytes.
pub const MAX_BYTES: usize = 64;

/// How random codes are made and which custom ones are refused.
#[derive(Clone, Debug)]
pub struct CodePolicy {
    /// Characters of a random code.
    pub length: usize,
    /// What random codes are drawn from; ASCII alphanumerics, `-` and `_`, without repeats.
    pub alphabet: String,
    /// Custom codes refused, whatever their case, besides the built-in ones.
    pub reserved: Vec<String>,
}

/// Why a code is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCode {
    /// Nothing there.
    #[error("a code cannot be empty")]
    Empty,
    /// Longer than [`MAX_BYTES`].
    #[error("a code has at most {MAX_BYTES} characters")]
    TooLong,
    /// Something else than ASCII alphanumerics, `-`, `_` (and `.` inside).
    #[error("a code has only letters, digits, '-', '_' and, inside, '.'; not {0:?}")]
    Character(char),
    /// One of the words kept for the service itself.
    #[error("{0:?} is a reserved word")]
    Reserved(String),
}
