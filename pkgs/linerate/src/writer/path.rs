//! What may be named: a path below the root, of plain names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// The longest name, in bytes (`NAME_MAX`).
const MOST_NAME: usize = 255;

/// The longest path, in bytes; the kernel takes four times as many, and URLs of such length are of no use.
const MOST_PATH: usize = 1024;

/// How deep directories may be.
const MOST_DEEP: usize = 32;

/// What is escaped in paths, as files' listener for operators has them.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A path below the root, of one name at least.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WritePath(Vec<Vec<u8>>);

/// Why a path is none that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    /// It is not of the form.
    #[error("a path begins with a slash and has one name at least")]
    Form,
    /// Too much of it.
    #[error("a path has {MOST_PATH} bytes at most, in {MOST_DEEP} names of {MOST_NAME} at most")]
    Long,
    /// A name with a dot in front, `..` among them.
    #[error("names do not begin with a dot")]
    Dot,
    /// Bytes below space, or 127.
    #[error("names have no control characters")]
    Control,
    /// For what is made.
    #[error(
        "names are text in UTF-8, without characters that turn its direction round, and with no space at either end"
    )]
    Text,
}

impl WritePath {
    /// A path of what may be there already, with its bytes escaped as in URLs. A slash at its end says nothing.
    ///
    /// # Errors
    /// [`PathError`].
    pub(super) fn existing(escaped: &str) -> Result<Self, PathError> {
        let bytes: Vec<u8> = percent_decode_str(escaped).collect();
        if bytes.len() > MOST_PATH {
            return Err(PathError::Long);
        }
        let rest = bytes.strip_prefix(b"/").ok_or(PathError::Form)?;
        let rest = rest.strip_suffix(b"/").unwrap_or(rest);
        let names: Vec<Vec<u8>> = rest.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
        if names.len() > MOST_DEEP {
            return Err(PathError::Long);
        }
        for name in &names {
            match name.first() {
                None => return Err(PathError::Form),
                Some(b'.') => return Err(PathError::Dot),
                Some(_) if name.len() > MOST_NAME => return Err(PathError::Long),
                Some(_) if name.iter().any(u8::is_ascii_control) => return Err(PathError::Control),
                Some(_) => {}
            }
        }
        Ok(Self(names))
    }

    /// A path of what is made: its names are text that looks like what it is.
    ///
    /// # Errors
    /// [`PathError`].
    pub(super) fn new(escaped: &str) -> Result<Self, PathError> {
        let path = Self::existing(escaped)?;
        // What is above is there already, and may be called anything.
        let text = std::str::from_utf8(path.name()).map_err(|_| PathError::Text)?;
        if text.chars().any(char::is_control) {
            return Err(PathError::Control);
        }
        if text.chars().any(turns) || text.trim() != text { Err(PathError::Text) } else { Ok(path) }
    }

    /// The last name.
    pub(super) fn name(&self) -> &[u8] {
        self.0.last().map_or(&[], Vec::as_slice)
    }

    /// The directory that it is in, as the kernel has it.
    pub(super) fn parent(&self) -> Vec<u8> {
        match self.0.split_last() {
            Some((_, above)) if !above.is_empty() => above.join(&b'/'),
            _ => b".".to_vec(),
        }
    }

    /// As URLs have it.
    pub(super) fn escaped(&self) -> String {
        format!("/{}", percent_encode(&self.0.join(&b'/'), ESCAPED))
    }
}

/// Characters that make text look like another (Unicode's bidirectional controls), or that are not seen at all.
fn turns(character: char) -> bool {
    matches!(character, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}' | '\u{061C}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_down_by_plain_names() {
        use PathError::{Control, Dot, Form, Long, Text};
        let long = "a".repeat(256);
        let deep = "/a".repeat(33);
        for (escaped, existing, new) in [
            ("/a", Ok("/a"), Ok("/a")),
            ("/a/b.txt", Ok("/a/b.txt"), Ok("/a/b.txt")),
            ("/a/", Ok("/a"), Ok("/a")),
            ("/%3Cscript%3E", Ok("/%3Cscript%3E"), Ok("/%3Cscript%3E")),
            ("/%D7%90", Ok("/%D7%90"), Ok("/%D7%90")),
            ("/%FF", Ok("/%FF"), Err(Text)),
            ("/%E2%80%AEgpj.exe", Ok("/%E2%80%AEgpj%2Eexe".replace("%2E", ".").leak() as &str), Err(Text)),
            ("/%20a", Ok("/%20a"), Err(Text)),
            ("/%C2%85", Ok("/%C2%85"), Err(Control)),
            ("/a/%FF/b", Ok("/a/%FF/b"), Ok("/a/%FF/b")),
            ("/", Err(Form), Err(Form)),
            ("", Err(Form), Err(Form)),
            ("a", Err(Form), Err(Form)),
            ("//a", Err(Form), Err(Form)),
            ("/a//b", Err(Form), Err(Form)),
            ("/..", Err(Dot), Err(Dot)),
            ("/a/../b", Err(Dot), Err(Dot)),
            ("/%2e%2e/b", Err(Dot), Err(Dot)),
            ("/a%2F..%2Fb", Err(Dot), Err(Dot)),
            ("/.linerate-uploads/x", Err(Dot), Err(Dot)),
            ("/a%00b", Err(Control), Err(Control)),
            ("/a%0Ab", Err(Control), Err(Control)),
            (&deep, Err(Long), Err(Long)),
            (&format!("/{long}"), Err(Long), Err(Long)),
        ] {
            let told = |path: Result<WritePath, PathError>| path.map(|path| path.escaped());
            assert_eq!(told(WritePath::existing(escaped)), existing.map(str::to_owned), "{escaped}");
            assert_eq!(told(WritePath::new(escaped)), new.map(str::to_owned), "{escaped}");
        }
        assert!(WritePath::new(&format!("/{}", &long[1..])).is_ok());
        let path = WritePath::new("/a/b/c").expect("a path");
        assert_eq!((path.parent(), path.name()), (b"a/b".to_vec(), &b"c"[..]));
        assert_eq!(WritePath::new("/c").expect("a path").parent(), b".");
    }
}
