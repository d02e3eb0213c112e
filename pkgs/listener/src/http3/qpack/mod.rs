//! Field sections of HTTP/3 without a dynamic table (RFC 9204, section 4.5), for the fast path: decodes plain requests
//! and encodes answers.
//!
//! No dynamic table is announced, so no client may use one. What is not plain is left to h3, which refuses what is
//! malformed.

mod static_table;

use crate::field_compression::primitives::{integer, put_integer, put_literal, put_text};
use crate::field_compression::{Section, Text};

use static_table::FIELDS;

/// Reads a complete field section into `section`. None if it is not plain, or exceeds `most` bytes.
pub fn read(section: &mut Section, bytes: &[u8], most: usize) -> Option<()> {
    // It must require no entry of a dynamic table, and refer to none.
    let mut bytes = bytes.strip_prefix(&[0, 0])?;
    section.clear(most);
    while let Some(first) = bytes.first() {
        let (name, value);
        match first >> 4 {
            // Indexed, from the static table.
            0b1100..=0b1111 => {
                let entry;
                (entry, bytes) = static_entry(bytes, 6)?;
                (name, value) = (Text::Static(entry.0), Text::Static(entry.1));
            }
            // A literal with a name from the static table. The bit that forbids intermediaries to index it does not
            // concern a server.
            0b0101 | 0b0111 => {
                let entry;
                (entry, bytes) = static_entry(bytes, 4)?;
                name = Text::Static(entry.0);
                (value, bytes) = section.text(bytes, 7)?;
            }
            // A literal with a literal name.
            0b0010 | 0b0011 => {
                (name, bytes) = section.text(bytes, 3)?;
                (value, bytes) = section.text(bytes, 7)?;
            }
            _ => return None,
        }
        section.push(name, value)?;
    }
    Some(())
}

/// An entry of the static table, whose index has this many bits in the first byte, and the rest.
fn static_entry(bytes: &[u8], bits: u32) -> Option<((&'static str, &'static str), &[u8])> {
    let (index, rest) = integer(bytes, bits)?;
    Some((*FIELDS.get(index)?, rest))
}

/// The start of a line whose name is in the static table (section 4.5.4).
const NAME_OF_STATIC: u8 = 0b0101_0000;

/// Starts a field section.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends the line of a three-digit status.
pub fn status(out: &mut Vec<u8>, status: &[u8; 3]) {
    let index = match status {
        b"200" => 25,
        b"302" => 66,
        b"304" => 26,
        b"400" => 67,
        b"403" => 68,
        b"404" => 27,
        b"500" => 71,
        b"503" => 28,
        _ => return put_literal(out, NAME_OF_STATIC, static_table::STATUS, status),
    };
    out.push(0b1100_0000);
    put_integer(out, 6, index);
}

/// Appends a line.
pub fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match static_table::index(name) {
        Some(index) => put_literal(out, NAME_OF_STATIC, index, value),
        None => {
            out.push(0b0010_0000);
            put_integer(out, 3, name.len());
            out.extend_from_slice(name);
            put_text(out, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::field_compression::testing::{self, lines};

    use super::*;

    /// The lines of a section, if it is plain.
    fn read(bytes: &[u8]) -> Option<Vec<(String, String)>> {
        testing::read(|section| super::read(section, bytes, 16 << 10))
    }

    #[test]
    fn sections_are_read() {
        // RFC 9204, appendix B.1.
        assert_eq!(read(b"\x00\x00\x51\x0b/index.html"), lines(&[(":path", "/index.html")]));
        // With Huffman's code (RFC 7541, appendix C.4.1), and with a literal name.
        assert_eq!(
            read(b"\x00\x00\xd1\x50\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\x23abc\x01d"),
            lines(&[(":method", "GET"), (":authority", "www.example.com"), ("abc", "d")])
        );
        // Indices and lengths of two bytes.
        assert_eq!(read(b"\x00\x00\xff\x23"), lines(&[("x-frame-options", "sameorigin")]));
        let long = "x".repeat(300);
        let section = [&b"\x00\x00\x7f\x50\x7f\xad\x01"[..], long.as_bytes()].concat();
        assert_eq!(read(&section), lines(&[("user-agent", &long)]));
    }

    #[test]
    fn what_is_not_plain_is_left_to_others() {
        for section in [
            &b""[..],
            b"\x00",
            // An entry of a dynamic table is required, named, or referred to.
            b"\x02\x00\x80",
            b"\x00\x01\xd1",
            b"\x00\x00\x80",
            b"\x00\x00\x40\x01x",
            b"\x00\x00\x10",
            b"\x00\x00\x00\x01x",
            // There is no such entry.
            b"\x00\x00\xff\x24",
            b"\x00\x00\x5f\x60\x01x",
            // It ends within a line.
            b"\x00\x00\xff",
            b"\x00\x00\x51",
            b"\x00\x00\x51\x02x",
            b"\x00\x00\x23ab",
            b"\x00\x00\x51\xff\xff",
            // An integer that is too long.
            b"\x00\x00\x51\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
            // Invalid padding.
            b"\x00\x00\x51\x81\x00",
        ] {
            assert_eq!(read(section), None, "{section:x?}");
        }
    }

    #[test]
    fn a_section_has_a_size() {
        // RFC 9114, section 4.2.2: names, values and 32 bytes per line.
        let section = b"\x00\x00\x51\x0b/index.html";
        for (most, read) in [(5 + 11 + 32, true), (5 + 11 + 31, false)] {
            assert_eq!(super::read(&mut Section::new(), section, most).is_some(), read);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let long = "y".repeat(9000);
        let fields = [
            ("location", "https://example.com/"),
            ("x-content-type-options", "nosniff"),
            ("content-type", "text/html"),
            ("x-request-id", "1"),
            ("a-name-of-more-than-seven-letters", ""),
            ("n", "v"),
            ("content-length", "0"),
            ("link", &long),
        ];
        for code in ["200", "302", "304", "307", "308", "400", "403", "404", "410", "500", "503"] {
            let mut out = Vec::new();
            begin(&mut out);
            status(&mut out, code.as_bytes().try_into().expect("three digits"));
            fields.iter().for_each(|(name, value)| line(&mut out, name.as_bytes(), value.as_bytes()));
            let expected: Vec<_> = [(":status", code)].into_iter().chain(fields).collect();
            assert_eq!(read(&out), lines(&expected), "{code}");
        }
    }

    #[test]
    fn no_bytes_do_harm() {
        // Deterministic noise, half of it after a valid prefix.
        let mut state = 1_u64;
        let mut noise = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        for round in 0..20_000 {
            let mut bytes: Vec<u8> = (0..round % 67).map(|_| noise()).collect();
            if round % 2 == 0 && bytes.len() > 2 {
                bytes[..2].fill(0);
            }
            let _ = read(&bytes);
        }
    }
}
