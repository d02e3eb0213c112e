//! Versions of an image: numbers separated by dots.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest version, in bytes: a partition's name has at most 36 characters, and some of them name its content.
const MAX_LENGTH: usize = 29;

/// A version. It is written as it was read: `1.0` differs from `1`, and is higher.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    // This field is first, since versions are compared by their numbers.
    numbers: Vec<u64>,
    text: String,
}

/// A text that isn't a version.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no version: numbers with dots between, such as 2026.11.23, {MAX_LENGTH} characters at most"
)]
pub struct VersionError(String);

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let refused = || VersionError(text.chars().take(80).collect());
        if text.len() > MAX_LENGTH {
            return Err(refused());
        }
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        let numbers = text.split('.').map(number).collect::<Option<Vec<u64>>>().ok_or_else(refused)?;
        Ok(Self { numbers, text: text.to_owned() })
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.text
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_number_by_number() {
        let ordered = ["0.9", "1", "1.0", "1.2", "1.10", "2", "20261123.90000", "20261123.100000"];
        for pair in ordered.windows(2) {
            let [one, other] = [pair[0], pair[1]].map(|text| text.parse::<Version>().unwrap());
            assert!(one < other, "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in [
            "",
            ".",
            "1.",
            ".1",
            "1..2",
            "1+2",
            "-1",
            "v1",
            "1 ",
            "१",
            "1/2",
            "99999999999999999999",
            &"1".repeat(30),
        ] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
    }
}
