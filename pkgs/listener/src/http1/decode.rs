//! A request's head as services see it. [`request_head`] strictly reads what it means for the connection.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, Version};
use request_head::{Lines, Message};

use crate::config::Limits;
use crate::response::Refusal;

use super::buffer_pool;

pub use request_head::Framing;

/// The most fields in a head, whatever the limit says, since the space for them is on the stack.
pub const MAX_FIELDS: usize = 256;

/// A request's head.
#[derive(Debug)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// HTTP/1.1 or 1.0.
    pub version: Version,
    /// The fields.
    pub fields: HeaderMap,
    /// The length of the body.
    pub framing: Framing,
    /// Whether the client leaves the connection open.
    pub keep_alive: bool,
    /// Whether the client waits for status 100 before it sends the body.
    pub expects_continue: bool,
}

/// Reads the head at the start of `bytes`. Returns it with its length, or none if it is incomplete.
///
/// # Errors
/// The refusal for the request.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Option<(Head, usize)>, Refusal> {
    let mut room: Room<'_> = request_head::room();
    let Some(lines) = lines(bytes, &mut room, limits)? else { return Ok(None) };
    let length = lines.length;
    Head::of(bytes, &lines, limits).map(|head| Some((head, length)))
}

/// Space for the fields of a head.
pub type Room<'b> = request_head::Room<'b, MAX_FIELDS>;

/// Reads the lines of the head at the start of `bytes`. None if it is incomplete.
///
/// # Errors
/// The refusal for the request.
#[inline]
pub fn lines<'r, 'b>(
    bytes: &'b [u8],
    room: &'r mut Room<'b>,
    limits: &Limits,
) -> Result<Option<Lines<'r, 'b>>, request_head::Error> {
    Lines::read(bytes, &mut room[..limits.fields.min(MAX_FIELDS)], limits.head_bytes)
}

impl Head {
    /// The head for services, from its `lines` at the start of `bytes`.
    ///
    /// # Errors
    /// The refusal for the request.
    pub fn of(bytes: &[u8], lines: &Lines<'_, '_>, limits: &Limits) -> Result<Self, Refusal> {
        let raw = &bytes[..lines.length];
        let shared = buffer_pool::share(raw);
        let piece = |part: &[u8]| slice(&shared, raw, part);
        let method = Method::from_bytes(lines.method.as_bytes());
        let method = method.map_err(|_| Refusal::Malformed("no such method"))?;
        let uri = target(&method, piece(lines.target.as_bytes()))?;

        let mut fields = buffer_pool::take_fields();
        fields.reserve(lines.fields.len());
        let mut message = Message::new(lines.old);
        for field in lines.fields {
            message.takes(field.name, field.value)?;
            let name = HeaderName::from_bytes(field.name.as_bytes())
                .map_err(|_| Refusal::Malformed("a field's name is too long"))?;
            fields.append(name, value(piece(field.value)));
        }
        let Message { framing, keep_alive, expects_continue, .. } = message.settle()?;
        if matches!(framing, Framing::Length(length) if length > limits.body_bytes) {
            return Err(Refusal::BodyTooLarge);
        }
        if let Some(authority) = uri.authority() {
            // Section 3.2.2: the target's authority counts, and Host is ignored.
            let authority = HeaderValue::from_str(authority.as_str());
            let authority = authority.map_err(|_| Refusal::Malformed("the target names no host"))?;
            fields.insert(header::HOST, authority);
        }
        let version = if lines.old { Version::HTTP_10 } else { Version::HTTP_11 };
        Ok(Self { method, uri, version, fields, framing, keep_alive, expects_continue })
    }
}

/// Parses the target in any of its forms (section 3.2).
fn target(method: &Method, bytes: Bytes) -> Result<Uri, Refusal> {
    const MALFORMED: Refusal = Refusal::Malformed("the request target is malformed");
    if *method == Method::CONNECT {
        return Err(Refusal::Method);
    }
    let origin = bytes.first() == Some(&b'/');
    let asterisk = *bytes == *b"*" && *method == Method::OPTIONS;
    let uri = Uri::from_maybe_shared(bytes).map_err(|_| MALFORMED)?;
    let absolute = matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some();
    if origin || asterisk || absolute { Ok(uri) } else { Err(MALFORMED) }
}

/// The slice of `shared` at the position of `part` in `raw`, which has the same bytes.
fn slice(shared: &Bytes, raw: &[u8], part: &[u8]) -> Bytes {
    if part.is_empty() {
        return Bytes::new();
    }
    let start = part.as_ptr().addr() - raw.as_ptr().addr();
    shared.slice(start..start + part.len())
}

#[allow(unsafe_code)]
fn value(bytes: Bytes) -> HeaderValue {
    if cfg!(debug_assertions) {
        return HeaderValue::from_maybe_shared(bytes).expect("httparse has looked at every byte");
    }
    // SAFETY: httparse accepts in a value only HTAB, SP to ~ and 0x80 to 0xff, as `HeaderValue` requires. Checking each
    // byte again would take a tenth of the time for a browser's head.
    unsafe { HeaderValue::from_maybe_shared_unchecked(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &str) -> Result<Option<(Head, usize)>, Refusal> {
        parse(bytes.as_bytes(), &Limits::default())
    }

    #[test]
    fn a_head_is_read_whole() {
        let bytes = "POST /a/b?c=d HTTP/1.1\r\nHost: example.org:80\r\nContent-Length: 3\r\nX-A: b\r\nx-a: \r\n\r\nabc";
        let (head, used) = head(bytes).expect("a request").expect("a whole head");
        assert_eq!(&bytes[used..], "abc");
        assert_eq!((head.method, head.uri.to_string()), (Method::POST, "/a/b?c=d".into()));
        assert_eq!((head.framing, head.keep_alive, head.expects_continue), (Framing::Length(3), true, false));
        assert_eq!(head.fields["host"], "example.org:80");
        let values: Vec<_> = head.fields.get_all("X-A").iter().collect();
        assert_eq!(values, ["b", ""]);
    }

    #[test]
    fn part_of_a_head_is_no_head() {
        let bytes = "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
        for end in 0..bytes.len() {
            assert!(matches!(head(&bytes[..end]), Ok(None)), "{end}");
        }
        assert!(matches!(head(bytes), Ok(Some(_))));
    }

    /// Cases that `request_head` refuses, whose own tests cover all their forms, and targets that are not paths.
    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for whole in [
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET a HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
        ] {
            assert!(matches!(head(whole), Err(Refusal::Malformed(_))), "{whole:?}");
        }
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let limits = Limits { head_bytes: 100, fields: 2, body_bytes: 10, ..Limits::default() };
        let long = "x".repeat(100);
        for (bytes, refusal) in [
            (format!("GET /{long}"), Refusal::TargetTooLong),
            (format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"), Refusal::TargetTooLong),
            (format!("GET / HTTP/1.1\r\nHost: h\r\nA: {long}"), Refusal::HeadTooLarge),
            (format!("GET / HTTP/1.1\r\nHost: h\r\nA: {long}\r\n\r\n"), Refusal::HeadTooLarge),
            ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\nC: d\r\n\r\n".into(), Refusal::HeadTooLarge),
            ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n".into(), Refusal::BodyTooLarge),
            ("GET / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n".into(), Refusal::Expectation),
            ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n".into(), Refusal::Coding),
            ("CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n".into(), Refusal::Method),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), Refusal::Version),
        ] {
            assert_eq!(parse(bytes.as_bytes(), &limits).err(), Some(refusal), "{bytes:?}");
        }
    }

    #[test]
    fn the_host_of_an_absolute_target_counts() {
        let (head, _) = head("GET http://a.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n")
            .expect("a request")
            .expect("a whole head");
        assert_eq!((head.uri.path(), head.fields["host"].as_bytes()), ("/x", &b"a.example"[..]));
        assert_eq!(head.fields.len(), 1);
    }

    #[test]
    fn a_body_is_waited_for_only_where_there_is_one() {
        for (fields, expects) in
            [("Content-Length: 1\r\n", true), ("Content-Length: 0\r\n", false), ("", false)]
        {
            let bytes = format!("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n{fields}\r\n");
            let (head, _) = head(&bytes).expect("a request").expect("a whole head");
            assert_eq!(head.expects_continue, expects, "{fields}");
        }
    }
}
