//! The id of a user.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a user: a UUID of version 7 (RFC 9562, section 5.7). Later ids sort later, so a database's index grows at
/// its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserId(pub Uuid);

/// The error of a text that is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID")]
pub struct InvalidId;

impl UserId {
    /// The length of an id as a text.
    pub const TEXT_BYTES: usize = 36;

    /// Makes a unique id.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl FromStr for UserId {
    type Err = InvalidId;

    /// Accepts only the form of RFC 9562, section 4. The parser knows other forms too.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let id = Uuid::try_parse(text).ok().filter(|_| text.len() == Self::TEXT_BYTES);
        id.map(Self).ok_or(InvalidId)
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_hyphenated(), f)
    }
}
