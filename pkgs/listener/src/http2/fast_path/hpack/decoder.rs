//! Decodes field sections as a client compresses them (RFC 7541).

use h2::Reason;

use super::dynamic_table::DynamicTable;
use super::static_table::FIELDS;
use crate::field_compression::primitives::integer;
use crate::field_compression::section::{Section, Text, size};

/// A client whose fields exceed the limit by this factor gets no error response but is disconnected, as in h2.
const ABUSE: usize = 4;

/// Decodes a connection's field sections. Each may refer to earlier ones.
#[derive(Debug, Default)]
pub struct Decoder {
    table: DynamicTable,
}

/// A line, and whether the table keeps it.
struct Line {
    name: Text,
    value: Text,
    kept: bool,
}

impl Decoder {
    /// Reads a complete field section into `section`. Returns whether it fits `most` bytes; otherwise the first line
    /// that does not fit is the last one read. Fails with the reason to end the connection.
    pub fn read(&mut self, section: &mut Section, mut bytes: &[u8], most: usize) -> Result<bool, Reason> {
        section.clear(most);
        // Changes of the table's size come first (section 4.2).
        while let [0b0010_0000..=0b0011_1111, ..] = bytes {
            let (most, rest) = integer(bytes, 5).ok_or(Reason::COMPRESSION_ERROR)?;
            self.table.resize(most).ok_or(Reason::COMPRESSION_ERROR)?;
            bytes = rest;
        }
        // The size beyond the limit.
        let mut beyond = None;
        while !bytes.is_empty() {
            let end = section.end();
            let (line, rest) = self.line(section, bytes).ok_or(Reason::COMPRESSION_ERROR)?;
            let Line { name, value, kept } = line;
            bytes = rest;
            if kept {
                self.table.insert(section.bytes(name), section.bytes(value));
            }
            if let Some(beyond) = &mut beyond {
                *beyond += size(section.bytes(name), section.bytes(value));
                if *beyond > (ABUSE - 1) * most {
                    return Err(Reason::ENHANCE_YOUR_CALM);
                }
                section.forget(end);
            } else if section.push(name, value).is_none() {
                beyond = Some(0);
            }
        }
        Ok(beyond.is_none())
    }

    /// Reads a line. Returns it and the rest.
    #[inline]
    fn line<'b>(&self, section: &mut Section, bytes: &'b [u8]) -> Option<(Line, &'b [u8])> {
        let first = *bytes.first()?;
        if first & 0b1000_0000 != 0 {
            let (index, rest) = integer(bytes, 7)?;
            let (name, value) = match FIELDS.get(index.checked_sub(1)?) {
                Some((name, value)) => (Text::Static(name), Text::Static(value)),
                None => {
                    let (name, value) = self.table.get(index - 1 - FIELDS.len())?;
                    (section.copy(name)?, section.copy(value)?)
                }
            };
            return Some((Line { name, value, kept: false }, rest));
        }
        let (kept, bits) = match first >> 4 {
            0b0100..=0b0111 => (true, 6),
            // A line that the table does not keep, or must never keep.
            0b0000 | 0b0001 => (false, 4),
            // A change of the table's size, which comes too late here.
            _ => return None,
        };
        let (index, rest) = integer(bytes, bits)?;
        let (name, rest) = match index.checked_sub(1) {
            None => section.text(rest, 7)?,
            Some(index) => match FIELDS.get(index) {
                Some((name, _)) => (Text::Static(name), rest),
                None => (section.copy(self.table.get(index - FIELDS.len())?.0)?, rest),
            },
        };
        let (value, rest) = section.text(rest, 7)?;
        Some((Line { name, value, kept }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::super::dynamic_table::MOST;
    use super::*;
    use crate::field_compression::testing::{self, lines};

    const ROOM: usize = 16 << 10;

    /// The lines of a section within the limit.
    fn read(decoder: &mut Decoder, bytes: &[u8]) -> Option<Vec<(String, String)>> {
        testing::read(|section| decoder.read(section, bytes, ROOM).is_ok_and(|fits| fits).then_some(()))
    }

    #[test]
    fn sections_refer_to_those_before_them() {
        /// Lines, and their encoding without and with Huffman's code.
        type Request<'a> = (&'a [(&'a str, &'a str)], &'a [u8], &'a [u8]);
        // RFC 7541, appendices C.3 and C.4.
        let requests: [Request<'_>; 3] = [
            (
                &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
                b"\x82\x86\x84\x41\x0fwww.example.com",
                b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            ),
            (
                &[
                    (":method", "GET"),
                    (":scheme", "http"),
                    (":path", "/"),
                    (":authority", "www.example.com"),
                    ("cache-control", "no-cache"),
                ],
                b"\x82\x86\x84\xbe\x58\x08no-cache",
                b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
            ),
            (
                &[
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":path", "/index.html"),
                    (":authority", "www.example.com"),
                    ("custom-key", "custom-value"),
                ],
                b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
                b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
            ),
        ];
        let (mut plain, mut coded) = (Decoder::default(), Decoder::default());
        for (expected, as_plain, as_coded) in requests {
            assert_eq!(read(&mut plain, as_plain), lines(expected));
            assert_eq!(read(&mut coded, as_coded), lines(expected));
        }
        // A name from the table, and the same line kept again.
        assert_eq!(read(&mut plain, b"\x7e\x01x\xbe"), lines(&[("custom-key", "x"), ("custom-key", "x")]));
    }

    #[test]
    fn lines_are_read_however_they_are_written() {
        for (section, line) in [
            // Appendices C.2.1 to C.2.4.
            (&b"\x40\x0acustom-key\x0dcustom-header"[..], ("custom-key", "custom-header")),
            (b"\x04\x0c/sample/path", (":path", "/sample/path")),
            (b"\x10\x08password\x06secret", ("password", "secret")),
            (b"\x82", (":method", "GET")),
            // An index of two bytes.
            (b"\x0f\x2b\x01a", ("user-agent", "a")),
            // One or two changes of the table's size come first.
            (b"\x20\x82", (":method", "GET")),
            (b"\x20\x3f\xe1\x1f\x82", (":method", "GET")),
            (b"\x40\x00\x00", ("", "")),
        ] {
            assert_eq!(read(&mut Decoder::default(), section), lines(&[line]), "{}", section.escape_ascii());
        }
        assert_eq!(read(&mut Decoder::default(), b""), lines(&[]));
    }

    #[test]
    fn what_is_malformed_ends_the_connection() {
        for section in [
            // Entries that do not exist.
            &b"\x80"[..],
            b"\xbe",
            b"\x7e\x01a",
            b"\x0f\x2f\x01a",
            b"\x40\x01a\x01b\xbf",
            // A size above the maximum, or too late.
            b"\x3f\xe2\x1f",
            b"\x3f\xff\xff\xff\xff\xff\x01",
            b"\x82\x20",
            // A removed entry.
            b"\x40\x01a\x01b\x20\xbe",
            // It ends within a line.
            b"\xff",
            b"\x3f",
            b"\x41",
            b"\x41\x02a",
            b"\x40\x01a",
            b"\x40\x03ab",
            // An integer that is too long.
            b"\x41\x7f\xff\xff\xff\xff\x01x",
            // Invalid padding.
            b"\x41\x81\x00",
        ] {
            let read = Decoder::default().read(&mut Section::new(), section, ROOM);
            assert_eq!(read, Err(Reason::COMPRESSION_ERROR), "{}", section.escape_ascii());
        }
    }

    #[test]
    fn the_table_s_size_is_the_client_s_to_say() {
        let mut decoder = Decoder::default();
        assert_eq!(read(&mut decoder, b"\x40\x01a\x01b\x40\x01c\x01d"), lines(&[("a", "b"), ("c", "d")]));
        // There is room for one entry of 34 bytes.
        assert_eq!(read(&mut decoder, b"\x3f\x03\xbe"), lines(&[("c", "d")]));
        assert_eq!(read(&mut decoder, b"\xbf"), None);
        // First no room, then the maximum: nothing is left.
        assert_eq!(read(&mut decoder, b"\x20\x3f\xe1\x1f\x82"), lines(&[(":method", "GET")]));
        assert_eq!(read(&mut decoder, b"\xbe"), None);
        // An entry that does not fit is no error.
        assert_eq!(read(&mut decoder, b"\x20\x40\x01a\x01b"), lines(&[("a", "b")]));
        assert_eq!(read(&mut decoder, b"\xbe"), None);
    }

    #[test]
    fn a_section_has_a_size_and_the_table_is_as_if_it_had_none() {
        // RFC 9113, section 6.5.2: names, values and 32 bytes per line.
        let section = b"\x04\x0b/index.html";
        for (most, fits) in [(5 + 11 + 32, true), (5 + 11 + 31, false)] {
            assert_eq!(Decoder::default().read(&mut Section::new(), section, most), Ok(fits));
        }
        let (mut decoder, mut section) = (Decoder::default(), Section::new());
        let bytes = b"\x40\x01a\x01b\x40\x01c\x01d\x40\x01e\x01f";
        assert_eq!(decoder.read(&mut section, bytes, 67), Ok(false));
        assert_eq!(section.lines().len(), 2, "the first beyond is the last");
        assert_eq!(read(&mut decoder, b"\xbe\xbf\xc0"), lines(&[("e", "f"), ("c", "d"), ("a", "b")]));
    }

    #[test]
    fn a_small_section_that_is_large_when_it_is_read_is_not_read_to_its_end() {
        let mut decoder = Decoder::default();
        let value = "x".repeat(MOST - 33);
        let entry = [&b"\x40\x01a\x7f\xe0\x1e"[..], value.as_bytes()].concat();
        assert_eq!(read(&mut decoder, &entry), lines(&[("a", &value)]));
        let mut section = Section::new();
        // Of sixteen lines of 4 KiB, four fit and one is kept as the first too many.
        assert_eq!(decoder.read(&mut section, &[0xbe; 16], ROOM), Ok(false));
        assert_eq!(section.lines().len(), 5);
        assert!(section.end() <= 5 * MOST);
        assert_eq!(decoder.read(&mut section, &[0xbe; 17], ROOM), Ok(false));
        assert_eq!(decoder.read(&mut section, &[0xbe; 18], ROOM), Err(Reason::ENHANCE_YOUR_CALM));
    }
}
