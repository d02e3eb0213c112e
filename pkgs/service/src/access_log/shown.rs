//! Clients' bytes as text that cannot affect a reader's terminal.

use std::fmt;

use serde::{Serialize, Serializer};

/// The most bytes of a logged field. Longer fields are cut.
pub(super) const FIELD_BYTES: usize = 1024;

/// A client's bytes as text that cannot affect a reader's terminal. Invalid UTF-8, control characters and marks that
/// change the writing direction become `\xNN`, and a backslash becomes two. At most 1,024 bytes are shown, followed by
/// `...` if there are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'b>(pub &'b [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escape = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
        };
        let bytes = &self.0[..self.0.len().min(FIELD_BYTES)];
        for chunk in bytes.utf8_chunks() {
            for shown in chunk.valid().split_inclusive(acts) {
                let mut all = shown.chars();
                match all.next_back().filter(|last| acts(*last)) {
                    None => f.write_str(shown)?,
                    Some(last) => {
                        f.write_str(all.as_str())?;
                        match last {
                            '\\' => f.write_str("\\\\")?,
                            last => escape(f, last.encode_utf8(&mut [0; 4]).as_bytes())?,
                        }
                    }
                }
            }
            escape(f, chunk.invalid())?;
        }
        if bytes.len() < self.0.len() { f.write_str("...") } else { Ok(()) }
    }
}

/// Whether a character affects a terminal, a reader or our own escapes.
fn acts(one: char) -> bool {
    one.is_control() || one == '\\' || misleads(one)
}

/// Whether a character is invisible, or makes a text look like another one: direction marks and overrides, line and
/// paragraph separators (Unicode TR 9 and 36), and a byte order mark.
pub fn misleads(one: char) -> bool {
    matches!(one, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
        match std::str::from_utf8(self.0) {
            Ok(text) if self.0.len() <= FIELD_BYTES && self.0.iter().all(plain) => {
                serializer.serialize_str(text)
            }
            _ => serializer.collect_str(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_shown_so_that_they_do_nothing() {
        for (bytes, shown) in [
            (&b"plain \"text\""[..], "plain \"text\""),
            ("h\u{e9} \u{1f600}".as_bytes(), "h\u{e9} \u{1f600}"),
            (b"a\\x41", "a\\\\x41"),
            (b"\x1b[2J\r\n\0\x7f", "\\x1b[2J\\x0d\\x0a\\x00\\x7f"),
            (b"\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82"),
            ("\u{9b}31m".as_bytes(), "\\xc2\\x9b31m"),
            ("a\u{202e}b\u{2028}".as_bytes(), "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8"),
            (b"", ""),
        ] {
            assert_eq!(Shown(bytes).to_string(), shown);
            let json = serde_json::to_string(&Shown(bytes)).expect("JSON");
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), shown);
        }
        let long = vec![b'x'; 2 * FIELD_BYTES];
        assert_eq!(Shown(&long).to_string().len(), FIELD_BYTES + 3);
    }
}
