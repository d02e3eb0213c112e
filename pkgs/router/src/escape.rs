//! Percent-encoding according to RFC 3986.

use std::borrow::Cow;

/// The error of a parameter whose escapes are not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the escapes of a parameter are not UTF-8")]
pub struct NotUtf8;

/// The text that `raw` encodes. It is borrowed if there is nothing to decode. A `%` without two hexadecimal digits
/// stands for itself.
pub(crate) fn decode(raw: &str) -> Result<Cow<'_, str>, NotUtf8> {
    let Some(first) = raw.bytes().position(|byte| byte == b'%') else { return Ok(Cow::Borrowed(raw)) };
    let bytes = raw.as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    text.extend_from_slice(&bytes[..first]);
    let mut at = first;
    while at < bytes.len() {
        match escaped(bytes, at) {
            Some(byte) => {
                text.push(byte);
                at += 3;
            }
            None => {
                text.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(text).map(Cow::Owned).map_err(|_| NotUtf8)
}

/// The byte of the escape at `at`, if there is one.
pub(crate) fn escaped(bytes: &[u8], at: usize) -> Option<u8> {
    let [b'%', high, low] = bytes.get(at..at + 3)? else { return None };
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    Some(digit(*high)? << 4 | digit(*low)?)
}

/// Appends the escape of `byte` with upper-case digits (RFC 3986, 6.2.2.1).
pub(crate) fn push_escape(text: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Whether an escape of `byte` and the byte itself are equivalent. This holds for unreserved characters (RFC 3986,
/// 2.3), and for braces, which should be escaped but often are not.
pub(crate) fn same_escaped(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'{' | b'}')
}

/// Decodes the escapes of unreserved characters in `path`, and writes other escapes with upper-case digits (RFC 3986,
/// 6.2.2). `%2F` therefore never becomes a separator. Returns `None` if `path` is already normal.
pub(crate) fn normalize(path: &[u8]) -> Option<Vec<u8>> {
    let is_normal = |at: usize| match escaped(path, at) {
        Some(byte) => !same_escaped(byte) && !path[at + 1..at + 3].iter().any(u8::is_ascii_lowercase),
        None => true,
    };
    let first = (0..path.len()).find(|&at| path[at] == b'%' && !is_normal(at))?;
    let mut text = Vec::with_capacity(path.len());
    text.extend_from_slice(&path[..first]);
    let mut at = first;
    while at < path.len() {
        match escaped(path, at) {
            Some(byte) if same_escaped(byte) => text.push(byte),
            Some(byte) => push_escape(&mut text, byte),
            None => {
                text.push(path[at]);
                at += 1;
                continue;
            }
        }
        at += 3;
    }
    Some(text)
}

/// The offset in `path` of byte `offset` in `normalize(path)`.
pub(crate) fn denormalized(path: &[u8], offset: usize) -> usize {
    let (mut at, mut normal) = (0, 0);
    while normal < offset {
        let (taken, given) = match escaped(path, at) {
            Some(byte) if same_escaped(byte) => (3, 1),
            Some(_) => (3, 3),
            None => (1, 1),
        };
        at += taken;
        normal += given;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_once() {
        for (raw, text) in [
            ("plain", Ok("plain")),
            ("a%20b", Ok("a b")),
            ("%2525", Ok("%25")),
            ("caf%c3%A9", Ok("café")),
            ("100%", Ok("100%")),
            ("%zz%4", Ok("%zz%4")),
            ("a+b", Ok("a+b")),
            ("%ff", Err(NotUtf8)),
        ] {
            assert_eq!(decode(raw).as_deref(), text.as_deref(), "{raw}");
        }
        assert!(matches!(decode("plain"), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn only_unreserved_escapes_are_decoded() {
        for (path, normal) in [
            ("/plain", None),
            ("/%41%7E", Some("/A~")),
            ("/a%2fb", Some("/a%2Fb")),
            ("/a%2Fb", None),
            ("/100%", None),
            ("/%2541", None),
            ("/%7bx}", Some("/{x}")),
        ] {
            assert_eq!(normalize(path.as_bytes()), normal.map(|text| text.as_bytes().to_vec()), "{path}");
        }
    }

    #[test]
    fn offsets_lead_back_to_the_path_as_it_came() {
        let path = b"/%41b/%2f%42";
        let normal = normalize(path).expect("not normal yet");
        assert_eq!(normal, b"/Ab/%2FB");
        for (offset, came_from) in [(0, 0), (1, 1), (2, 4), (3, 5), (4, 6), (7, 9), (8, 12)] {
            assert_eq!(denormalized(path, offset), came_from, "{offset}");
        }
    }
}
