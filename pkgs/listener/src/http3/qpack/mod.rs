//! Field sections of HTTP/3 without a dynamic table (RFC 9204, section 4.5), for what is answered before a request is made:
//! reading plain requests, and writing answers.
//!
//! Nobody is told of a dynamic table, so no client may use one. What is not plain is left to h3, which refuses what is
//! malformed.

pub mod huffman;
mod static_table;

use static_table::FIELDS;

/// A name or a value.
#[derive(Clone, Copy)]
enum Text {
    /// The name of this entry of the static table.
    Name(u8),
    /// Its value.
    Value(u8),
    /// In the buffer, from where to where.
    Read(u32, u32),
}

impl Text {
    fn of(self, decoded: &[u8]) -> &[u8] {
        match self {
            Self::Name(index) => FIELDS[usize::from(index)].0.as_bytes(),
            Self::Value(index) => FIELDS[usize::from(index)].1.as_bytes(),
            Self::Read(start, end) => &decoded[start as usize..end as usize],
        }
    }
}

/// The most lines of a request that are read here; browsers send some twenty.
const MAX_LINES: usize = 48;

/// The lines of a field section; to be used again.
pub struct Section {
    lines: [(Text, Text); MAX_LINES],
    length: usize,
    /// What is not of the static table.
    decoded: Vec<u8>,
}

impl Default for Section {
    fn default() -> Self {
        Self::new()
    }
}

impl Section {
    /// One without lines.
    pub const fn new() -> Self {
        Self { lines: [(Text::Name(0), Text::Value(0)); MAX_LINES], length: 0, decoded: Vec::new() }
    }

    /// Reads a whole field section in place of what it had; none where that is not plain, or larger than `most` bytes as
    /// RFC 9114, section 4.2.2 counts them.
    pub fn read(&mut self, bytes: &[u8], most: usize) -> Option<()> {
        // No entry of a dynamic table is required, and nothing is relative to one.
        let mut bytes = bytes.strip_prefix(&[0, 0])?;
        let Self { lines, length, decoded } = self;
        decoded.clear();
        *length = 0;
        let mut size = 0;
        while let Some(first) = bytes.first() {
            let (index, line);
            match first >> 4 {
                // Indexed, of the static table.
                0b1100..=0b1111 => {
                    (index, bytes) = entry(bytes, 6)?;
                    line = (Text::Name(index), Text::Value(index));
                }
                // A literal with a name of the static table; that intermediaries must not index it is nothing to us.
                0b0101 | 0b0111 => {
                    (index, bytes) = entry(bytes, 4)?;
                    let value;
                    (value, bytes) = text(bytes, 7, decoded)?;
                    line = (Text::Name(index), value);
                }
                // A literal with a name of its own.
                0b0010 | 0b0011 => {
                    let (name, value);
                    (name, bytes) = text(bytes, 3, decoded)?;
                    (value, bytes) = text(bytes, 7, decoded)?;
                    line = (name, value);
                }
                _ => return None,
            }
            size += line.0.of(decoded).len() + line.1.of(decoded).len() + 32;
            if size > most {
                return None;
            }
            *lines.get_mut(*length)? = line;
            *length += 1;
        }
        Some(())
    }

    /// Its lines, in order.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let decoded = &self.decoded;
        self.lines[..self.length].iter().map(move |(name, value)| (name.of(decoded), value.of(decoded)))
    }
}

/// The index of an entry of the static table, in so many bits of the first byte, and what follows it.
fn entry(bytes: &[u8], bits: u32) -> Option<(u8, &[u8])> {
    let (index, rest) = integer(bytes, bits)?;
    (index < FIELDS.len()).then_some((index as u8, rest))
}

/// An integer whose first byte has so many bits of it (RFC 7541, section 5.1), and what follows it; none where it is longer
/// than what is read here.
fn integer(bytes: &[u8], bits: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let most = (1 << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        // Two more bytes tell of up to 16 KiB.
        for shift in [0, 7] {
            let (byte, after) = rest.split_first()?;
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((value, rest));
            }
        }
        return None;
    }
    Some((value, rest))
}

/// A string (RFC 7541, section 5.2), whose length has so many bits in the first byte, and what follows it.
fn text<'b>(bytes: &'b [u8], bits: u32, decoded: &mut Vec<u8>) -> Option<(Text, &'b [u8])> {
    let coded = bytes.first()? >> bits & 1 == 1;
    let (length, rest) = integer(bytes, bits)?;
    let (text, rest) = rest.split_at_checked(length)?;
    let start = decoded.len();
    if coded {
        huffman::decode(text, decoded)?;
    } else {
        decoded.extend_from_slice(text);
    }
    Some((Text::Read(u32::try_from(start).ok()?, u32::try_from(decoded.len()).ok()?), rest))
}

/// Begins a field section.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends the line of a status of three digits.
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
        _ => return literal(out, static_table::STATUS, status),
    };
    out.push(0b1100_0000);
    put_integer(out, 6, index);
}

/// Appends a line. Its text is not compressed: an answer is one packet either way, and this side's time is what counts.
pub fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match static_table::index(name) {
        Some(index) => literal(out, index, value),
        None => {
            out.push(0b0010_0000);
            put_integer(out, 3, name.len());
            out.extend_from_slice(name);
            put_text(out, value);
        }
    }
}

/// Appends a line whose name is of the static table.
fn literal(out: &mut Vec<u8>, index: usize, value: &[u8]) {
    out.push(0b0101_0000);
    put_integer(out, 4, index);
    put_text(out, value);
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(0);
    put_integer(out, 7, text.len());
    out.extend_from_slice(text);
}

/// Completes the last byte by an integer that has so many bits in it.
fn put_integer(out: &mut Vec<u8>, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    let Some(first) = out.last_mut() else { return };
    if value < most {
        *first |= value as u8;
        return;
    }
    *first |= most as u8;
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a section, where it is plain.
    fn read(bytes: &[u8]) -> Option<Vec<(String, String)>> {
        let mut section = Section::new();
        section.read(bytes, 16 << 10)?;
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        Some(section.lines().map(|(name, value)| (text(name), text(value))).collect())
    }

    fn lines(lines: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        Some(lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn sections_are_read() {
        // RFC 9204, appendix B.1.
        assert_eq!(read(b"\x00\x00\x51\x0b/index.html"), lines(&[(":path", "/index.html")]));
        // By Huffman's code (RFC 7541, appendix C.4.1), and with a name of its own.
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
            // An entry of a dynamic table is required, named, or pointed at.
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
            // An integer longer than any text may be.
            b"\x00\x00\x51\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
            // Padding that is none.
            b"\x00\x00\x51\x81\x00",
        ] {
            assert_eq!(read(section), None, "{section:x?}");
        }
        let many = [&b"\x00\x00"[..], &[0xd1; MAX_LINES + 1]].concat();
        assert_eq!(read(&many), None);
        assert!(read(&many[..many.len() - 1]).is_some());
    }

    #[test]
    fn a_section_has_a_size() {
        // RFC 9114, section 4.2.2: names, values and 32 bytes a line.
        let section = b"\x00\x00\x51\x0b/index.html";
        for (most, read) in [(5 + 11 + 32, true), (5 + 11 + 31, false)] {
            assert_eq!(Section::new().read(section, most).is_some(), read);
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
        // Deterministic noise, half of it behind a prefix that is fine.
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
