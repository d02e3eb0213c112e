//! A day of the calendar.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::Text;
use crate::json::object::Member;

/// A day in RFC 3339's form (`full-date`) and no other: `2030-01-31`. Years are 1 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub Date);

/// The error of a text that is not a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a day such as 2030-01-31")]
pub struct InvalidDay;

impl FromStr for Day {
    type Err = InvalidDay;

    fn from_str(text: &str) -> Result<Self, InvalidDay> {
        // The parser accepts other forms too.
        let form = text.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
        let date = text.parse::<Date>().ok().filter(|date| text.len() == 10 && form && date.year() > 0);
        date.map(Self).ok_or(InvalidDay)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Member<'_> for Day {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_in_one_way() {
        for text in ["2030-01-31", "0001-01-01", "9999-12-31", "2024-02-29"] {
            assert_eq!(text.parse::<Day>().map(|day| day.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "",
            "20300131",
            "2030-1-31",
            "2030-01-32",
            "2023-02-29",
            "0000-01-01",
            "2030-01-31T00:00:00",
            "+2030-01-1",
            "2030-W01-1",
        ] {
            assert_eq!(text.parse::<Day>(), Err(InvalidDay), "{text}");
        }
    }
}
