//! The id of a user.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a user: a UUID of version 7 (RFC 9562, section 5.7), so that ids made later sort later and a
/// database's index grows at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserId(pub Uuid);

/// A text is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID")]
pub struct InvalidId;

impl UserId {
    /// The length of an id as a text.
    pub const TEXT_BYTES: usize = 36;

    /// An id that none has had before.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl FromStr for UserId {
    type Err = InvalidId;

    /// In the form of RFC 9562, section 4, and in no other that UUIDs are written in.
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
