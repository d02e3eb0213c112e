//! Field sections of HTTP/2 (RFC 7541): decodes requests, and encodes answers and h2's input in ways that leave the
//! reader's table unchanged.
//!
//! The client's table is kept here. h2's own stays empty, since nothing that it receives is to be kept in it.
//!
//! - [`decoder`][]: decodes.
//! - [`dynamic_table`]: the entries that a client refers to.

pub mod decoder;
mod dynamic_table;
mod static_table;

use crate::field_compression::primitives::{put_literal, put_text};

pub use decoder::Decoder;

/// The start of a line that is not an entry and does not become one (section 6.2.2).
const NOT_KEPT: u8 = 0;

/// Appends the line of a three-digit status.
pub fn status(out: &mut Vec<u8>, status: &[u8; 3]) {
    let index = match status {
        b"200" => 8,
        b"204" => 9,
        b"206" => 10,
        b"304" => 11,
        b"400" => 12,
        b"404" => 13,
        b"500" => 14,
        _ => return put_literal(out, NOT_KEPT, static_table::STATUS, status),
    };
    out.push(0b1000_0000 | index);
}

/// Appends a line that the table does not keep.
pub fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match static_table::index(name) {
        Some(index) => put_literal(out, NOT_KEPT, index, value),
        None => {
            out.push(NOT_KEPT);
            put_text(out, name);
            put_text(out, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::field_compression::Section;
    use crate::field_compression::testing::{self, lines};

    use super::*;

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
            let mut decoder = Decoder::default();
            let read = testing::read(|section| decoder.read(section, &out, 16 << 10).ok().map(drop));
            assert_eq!(read, lines(&expected), "{code}");
            assert!(decoder.read(&mut Section::new(), b"\xbe", 100).is_err(), "nothing is kept");
        }
    }
}
