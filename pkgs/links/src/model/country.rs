//! Countries, as two letters.

use std::fmt;

/// A country by its code (ISO 3166-1 alpha-2, such as `DE`), or unknown. At most 677 values exist, so counts by country
/// are bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Country([u8; 2]);

impl Country {
    /// An unknown country.
    pub const UNKNOWN: Self = Self([0; 2]);

    /// The country of this code; [`UNKNOWN`](Self::UNKNOWN) if it is invalid.
    pub fn of(code: &str) -> Self {
        match code.as_bytes() {
            &[first, second] if first.is_ascii_uppercase() && second.is_ascii_uppercase() => {
                Self([first, second])
            }
            _ => Self::UNKNOWN,
        }
    }

    /// Its code; empty if unknown.
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
