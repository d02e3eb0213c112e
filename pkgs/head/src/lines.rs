//! Finds and checks the lines of a head.

use std::mem::MaybeUninit;

use httparse::{Header, Status};

use crate::Error;

/// The type of [`room`].
pub type Room<'b, const FIELDS: usize> = [MaybeUninit<Header<'b>>; FIELDS];

/// Space on the stack for a head of at most `FIELDS` fields.
#[inline]
pub fn room<'b, const FIELDS: usize>() -> Room<'b, FIELDS> {
    [const { MaybeUninit::uninit() }; FIELDS]
}

/// The lines of a head.
#[derive(Debug)]
pub struct Lines<'r, 'b> {
    /// The method, which may have any name.
    pub method: &'b str,
    /// The request target in any form, without a fragment.
    pub target: &'b str,
    /// Whether the request is HTTP/1.0.
    pub old: bool,
    /// The fields, in order. Values have no surrounding space, and no CR, LF or NUL.
    pub fields: &'r [Header<'b>],
    /// The length of the head, in bytes.
    pub length: usize,
}

impl<'r, 'b> Lines<'r, 'b> {
    /// Reads the head at the start of `bytes`, with at most `most` bytes and as many fields as `room` holds. Returns
    /// `None` if the head is incomplete.
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
        // Section 2.2 allows a server to accept a bare LF as a line's end. This one does not.
        if !lines_end_in_crlf(&bytes[..length], parsed.headers) {
            return Err(BARE_LF);
        }
        let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Error::Malformed("the request line is malformed"));
        };
        // RFC 9110, section 7.1: a client does not send the fragment.
        if target.as_bytes().contains(&b'#') {
            return Err(Error::Malformed("the request target has a fragment"));
        }
        Ok(Some(Self { method, target, old: minor == 0, fields: parsed.headers, length }))
    }
}

const BARE_LF: Error = Error::Malformed("a line ends without CR");

/// Whether all lines of a complete head with these fields end in CRLF. Each line starts where another ends, and
/// httparse accepts an LF only there. So only these places are checked, not every byte.
#[inline]
fn lines_end_in_crlf(raw: &[u8], fields: &[Header<'_>]) -> bool {
    let before = |field: &Header<'_>| field.name.as_ptr().addr() - raw.as_ptr().addr();
    // Empty lines may precede the request line.
    let all = matches!(raw, [b'A'..=b'Z' | b'a'..=b'z', ..])
        && raw.ends_with(b"\r\n\r\n")
        && fields.iter().all(|field| raw[..before(field)].ends_with(b"\r\n"));
    debug_assert!(!all || !has_bare_lf(raw), "{}", raw.escape_ascii());
    all || !has_bare_lf(raw)
}

/// Whether any LF has no CR before it. It checks every byte, several at a time, which takes less than half as long as
/// going from one LF to the next.
#[inline]
fn has_bare_lf(raw: &[u8]) -> bool {
    let pairs = raw.iter().zip(raw.iter().skip(1));
    let bare = pairs.fold(0, |bare, (cr, lf)| bare | (u8::from(*lf == b'\n') & u8::from(*cr != b'\r')));
    bare != 0 || raw.first() == Some(&b'\n')
}

/// The error for bytes that httparse refuses, or that contain no complete head within the limits.
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

/// Whether the request line has a version as its third part, even an unsupported one.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r' || *byte == b'\n').next();
    line.and_then(|line| line.splitn(3, |byte| *byte == b' ').nth(2)).is_some_and(|v| v.starts_with(b"HTTP/"))
}
