//! The path of a request: decodes it, and refuses one that leads upwards.
//!
//! The kernel keeps look-ups below the root (`openat2`, see [`crate::site::root`]). This refuses paths that no honest
//! client sends, so that their senders get an error.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS};

/// Characters that have to be escaped in `Location` (RFC 3986, section 3.3).
pub const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The longest path, in bytes (`PATH_MAX`, which counts a final NUL).
const MAX_BYTES: usize = 4095;

/// Below this, leading dots hide nothing (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It is malformed, or leads upwards.
    Bad,
    /// It cannot be the name of a file here.
    Missing,
}

/// Decodes a path to one below the root: without a leading slash, with a final one for a directory, empty for the root.
///
/// # Errors
/// [`PathError`], for invalid escapes, control characters, `..`, and if `hidden` is false for names that start with a
/// dot, except `.well-known`.
pub fn decode(raw: &str, hidden: bool) -> Result<Cow<'_, [u8]>, PathError> {
    let path = raw.strip_prefix('/').ok_or(PathError::Bad)?.as_bytes();
    // Escapes, empty names and leading dots are rare. Without them, the path is already in its final form.
    let plain = !path.contains(&b'%') && !path.starts_with(b"/") && !path.starts_with(b".");
    if plain && !path.windows(2).any(|pair| pair[0] == b'/' && matches!(pair[1], b'/' | b'.')) {
        return check(path).map(|()| Cow::Borrowed(path));
    }
    let mut names = Vec::with_capacity(path.len());
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let start = names.len();
        unescape(part, &mut names)?;
        match &names[start..] {
            b"" | b"." => names.truncate(start),
            // RFC 3986, section 5.2.4: clients resolve these before they send a request.
            b".." => return Err(PathError::Bad),
            name if name[0] == b'.' && !hidden && !(start == 0 && name == WELL_KNOWN) => {
                return Err(PathError::Missing);
            }
            _ if !last => names.push(b'/'),
            _ => {}
        }
    }
    check(&names)?;
    Ok(Cow::Owned(names))
}

/// The same for a decoded path with its leading slash, such as one from a rule.
///
/// # Errors
/// Those of [`decode`], but escapes are taken literally.
pub fn normal(path: &[u8], hidden: bool) -> Result<Vec<u8>, PathError> {
    let path = path.strip_prefix(b"/").ok_or(PathError::Bad)?;
    let mut names = Vec::with_capacity(path.len());
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            b"" | b"." => {}
            b".." => return Err(PathError::Bad),
            name if name[0] == b'.' && !hidden && !(names.is_empty() && name == WELL_KNOWN) => {
                return Err(PathError::Missing);
            }
            name => {
                names.extend_from_slice(name);
                names.extend_from_slice(if last { b"" } else { b"/" });
            }
        }
    }
    check(&names).map(|()| names)
}

fn check(path: &[u8]) -> Result<(), PathError> {
    if path.iter().any(u8::is_ascii_control) {
        return Err(PathError::Bad);
    }
    if path.len() > MAX_BYTES { Err(PathError::Missing) } else { Ok(()) }
}

/// Appends a part with its escapes decoded (RFC 3986, section 2.1).
fn unescape(part: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut bytes = part.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|digit| char::from(*digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(PathError::Bad) };
        match (high << 4 | low) as u8 {
            // An escaped slash is not a separator (RFC 3986, section 2.2), and no name contains one.
            b'/' => return Err(PathError::Missing),
            byte => out.push(byte),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once_and_lead_down() {
        use PathError::{Bad, Missing};
        let cases: [(&str, Result<&str, PathError>); 34] = [
            ("/", Ok("")),
            ("/a", Ok("a")),
            ("/a/", Ok("a/")),
            ("/a/b.txt", Ok("a/b.txt")),
            ("//a///b//", Ok("a/b/")),
            ("/a/./b/.", Ok("a/b/")),
            ("/a%20b", Ok("a b")),
            ("/%61", Ok("a")),
            ("/%C3%A9", Ok("é")),
            ("/é", Ok("é")),
            ("/a%2", Err(Bad)),
            ("/a%", Err(Bad)),
            ("/a%zz", Err(Bad)),
            ("/a%+1", Err(Bad)),
            ("/a%00", Err(Bad)),
            ("/a%0d%0ab", Err(Bad)),
            ("/a%7f", Err(Bad)),
            ("/..", Err(Bad)),
            ("/../etc/passwd", Err(Bad)),
            ("/a/../b", Err(Bad)),
            ("/a/..", Err(Bad)),
            ("/%2e%2e/a", Err(Bad)),
            ("/%2E./a", Err(Bad)),
            ("/a/.%2e/b", Err(Bad)),
            ("/%252e%252e/a", Ok("%2e%2e/a")),
            ("/..%2fa", Err(Missing)),
            ("/a%2fb", Err(Missing)),
            ("/..\\a", Err(Missing)),
            ("/.git/config", Err(Missing)),
            ("/a/.b", Err(Missing)),
            ("/%2egit", Err(Missing)),
            ("/.well-known/acme", Ok(".well-known/acme")),
            ("/a/.well-known", Err(Missing)),
            ("a", Err(Bad)),
        ];
        for (raw, expected) in cases {
            let decoded = decode(raw, false);
            let decoded = decoded.as_deref().map_err(|refused| *refused);
            assert_eq!(decoded, expected.map(str::as_bytes), "{raw}");
        }
    }

    #[test]
    fn what_a_rule_makes_leads_down_too() {
        use PathError::{Bad, Missing};
        for (made, expected) in [
            ("/", Ok("")),
            ("/a/b", Ok("a/b")),
            ("//a//b/", Ok("a/b/")),
            ("/a/./b/.", Ok("a/b/")),
            ("/%2e%2e/a", Ok("%2e%2e/a")),
            ("/.well-known/acme", Ok(".well-known/acme")),
            ("/../a", Err(Bad)),
            ("/a/..", Err(Bad)),
            ("/a\0b", Err(Bad)),
            ("a", Err(Bad)),
            ("/.git/config", Err(Missing)),
            ("/a/.b", Err(Missing)),
        ] {
            let normal = normal(made.as_bytes(), false);
            assert_eq!(normal.as_deref().map_err(|refused| *refused), expected.map(str::as_bytes), "{made}");
        }
        assert_eq!(normal(b"/.git/config", true).as_deref(), Ok(&b".git/config"[..]));
    }

    #[test]
    fn hidden_names_are_found_where_they_may_be() {
        assert_eq!(decode("/.git/config", true).as_deref(), Ok(&b".git/config"[..]));
        assert_eq!(decode("/...", true).as_deref(), Ok(&b"..."[..]));
        assert_eq!(decode("/a/../b", true), Err(PathError::Bad));
    }

    #[test]
    fn a_path_is_no_longer_than_the_kernel_takes() {
        let path = format!("/{}", "a/".repeat(MAX_BYTES));
        assert_eq!(decode(&path, false), Err(PathError::Missing));
    }
}
