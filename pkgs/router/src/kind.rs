//! Types of parameters: what `{name:type}` accepts.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::error::BuildError;
use crate::escape;

/// A type of parameter.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Unsigned, of so many decimal digits at least whatever their value; the check decides about longer ones.
    Unsigned(usize, fn(&str) -> bool),
    /// Signed, likewise.
    Signed(usize, fn(&str) -> bool),
    /// 8-4-4-4-12 hexadecimal digits (RFC 9562, 4).
    Uuid,
    /// The user's own.
    Custom(fn(&str) -> bool),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsigned(..) => "Unsigned",
            Self::Signed(..) => "Signed",
            Self::Uuid => "Uuid",
            Self::Custom(_) => "Custom",
        })
    }
}

/// Whether `T` can be read from the text.
pub(crate) fn reads<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_ok()
}

/// The types that need no registration, in the order in which they are tried.
pub(crate) const BUILT_IN: [(&str, Kind); 13] = [
    ("u8", Kind::Unsigned(2, reads::<u8>)),
    ("u16", Kind::Unsigned(4, reads::<u16>)),
    ("u32", Kind::Unsigned(9, reads::<u32>)),
    ("u64", Kind::Unsigned(19, reads::<u64>)),
    ("u128", Kind::Unsigned(38, reads::<u128>)),
    ("usize", Kind::Unsigned(4, reads::<usize>)),
    ("i8", Kind::Signed(2, reads::<i8>)),
    ("i16", Kind::Signed(4, reads::<i16>)),
    ("i32", Kind::Signed(9, reads::<i32>)),
    ("i64", Kind::Signed(18, reads::<i64>)),
    ("i128", Kind::Signed(38, reads::<i128>)),
    ("isize", Kind::Signed(4, reads::<isize>)),
    ("uuid", Kind::Uuid),
];

/// A type that somebody registered.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    name: String,
    id: TypeId,
    check: fn(&str) -> bool,
}

impl Registered {
    /// `T` under this name.
    pub(crate) fn new<T: FromStr + 'static>(name: &str) -> Self {
        Self { name: name.to_owned(), id: TypeId::of::<T>(), check: reads::<T> }
    }
}

/// The types that a route may name.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    names: Vec<String>,
    kinds: Vec<Kind>,
    /// Of those that are not built in.
    ids: HashMap<u16, TypeId>,
}

impl Kinds {
    /// Those that are built in.
    pub(crate) fn new() -> Self {
        let (names, kinds) = BUILT_IN.iter().map(|&(name, kind)| (name.to_owned(), kind)).unzip();
        Self { names, kinds, ids: HashMap::new() }
    }

    /// More, each tried after all that were there. What is registered twice alike is one.
    pub(crate) fn register(&mut self, all: impl IntoIterator<Item = Registered>) -> Result<(), BuildError> {
        for Registered { name, id, check } in all {
            match self.find(&name) {
                Some(known) if self.ids.get(&known) == Some(&id) => {}
                None if self.names.len() < usize::from(u16::MAX) => {
                    self.ids.insert(self.names.len() as u16, id);
                    self.names.push(name);
                    self.kinds.push(Kind::Custom(check));
                }
                _ => return Err(BuildError::TypeTwice(name)),
            }
        }
        Ok(())
    }

    /// The number of the type of this name.
    pub(crate) fn find(&self, name: &str) -> Option<u16> {
        self.names.iter().position(|known| known == name).map(|index| index as u16)
    }

    /// All types, in the order of their numbers.
    pub(crate) fn all(&self) -> &[Kind] {
        &self.kinds
    }
}

impl Kind {
    /// Whether the segment, as it stands in the path, is of this type: exactly what `FromStr` reads.
    #[inline]
    pub(crate) fn accepts(self, segment: &[u8]) -> bool {
        match self {
            Self::Unsigned(safe, check) => {
                segment.len() <= safe && digits(segment) || std::str::from_utf8(segment).is_ok_and(check)
            }
            Self::Signed(safe, check) => {
                let number = segment.strip_prefix(b"-").unwrap_or(segment);
                number.len() <= safe && digits(number) || std::str::from_utf8(segment).is_ok_and(check)
            }
            Self::Uuid => uuid(segment),
            Self::Custom(check) => std::str::from_utf8(segment)
                .is_ok_and(|raw| escape::decode(raw).is_ok_and(|text| check(&text))),
        }
    }
}

fn digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn uuid(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in(name: &str) -> Kind {
        BUILT_IN.iter().find(|(known, _)| *known == name).expect("built in").1
    }

    #[test]
    fn a_type_accepts_what_from_str_reads() {
        let samples = [
            "0",
            "7",
            "00",
            "99",
            "255",
            "256",
            "-1",
            "-128",
            "-129",
            "+5",
            "",
            "-",
            "+",
            "1a",
            "65535",
            "65536",
            "4294967295",
            "4294967296",
            "18446744073709551615",
            "18446744073709551616",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "0000000000000000000000000001",
            "340282366920938463463374607431768211455",
            "340282366920938463463374607431768211456",
            "١",
        ];
        for sample in samples {
            for (name, expected) in [
                ("u8", reads::<u8>(sample)),
                ("u16", reads::<u16>(sample)),
                ("u32", reads::<u32>(sample)),
                ("u64", reads::<u64>(sample)),
                ("u128", reads::<u128>(sample)),
                ("usize", reads::<usize>(sample)),
                ("i8", reads::<i8>(sample)),
                ("i16", reads::<i16>(sample)),
                ("i32", reads::<i32>(sample)),
                ("i64", reads::<i64>(sample)),
                ("i128", reads::<i128>(sample)),
                ("isize", reads::<isize>(sample)),
            ] {
                assert_eq!(built_in(name).accepts(sample.as_bytes()), expected, "{sample} as {name}");
            }
        }
    }

    #[test]
    fn a_uuid_has_its_hyphens() {
        for (text, expected) in [
            ("67e55044-10b1-426f-9247-bb680e5fe0c8", true),
            ("67E55044-10B1-426F-9247-BB680E5FE0C8", true),
            ("67e5504410b1426f9247bb680e5fe0c8", false),
            ("67e55044-10b1-426f-9247-bb680e5fe0cg", false),
            ("67e55044x10b1-426f-9247-bb680e5fe0c8", false),
            ("", false),
        ] {
            assert_eq!(Kind::Uuid.accepts(text.as_bytes()), expected, "{text}");
        }
    }
}
