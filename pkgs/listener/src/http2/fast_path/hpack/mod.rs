//! Field sections of HTTP/2 where the dynamic table has no room (RFC 7541): reading plain requests, and writing answers that
//! leave the client's table as it is.
//!
//! What is not plain is left to h2, which refuses what is malformed.

mod static_table;

use crate::field_compression::primitives::{integer, put_integer, put_text};
use crate::field_compression::{Section, Text};

use static_table::FIELDS;

/// Reads a whole field section in place of what there was; none where that is not plain, or larger than `most` bytes.
pub fn read(section: &mut Section, bytes: &[u8], most: usize) -> Option<()> {
    // That the table has no room may be said again.
    let mut bytes = bytes.strip_prefix(&[0b0010_0000]).unwrap_or(bytes);
    section.clear(most);
    while let Some(first) = bytes.first() {
        let (name, value);
        // Indexed, of the static table.
        if first & 0b1000_0000 != 0 {
            let index;
            (index, bytes) = integer(bytes, 7)?;
            let entry = FIELDS.get(index.checked_sub(1)?)?;
            (name, value) = (Text::Static(entry.0), Text::Static(entry.1));
        } else {
            let bits = match first >> 4 {
                // A literal that is to be kept, for which there is no room (section 4.4).
                0b0100..=0b0111 => 6,
                // One that is not to be kept, or never.
                0b0000 | 0b0001 => 4,
                // A size of the table.
                _ => return None,
            };
            let index;
            (index, bytes) = integer(bytes, bits)?;
            (name, bytes) = match index.checked_sub(1) {
                Some(index) => (Text::Static(FIELDS.get(index)?.0), bytes),
                None => section.text(bytes, 7)?,
            };
            (value, bytes) = section.text(bytes, 7)?;
        }
        section.push(name, value)?;
    }
    Some(())
}

/// Appends the line of a status of three digits.
pub fn status(out: &mut Vec<u8>, status: &[u8; 3]) {
    let index = match status {
        b"200" => 8,
        b"204" => 9,
        b"206" => 10,
        b"304" => 11,
        b"400" => 12,
        b"404" => 13,
        b"500" => 14,
        _ => return literal(out, static_table::STATUS, status),
    };
    out.push(0b1000_0000 | index);
}

/// Appends a line, which is not to be kept.
pub fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match static_table::index(name) {
        Some(index) => literal(out, index, value),
        None => {
            out.push(0);
            put_text(out, name);
            put_text(out, value);
        }
    }
}

/// Appends a line whose name is of the static table.
fn literal(out: &mut Vec<u8>, index: usize, value: &[u8]) {
    out.push(0);
    put_integer(out, 4, index);
    put_text(out, value);
}

#[cfg(test)]
mod tests {
    use crate::field_compression::testing::{self, lines};

    use super::*;

    /// The lines of a section, where it is plain.
    fn read(bytes: &[u8]) -> Option<Vec<(String, String)>> {
        testing::read(|section| super::read(section, bytes, 16 << 10))
    }

    #[test]
    fn sections_are_read() {
        let first = lines(&[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ]);
        for section in [
            // RFC 7541, appendices C.3.1 and C.4.1.
            &b"\x82\x86\x84\x41\x0fwww.example.com"[..],
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            b"\x20\x82\x86\x84\x01\x0fwww.example.com",
            b"\x82\x86\x84\x11\x0fwww.example.com",
            b"\x82\x86\x84\x40\x0a:authority\x0fwww.example.com",
        ] {
            assert_eq!(read(section), first, "{}", section.escape_ascii());
        }
        // Appendices C.2.1 to C.2.4.
        for (section, line) in [
            (&b"\x40\x0acustom-key\x0dcustom-header"[..], ("custom-key", "custom-header")),
            (b"\x04\x0c/sample/path", (":path", "/sample/path")),
            (b"\x10\x08password\x06secret", ("password", "secret")),
            (b"\x82", (":method", "GET")),
            // An index of two bytes.
            (b"\x0f\x2b\x01a", ("user-agent", "a")),
        ] {
            assert_eq!(read(section), lines(&[line]), "{}", section.escape_ascii());
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_others() {
        for section in [
            // Of the dynamic table, and of none.
            &b"\xbe"[..],
            b"\x7e\x01a",
            b"\x0f\x2f\x01a",
            b"\x80",
            // The table has room, or a size of it comes late.
            b"\x21\x82",
            b"\x3f\xe1\x1f\x82",
            b"\x82\x20",
            b"\x20\x20\x82",
            // It ends within a line.
            b"\xff",
            b"\x41",
            b"\x41\x02a",
            b"\x40\x01a",
            b"\x40\x03ab",
            // An integer longer than any text may be.
            b"\x41\x7f\xff\xff\xff\xff\x01x",
            // Padding that is none.
            b"\x41\x81\x00",
        ] {
            assert_eq!(read(section), None, "{}", section.escape_ascii());
        }
    }

    #[test]
    fn a_section_has_a_size() {
        // RFC 9113, section 6.5.2: names, values and 32 bytes a line.
        let section = b"\x04\x0b/index.html";
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
            ("vary", "accept"),
            ("a-name-of-more-than-seven-letters", ""),
            ("n", "v"),
            ("content-length", "0"),
            ("link", &long),
        ];
        for code in
            ["200", "204", "206", "302", "304", "307", "308", "400", "403", "404", "410", "500", "503"]
        {
            let mut out = Vec::new();
            status(&mut out, code.as_bytes().try_into().expect("three digits"));
            fields.iter().for_each(|(name, value)| line(&mut out, name.as_bytes(), value.as_bytes()));
            let expected: Vec<_> = [(":status", code)].into_iter().chain(fields).collect();
            assert_eq!(read(&out), lines(&expected), "{code}");
        }
    }
}
