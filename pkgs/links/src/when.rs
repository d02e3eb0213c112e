//! Instants: Unix seconds in the store, RFC 3339 for people and programs, and spans from now such as `7d`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant, in whole seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Why a text is no instant.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither an RFC 3339 instant nor a span such as 30m, 12h, 7d or 2w")]
pub struct NotAnInstant(String);

impl Timestamp {
    /// The present.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_second())
    }

    /// Parses RFC 3339 (`2030-01-31T12:00:00Z`), or a span counted from now (`7d`; `s m h d w` as units).
    pub fn parse(text: &str) -> Result<Self, NotAnInstant> {
        let _ = text;
        todo!("helper: store")
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(instant) => instant.fmt(f),
            Err(_) => self.0.fmt(f),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// An optional instant; `null` is none.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Option::deserialize(deserializer)
}

/// As [`deserialize`], but a field that is there with `null` is `Some(None)`.
pub fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Timestamp>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
