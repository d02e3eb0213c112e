//! The head of a request: what is asked, and where the next request begins.
//!
//! What is ambiguous about a request's end is refused, not guessed at: two parties on the way that guess
//! differently are how requests are smuggled (RFC 9112, section 11.2).

use std::mem::MaybeUninit;

/// The longest head, in bytes. Browsers and proxies stay below 8 KiB by default.
pub const MAX_HEAD_BYTES: usize = 8 * 1024;

/// The most fields a head may have; browsers send some 20.
const MAX_FIELDS: usize = 64;

/// What is to be done with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Send it.
    Get,
    /// Say what sending it would say.
    Head,
    /// Say what can be done with it.
    Options,
    /// Nothing that files can do.
    Other,
}

impl Method {
    /// Its name; of those that files cannot do, none in particular.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Other => "other",
        }
    }
}

/// A request, as far as a file server cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'b> {
    /// What to do.
    pub method: Method,
    /// The path as it came, percent signs and all, from its first slash; or `*`.
    pub path: &'b str,
    /// What follows the `?`.
    pub query: Option<&'b str>,
    /// Whether it came by HTTP/1.0, which knows no chunks.
    pub old: bool,
    /// Whether another request may follow on the connection.
    pub keep: bool,
    /// Its fields.
    pub fields: Fields<'b>,
}

/// The fields that change an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'b> {
    /// `Range`.
    pub range: Option<&'b [u8]>,
    /// `If-Range`.
    pub if_range: Option<&'b [u8]>,
    /// `If-Match`.
    pub if_match: Values<'b>,
    /// `If-None-Match`.
    pub if_none_match: Values<'b>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'b [u8]>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'b [u8]>,
    /// `Accept-Encoding`.
    pub accept_encoding: Values<'b>,
    /// `Accept`.
    pub accept: Option<&'b [u8]>,
    /// `Origin`.
    pub origin: Option<&'b [u8]>,
    /// `Access-Control-Request-Method`: this `OPTIONS` is a preflight.
    pub preflight: Option<&'b [u8]>,
    /// `User-Agent`.
    pub agent: Option<&'b [u8]>,
    /// `Referer`.
    pub referrer: Option<&'b [u8]>,
}

/// The values of a field that is a list, which may come on several lines (RFC 9110, section 5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values<'b> {
    first: Option<&'b [u8]>,
    more: Vec<&'b [u8]>,
}

impl<'b> Values<'b> {
    /// Whether the field is absent.
    pub fn is_absent(&self) -> bool {
        self.first.is_none()
    }

    /// The lines.
    pub fn lines(&self) -> impl Iterator<Item = &'b [u8]> + Clone {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    fn push(&mut self, line: &'b [u8]) {
        match self.first {
            None => self.first = Some(line),
            Some(_) => self.more.push(line),
        }
    }
}

impl<'b> FromIterator<&'b [u8]> for Values<'b> {
    fn from_iter<I: IntoIterator<Item = &'b [u8]>>(lines: I) -> Self {
        let mut values = Self::default();
        lines.into_iter().for_each(|line| values.push(line));
        values
    }
}

/// What the bytes received so far are.
// Made and taken apart on the stack, once a request: a box would only cost.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq, Eq)]
pub enum Head<'b> {
    /// Not yet a whole head.
    Partial,
    /// A request, and how many bytes its head takes.
    Whole(Request<'b>, usize),
    /// Not HTTP/1.1 as RFC 9112 has it.
    Bad,
    /// A transfer coding nobody here knows.
    Unknown,
    /// More fields than allowed.
    TooLarge,
}

/// How the body of a request is told to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// There is none.
    None,
    /// It ends somewhere beyond the head.
    Body,
}

/// Reads the head of the request that `bytes` start with.
///
/// A request with a body is one nobody sends for a file: it is answered, and the connection ends there, so
/// that no byte of the body can be taken for a request.
pub fn parse(bytes: &[u8]) -> Head<'_> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let used = match parsed.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Head::Partial,
        Err(httparse::Error::TooManyHeaders) => return Head::TooLarge,
        Err(_) => return Head::Bad,
    };
    // httparse takes a bare LF for a line end, as RFC 9112, section 2.2 allows. Others on the way may not.
    if has_bare_lf(&bytes[..used]) {
        return Head::Bad;
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Head::Bad;
    };
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    };
    let Some((path, query)) = target_parts(target, method) else { return Head::Bad };

    let old = minor == 0;
    let mut request = Request { method, path, query, old, keep: !old, fields: Fields::default() };
    let (mut hosts, mut length, mut coding) = (0, None, false);
    let mut framing = Framing::None;
    for field in &*parsed.headers {
        let fields = &mut request.fields;
        let value = field.value;
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        // By length first: most fields of most requests are none of these.
        match field.name.len() {
            4 if is("host") => hosts += 1,
            5 if is("range") => once(&mut fields.range, value),
            6 if is("accept") => fields.accept = Some(value),
            6 if is("origin") => fields.origin = Some(value),
            7 if is("referer") => fields.referrer = Some(value),
            8 if is("if-range") => once(&mut fields.if_range, value),
            8 if is("if-match") => fields.if_match.push(value),
            10 if is("user-agent") => fields.agent = Some(value),
            10 if is("connection") => request.keep = keeps(value, request.keep),
            13 if is("if-none-match") => fields.if_none_match.push(value),
            14 if is("content-length") => {
                let Some(bytes) = content_length(value) else { return Head::Bad };
                if length.is_some_and(|known| known != bytes) {
                    return Head::Bad;
                }
                length = Some(bytes);
            }
            15 if is("accept-encoding") => fields.accept_encoding.push(value),
            17 if is("transfer-encoding") => {
                // RFC 9112, section 6.1: once, and chunked last; other codings are beyond us.
                if coding || old {
                    return Head::Bad;
                }
                coding = true;
                if !value.eq_ignore_ascii_case(b"chunked") {
                    framing = Framing::Body;
                }
            }
            17 if is("if-modified-since") => once(&mut fields.if_modified_since, value),
            19 if is("if-unmodified-since") => once(&mut fields.if_unmodified_since, value),
            29 if is("access-control-request-method") => fields.preflight = Some(value),
            _ => {}
        }
    }
    // RFC 9112, section 3.2: exactly one Host. HTTP/1.0 may go without.
    if hosts > 1 || (hosts == 0 && !old) {
        return Head::Bad;
    }
    // Both are how requests are smuggled (RFC 9112, section 6.3).
    if coding && length.is_some() {
        return Head::Bad;
    }
    if coding && framing == Framing::Body {
        return Head::Unknown;
    }
    if coding || length.is_some_and(|bytes| bytes > 0) {
        request.keep = false;
    }
    Head::Whole(request, used)
}

/// Whether some LF has no CR before it.
fn has_bare_lf(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// Path and query of a request target (RFC 9112, section 3.2): origin form, absolute form, or `*` for `OPTIONS`.
fn target_parts(target: &str, method: Method) -> Option<(&str, Option<&str>)> {
    if target == "*" && method == Method::Options {
        return Some((target, None));
    }
    let rest = match target.as_bytes().first()? {
        b'/' => target,
        _ => {
            let (scheme, rest) = target.split_once("://")?;
            if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
                return None;
            }
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            match &rest[end..] {
                _ if end == 0 => return None,
                "" => "/",
                // RFC 9110, section 4.2.3: an empty path is `/`.
                path if path.starts_with('?') => return Some(("/", Some(&path[1..]))),
                path => path,
            }
        }
    };
    // A client keeps the fragment to itself (RFC 9110, section 7.1).
    if rest.contains('#') {
        return None;
    }
    Some(match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    })
}

/// A field that may come once. Where it comes twice it says nothing: the empty value is none of its grammar's.
fn once<'b>(field: &mut Option<&'b [u8]>, value: &'b [u8]) {
    *field = Some(if field.is_some() { b"" } else { value });
}

/// Whether the connection stays open, by one `Connection` field (RFC 9112, section 9.3).
fn keeps(value: &[u8], keep: bool) -> bool {
    let mut options = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    if options.clone().any(|option| option.eq_ignore_ascii_case(b"close")) {
        return false;
    }
    keep || options.any(|option| option.eq_ignore_ascii_case(b"keep-alive"))
}

/// Digits and nothing else (RFC 9110, section 8.6).
fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Request<'_> {
        match parse(text.as_bytes()) {
            Head::Whole(request, used) => {
                assert_eq!(used, text.len(), "{text:?}");
                request
            }
            other => panic!("{other:?}: {text:?}"),
        }
    }

    #[test]
    fn a_request_is_read_whole() {
        let request = whole(
            "GET /a/b?x=1 HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\nIf-None-Match: \"a\"\r\n\
             If-None-Match: \"b\"\r\nAccept-Encoding: br\r\n\r\n",
        );
        assert_eq!((request.method, request.path, request.query), (Method::Get, "/a/b", Some("x=1")));
        assert!(request.keep && !request.old);
        assert_eq!(request.fields.range, Some(&b"bytes=0-1"[..]));
        let tags: Vec<_> = request.fields.if_none_match.lines().collect();
        assert_eq!(tags, [b"\"a\"", b"\"b\""]);
    }

    #[test]
    fn targets_are_taken_apart() {
        for (line, path, query) in [
            ("GET / HTTP/1.1", "/", None),
            ("GET /a? HTTP/1.1", "/a", Some("")),
            ("GET http://h/a?b HTTP/1.1", "/a", Some("b")),
            ("GET HTTP://h HTTP/1.1", "/", None),
            ("GET http://h?b HTTP/1.1", "/", Some("b")),
            ("OPTIONS * HTTP/1.1", "*", None),
        ] {
            let text = format!("{line}\r\nHost: h\r\n\r\n");
            let request = whole(&text);
            assert_eq!((request.path, request.query), (path, query), "{line}");
        }
        for line in [
            "GET * HTTP/1.1",
            "GET a HTTP/1.1",
            "GET ftp://h/a HTTP/1.1",
            "GET /a#b HTTP/1.1",
            "GET http:///a HTTP/1.1",
        ] {
            let text = format!("{line}\r\nHost: h\r\n\r\n");
            assert_eq!(parse(text.as_bytes()), Head::Bad, "{line}");
        }
    }

    #[test]
    fn a_connection_stays_open_as_rfc_9112_has_it() {
        for (version, connection, keep) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: foo, CLOSE\r\n", false),
            ("1.1", "Connection: keep-alive\r\n", true),
            ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", true),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
            ("1.1", "Content-Length: 0\r\n", true),
            ("1.1", "Content-Length: 3\r\n", false),
            ("1.1", "Transfer-Encoding: chunked\r\n", false),
        ] {
            let text = format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n");
            assert_eq!(whole(&text).keep, keep, "{version} {connection:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\nHost: h\n\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\r\n\n", Head::Bad),
            ("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Head::Bad),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
                Head::Bad,
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                Head::Bad,
            ),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n", Head::Unknown),
            ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n", Head::Unknown),
            ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", Head::Bad),
            ("GET /\r\n\r\n", Head::Bad),
            ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", Head::Bad),
            ("\x16\x03\x01\x02", Head::Bad),
            ("GET / HTTP/1.1\r\nHost: h\r\n", Head::Partial),
            ("", Head::Partial),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn too_many_fields_are_too_large() {
        let fields: String = (0..=MAX_FIELDS).map(|n| format!("x{n}: y\r\n")).collect();
        assert_eq!(parse(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes()), Head::TooLarge);
    }
}
