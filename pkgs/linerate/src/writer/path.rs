//! Checks the paths in requests: they are below the root and have plain names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use service::access_log::misleads;

/// The longest name, in bytes (`NAME_MAX`).
const MOST_NAME: usize = 255;

/// The longest path, in bytes. The kernel accepts four times as many, but such long URLs are of no use.
const MOST_PATH: usize = 1024;

/// How deep directories may be nested.
const MOST_DEEP: usize = 32;

/// The characters that are escaped in paths. They are the same as on the admin listener of files.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A path below the root, with at least one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WritePath(Vec<Vec<u8>>);

/// Why a path may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathError {
    /// It is malformed.
    #[error("a path begins with a slash and has one name at least")]
    Form,
    /// It is too long.
    #[error("a path has {MOST_PATH} bytes at most, in {MOST_DEEP} names of {MOST_NAME} at most")]
    Long,
    /// A name starts with a dot, such as `..`.
    #[error("names do not begin with a dot")]
    Dot,
    /// Bytes below space, or 127.
    #[error("names have no control characters")]
    Control,
    /// It isn't plain text in UTF-8; this applies only to new names.
    #[error(
        "names are text in UTF-8, without characters that turn its direction round, and with no space at either end"
    )]
    Text,
}

impl WritePath {
    /// The path of something that may already exist, escaped as in URLs. A final slash makes no difference.
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

    /// The path of something new. Its name must be text without characters that disguise it.
    ///
    /// # Errors
    /// [`PathError`].
    pub(super) fn new(escaped: &str) -> Result<Self, PathError> {
        let path = Self::existing(escaped)?;
        // The directories above already exist, so only the last name must be text.
        let text = std::str::from_utf8(path.name()).map_err(|_| PathError::Text)?;
        if text.chars().any(char::is_control) {
            return Err(PathError::Control);
        }
        if text.chars().any(misleads) || text.trim() != text { Err(PathError::Text) } else { Ok(path) }
    }

    /// The last name.
    pub(super) fn name(&self) -> &[u8] {
        self.0.last().map_or(&[], Vec::as_slice)
    }

    /// The directory that contains it, in the form that the kernel takes.
    pub(super) fn parent(&self) -> Vec<u8> {
        match self.0.split_last() {
            Some((_, above)) if !above.is_empty() => above.join(&b'/'),
            _ => b".".to_vec(),
        }
    }

    /// How many more names a path below it may have.
    pub(super) fn room(&self) -> usize {
        MOST_DEEP.saturating_sub(self.0.len())
    }

    /// The path, escaped as in URLs.
    pub(super) fn escaped(&self) -> String {
        format!("/{}", percent_encode(&self.0.join(&b'/'), ESCAPED))
    }
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
