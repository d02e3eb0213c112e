//! Countries, as their two letters.

use std::fmt;

/// A country by its code (ISO 3166-1 alpha-2, such as `DE`), or that it is not known. There are 677 at most, so that what is
/// counted by country has a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Country([u8; 2]);

impl Country {
    /// Nobody knows which.
    pub const UNKNOWN: Self = Self([0; 2]);

    /// The country of this code; [`UNKNOWN`](Self::UNKNOWN) where that is none.
    pub fn of(code: &str) -> Self {
        match code.as_bytes() {
            &[first, second] if first.is_ascii_uppercase() && second.is_ascii_uppercase() => {
                Self([first, second])
            }
            _ => Self::UNKNOWN,
        }
    }

    /// Its code; empty where it is not known.
    pub fn code(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default().trim_end_matches('\0')
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_capital_letters_are_a_country() {
        for (text, code) in
            [("DE", "DE"), ("", ""), ("D", ""), ("de", ""), ("DEU", ""), ("D1", ""), ("Ä", "")]
        {
            assert_eq!(Country::of(text).code(), code, "{text}");
        }
        assert_eq!(Country::UNKNOWN, Country::default());
    }
}
