//! Instants: Unix seconds in the store, RFC 3339 for people and programs, and spans from now such as `7d`.

use jiff::civil::{Date, date};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

/// The longest span from now, in seconds: 100 years.
const MAX_SPAN: i64 = 36_525 * DAY;

/// Day 0.
const EPOCH: Date = date(1970, 1, 1);

/// An instant, in whole seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Why a text is no instant.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither an RFC 3339 instant nor a span such as 30m, 12h, 7d or 2w")]
pub struct NotAnInstant(String);

/// Why a text is no day.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no day such as 2030-01-31")]
pub struct NotADay(String);

impl Timestamp {
    /// The present.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_second())
    }

    /// Parses RFC 3339 (`2030-01-31T12:00:00Z`), or a span counted from now (`7d`; `s m h d w` as units).
    /// A span is at most 100 years; fractions of a second are cut off.
    pub fn parse(text: &str) -> Result<Self, NotAnInstant> {
        if let Ok(instant) = text.parse::<jiff::Timestamp>() {
            return Ok(Self(instant.as_second()));
        }
        let span = span(text).ok_or_else(|| NotAnInstant(text.to_owned()))?;
        Ok(Self(Self::now().0 + span))
    }

    /// Days since the Unix epoch, UTC.
    pub fn day(self) -> i32 {
        let day = self.0.div_euclid(DAY);
        i32::try_from(day).unwrap_or(if day < 0 { i32::MIN } else { i32::MAX })
    }
}

/// The seconds of a span such as `7d`.
fn span(text: &str) -> Option<i64> {
    let unit = match text.bytes().next_back()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 60 * 60,
        b'd' => DAY,
        b'w' => 7 * DAY,
        _ => return None,
    };
    let count = &text[..text.len() - 1];
    // Numbers may have a sign in Rust; a span has none.
    if !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    count.parse::<i64>().ok()?.checked_mul(unit).filter(|&span| span <= MAX_SPAN)
}

/// Days since the Unix epoch of a date (`2030-01-31`).
pub fn parse_day(text: &str) -> Result<i32, NotADay> {
    let day = Date::strptime("%Y-%m-%d", text).ok().map(|date| (date - EPOCH).get_days());
    // The parser is lenient about zeros and signs; only the one spelling is taken.
    day.filter(|&day| format_day(day) == text).ok_or_else(|| NotADay(text.to_owned()))
}

/// The date (`2030-01-31`) of a day since the Unix epoch; the last date known for days beyond the year 9999.
pub fn format_day(day: i32) -> String {
    EPOCH.saturating_add(jiff::SignedDuration::from_hours(i64::from(day) * 24)).to_string()
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
