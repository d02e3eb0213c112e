//! The lines of a head, found and checked.

use std::mem::MaybeUninit;

use httparse::{Header, Status};

use crate::Error;

/// What [`room`] gives.
pub type Room<'b, const FIELDS: usize> = [MaybeUninit<Header<'b>>; FIELDS];

/// Room for a head of at most `FIELDS` fields, on the stack.
#[inline]
pub fn room<'b, const FIELDS: usize>() -> Room<'b, FIELDS> {
    [const { MaybeUninit::uninit() }; FIELDS]
}

/// The lines of a head.
#[derive(Debug)]
pub struct Lines<'r, 'b> {
    /// The method, of any name.
    pub method: &'b str,
    /// The request target, in whatever form; without a fragment.
    pub target: &'b str,
    /// Whether it came by HTTP/1.0.
    pub old: bool,
    /// The fields, in order. Values are without space around them, and have no CR, LF or NUL.
    pub fields: &'r [Header<'b>],
    /// How many bytes the head takes.
    pub length: usize,
}

impl<'r, 'b> Lines<'r, 'b> {
    /// Reads the head that `bytes` start with, of at most `most` bytes and as many fields as there is room for;
    /// none where more is to come.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub fn read(
        bytes: &'b [u8],
        room: &'r mut [MaybeUninit<Header<'b>>],
        most: usize,
    ) -> Result<Option<Self>, Error> {
        let mut parsed = httparse::Request::new(&mut []);
        let length = match parsed.parse_with_uninit_headers(bytes, room) {
            Ok(Status::Complete(length)) if length <= most => length,
            Ok(Status::Partial) if bytes.len() < most && !has_bare_lf(bytes) => return Ok(None),
            Ok(Status::Partial) if bytes.len() < most => return Err(BARE_LF),
            failed => return Err(refused(failed, bytes, most)),
        };
        // Section 2.2: a bare LF may be taken for a line's end; here it is not.
        if !lines_end_in_crlf(&bytes[..length], parsed.headers) {
            return Err(BARE_LF);
        }
        let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Error::Malformed("the request line is malformed"));
        };
        // RFC 9110, section 7.1: a client keeps the fragment to itself.
        if memchr::memchr(b'#', target.as_bytes()).is_some() {
            return Err(Error::Malformed("the request target has a fragment"));
        }
        Ok(Some(Self { method, target, old: minor == 0, fields: parsed.headers, length }))
    }
}

const BARE_LF: Error = Error::Malformed("a line ends without CR");

/// Whether all lines of a whole head end in CRLF, of which these are all of the fields. Each begins behind the end of another
/// line, and there alone httparse takes an LF: so it is looked there, and not at every byte.
#[inline]
fn lines_end_in_crlf(raw: &[u8], fields: &[Header<'_>]) -> bool {
    let before = |field: &Header<'_>| field.name.as_ptr().addr() - raw.as_ptr().addr();
    // Empty lines may come first.
    let all = matches!(raw, [b'A'..=b'Z' | b'a'..=b'z', ..])
        && raw.ends_with(b"\r\n\r\n")
        && fields.iter().all(|field| raw[..before(field)].ends_with(b"\r\n"));
    debug_assert!(!all || !has_bare_lf(raw), "{}", raw.escape_ascii());
    all || !has_bare_lf(raw)
}

/// Whether some LF has no CR before it. Looks at every byte, several at a time, which takes less than half as long
/// as going from one LF to the next.
#[inline]
fn has_bare_lf(raw: &[u8]) -> bool {
    let pairs = raw.iter().zip(raw.iter().skip(1));
    let bare = pairs.fold(0, |bare, (cr, lf)| bare | (u8::from(*lf == b'\n') & u8::from(*cr != b'\r')));
    bare != 0 || raw.first() == Some(&b'\n')
}

/// What is wrong with bytes that httparse does not take, or not as a head that is short enough.
#[cold]
fn refused(failed: httparse::Result<usize>, bytes: &[u8], most: usize) -> Error {
    use httparse::Error as Kind;
    match failed {
        Ok(_) if !bytes[..bytes.len().min(most)].contains(&b'\n') => Error::TargetTooLong,
        Ok(_) | Err(Kind::TooManyHeaders) => Error::TooLarge,
        Err(Kind::Version) if names_a_version(bytes) => Error::Version,
        Err(Kind::HeaderName) => Error::Malformed("a field's name is malformed"),
        Err(Kind::HeaderValue) => Error::Malformed("a field's value is malformed"),
        Err(Kind::NewLine) => Error::Malformed("a CR is followed by something else than LF"),
        Err(Kind::Token) => Error::Malformed("the method is malformed"),
        Err(Kind::Status | Kind::Version) => Error::Malformed("the request line is malformed"),
    }
}

/// Whether the request line has a version where it should, even if not one that is spoken here.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r' || *byte == b'\n').next();
    line.and_then(|line| line.splitn(3, |byte| *byte == b' ').nth(2)).is_some_and(|v| v.starts_with(b"HTTP/"))
}
