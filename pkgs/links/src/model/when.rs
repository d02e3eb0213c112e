//! Times: Unix seconds in the store, RFC 3339 for people and programs, and spans from now such as `7d`.

use jiff::civil::{Date, date};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds per hour.
const HOUR: i64 = 60 * 60;

/// Hours per day.
pub const HOURS: i32 = 24;

/// Seconds per day.
const DAY: i64 = 24 * 60 * 60;

/// The longest span from now, in seconds: 100 years.
const MAX_SPAN: i64 = 36_525 * DAY;

/// Day 0.
const EPOCH: Date = date(1970, 1, 1);

/// A time in whole seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Why a text is not a time.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no instant: a date such as 2030-01-31 (its start, UTC), RFC 3339, or a span from now such as 30m, 12h, 7d or 2w"
)]
pub struct NotAnInstant(String);

/// Why a text is not a day.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no day such as 2030-01-31")]
pub struct NotADay(String);

impl Timestamp {
    /// The current time.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_second())
    }

    /// Parses RFC 3339 (`2030-01-31T12:00:00Z`), a date (`2030-01-31`, its start in UTC), or a span from now (`7d`;
    /// units `s m h d w`). A span is at most 100 years; fractions of a second are cut off.
    pub fn parse(text: &str) -> Result<Self, NotAnInstant> {
        if let Ok(instant) = text.parse::<jiff::Timestamp>() {
            return Ok(Self(instant.as_second()));
        }
        if let Ok(day) = parse_day(text) {
            return Ok(Self::of_day(day));
        }
        let span = span(text).ok_or_else(|| NotAnInstant(text.to_owned()))?;
        Ok(Self(Self::now().0 + span))
    }

    /// The start of a day since the Unix epoch, UTC.
    pub fn of_day(day: i32) -> Self {
        Self(i64::from(day) * DAY)
    }

    /// Days since the Unix epoch, UTC.
    pub fn day(self) -> i32 {
        whole(self.0.div_euclid(DAY))
    }

    /// Hours since the Unix epoch.
    pub fn hour(self) -> i32 {
        whole(self.0.div_euclid(HOUR))
    }
}

/// Converts to `i32`. Values out of range become the nearest limit.
fn whole(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
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
    // Rust's numbers may have a sign; a span has none.
    if !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    count.parse::<i64>().ok()?.checked_mul(unit).filter(|&span| span <= MAX_SPAN)
}

/// Days since the Unix epoch of a date (`2030-01-31`).
pub fn parse_day(text: &str) -> Result<i32, NotADay> {
    let day = Date::strptime("%Y-%m-%d", text).ok().map(|date| (date - EPOCH).get_days());
    // The parser also accepts other leading zeros and signs; only the standard form is allowed.
    day.filter(|&day| format_day(day) == text).ok_or_else(|| NotADay(text.to_owned()))
}

/// The date (`2030-01-31`) of a day since the Unix epoch; beyond the year 9999, the last possible date.
pub fn format_day(day: i32) -> String {
    EPOCH.saturating_add(jiff::SignedDuration::from_hours(i64::from(day) * 24)).to_string()
}

/// An hour since the Unix epoch as text (`2030-01-31T05`, UTC).
pub fn format_hour(hour: i32) -> String {
    format!("{}T{:02}", format_day(hour.div_euclid(HOURS)), hour.rem_euclid(HOURS))
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

/// An optional time; `null` becomes `None`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Option::deserialize(deserializer)
}

/// Like [`deserialize`], but a field with `null` becomes `Some(None)`.
pub fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Timestamp>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read() {
        for (text, second) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2030-01-31T12:00:00Z", 1_896_091_200),
            ("2030-01-31T12:00:00+02:00", 1_896_084_000),
            ("2030-01-31T12:00:00.999Z", 1_896_091_200),
            ("1969-12-31T23:59:59Z", -1),
            ("2030-01-31", 1_896_048_000),
        ] {
            assert_eq!(Timestamp::parse(text).ok(), Some(Timestamp(second)), "{text}");
        }
    }

    #[test]
    fn spans_count_from_now() {
        for (text, seconds) in [
            ("0s", 0),
            ("30s", 30),
            ("30m", 1_800),
            ("12h", 43_200),
            ("7d", 604_800),
            ("2w", 1_209_600),
            ("36525d", MAX_SPAN),
        ] {
            let earliest = Timestamp::now().0 + seconds;
            let found = Timestamp::parse(text).unwrap().0;
            assert!((earliest..=Timestamp::now().0 + seconds).contains(&found), "{text}: {found}");
        }
    }

    #[test]
    fn other_texts_are_no_instants() {
        for text in [
            "",
            "d",
            "7",
            "7y",
            "+7d",
            "-7d",
            "7 d",
            "7dd",
            "1.5d",
            "7\u{fc}",
            "\u{664}d",
            "36526d",
            "9223372036854775807w",
            "99999999999999999999d",
            "2030-1-31",
            "2030-02-30",
            "2030-01-31T12:00:00",
            "2030-02-30T12:00:00Z",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_instant_is_on_its_utc_day() {
        for (second, day) in [
            (0, 0),
            (DAY - 1, 0),
            (DAY, 1),
            (-1, -1),
            (-DAY, -1),
            (-DAY - 1, -2),
            (i64::MAX, i32::MAX),
            (i64::MIN, i32::MIN),
        ] {
            assert_eq!(Timestamp(second).day(), day, "{second}");
        }
    }

    #[test]
    fn days_are_written_as_they_are_read() {
        for (text, day) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2030-01-31", 21_945),
            ("9999-12-31", 2_932_896),
        ] {
            assert_eq!(parse_day(text).ok(), Some(day), "{text}");
            assert_eq!(format_day(day), text);
        }
        assert_eq!(format_day(i32::MAX), "9999-12-31");
        for text in
            ["", "2030-1-31", "2030-02-30", "+2030-01-31", " 2030-01-31", "20300131", "2030-01-31T00:00:00Z"]
        {
            assert!(parse_day(text).is_err(), "{text:?}");
        }
    }
}
