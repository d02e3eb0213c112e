//! The head of a request, as far as a file server needs it. [`request_head`] decides where it ends, and what is
//! refused.

use http::HeaderMap;
use request_head::{Framing, Header, Lines, Message, room};

pub use request_head::Error;

/// The longest head, in bytes. Browsers and proxies stay below 8 KiB by default.
pub const MAX_HEAD_BYTES: usize = 8 * 1024;

/// The most fields a head may have; browsers send some 20.
const MAX_FIELDS: usize = 64;

/// What to do with the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Send it.
    #[default]
    Get,
    /// Send only the head.
    Head,
    /// Say which methods are allowed.
    Options,
    /// Anything else.
    Other,
}

/// A request, as far as a file server needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<'b> {
    /// What to do.
    pub method: Method,
    /// The method as received.
    pub name: &'b str,
    /// The path as received, with escapes, from its first slash; or `*`.
    pub path: &'b str,
    /// What follows the `?`.
    pub query: Option<&'b str>,
    /// Whether it is HTTP/1.0, which has no chunks.
    pub old: bool,
    /// Whether another request may follow on the connection.
    pub keep: bool,
    /// Its fields.
    pub fields: Fields<'b>,
    /// All fields, for the few answers that need others.
    pub others: RawFields<'b>,
}

/// The fields of a request as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RawFields<'b> {
    /// There are none.
    #[default]
    None,
    /// The lines of a well-formed head.
    Head(&'b [u8]),
    /// The lines after the first one.
    Lines(&'b [Header<'b>]),
    /// Parsed.
    Map {
        /// The target's host and port, if it has them.
        authority: Option<&'b str>,
        /// The fields.
        fields: &'b HeaderMap,
    },
}

impl<'b> Request<'b> {
    /// The requested host, as received. The target's own takes precedence over `Host` (RFC 9112, section 3.2.2).
    pub fn host(&self) -> Option<&'b str> {
        let authority = match self.others {
            RawFields::None | RawFields::Lines(_) => None,
            RawFields::Map { authority, .. } => authority,
            RawFields::Head(head) => {
                let target =
                    head.split(|byte| *byte == b' ').nth(1).and_then(|it| std::str::from_utf8(it).ok());
                let rest =
                    target.filter(|target| !target.starts_with('/')).and_then(|it| it.split_once("://"));
                rest.map(|(_, rest)| &rest[..rest.find(['/', '?']).unwrap_or(rest.len())])
            }
        };
        authority.or_else(|| std::str::from_utf8(self.field("host")?).ok())
    }

    /// A field that may occur once, by its lower-case name. If it occurs twice, it is the empty value, which is invalid
    /// in its grammar.
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        let mut found = None;
        match self.others {
            RawFields::None => {}
            RawFields::Head(head) => {
                for line in head.split(|byte| *byte == b'\n').skip(1) {
                    let Some(end) = memchr::memchr(b':', line) else { continue };
                    if line[..end].eq_ignore_ascii_case(name.as_bytes()) {
                        once(&mut found, line[end + 1..].trim_ascii());
                    }
                }
            }
            RawFields::Lines(lines) => {
                let named = lines.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
                named.for_each(|line| once(&mut found, line.value));
            }
            RawFields::Map { fields, .. } => {
                fields.get_all(name).iter().for_each(|value| once(&mut found, value.as_bytes()))
            }
        }
        found
    }
}

/// The fields that affect an answer.
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
    /// `Referer`.
    pub referrer: Option<&'b [u8]>,
}

/// The values of a list field, which may have several lines (RFC 9110, section 5.3).
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

/// Reads the head at the start of `bytes`. Returns it with its length, or none if it is incomplete.
///
/// Nobody sends a body with a request for a file. Such a request is answered, and the connection then ends, so that no
/// byte of the body can be taken for a request.
///
/// # Errors
/// Why the request is refused, and the connection ends.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request<'_>, usize)>, Error> {
    let mut room = room::<MAX_FIELDS>();
    let Some(lines) = Lines::read(bytes, &mut room, MAX_HEAD_BYTES)? else { return Ok(None) };
    Ok(Some((of_lines(&lines, RawFields::Head(&bytes[..lines.length]))?, lines.length)))
}

/// The request with these lines. Its target must be a path if `others` don't include it.
///
/// # Errors
/// Why the request is refused.
pub fn of_lines<'b>(lines: &Lines<'_, 'b>, others: RawFields<'b>) -> Result<Request<'b>, Error> {
    let method = match lines.method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    };
    let target = target_parts(lines.target, method);
    let (path, query) = target.ok_or(Error::Malformed("the request target is malformed"))?;

    let mut fields = Fields::default();
    let mut message = Message::new(lines.old);
    for field in lines.fields {
        let value = field.value;
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if message.takes(field.name, value)? {
            continue;
        }
        // Compares the length first, since most fields of most requests are none of these.
        match field.name.len() {
            5 if is("range") => once(&mut fields.range, value),
            6 if is("accept") => fields.accept = Some(value),
            6 if is("origin") => fields.origin = Some(value),
            7 if is("referer") => fields.referrer = Some(value),
            8 if is("if-range") => once(&mut fields.if_range, value),
            8 if is("if-match") => fields.if_match.push(value),
            13 if is("if-none-match") => fields.if_none_match.push(value),
            15 if is("accept-encoding") => fields.accept_encoding.push(value),
            17 if is("if-modified-since") => once(&mut fields.if_modified_since, value),
            19 if is("if-unmodified-since") => once(&mut fields.if_unmodified_since, value),
            29 if is("access-control-request-method") => fields.preflight = Some(value),
            _ => {}
        }
    }
    let message = message.settle()?;
    let keep = message.keep_alive && message.framing == Framing::Length(0);
    Ok(Request { method, name: lines.method, path, query, old: lines.old, keep, fields, others })
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
    Some(match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    })
}

/// A field that may occur once. If it occurs twice, it becomes the empty value, which is invalid in its grammar.
fn once<'b>(field: &mut Option<&'b [u8]>, value: &'b [u8]) {
    *field = Some(if field.is_some() { b"" } else { value });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Request<'_> {
        match parse(text.as_bytes()) {
            Ok(Some((request, used))) => {
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
            assert!(matches!(parse(text.as_bytes()), Err(Error::Malformed(_))), "{line}");
        }
    }

    #[test]
    fn other_fields_are_found_when_they_are_asked_for() {
        let text = "GET /authorization:%20a HTTP/1.1\r\nHost: h\r\nX-Authorization: b\r\naUTHORIZATION:  c d \r\n\
                    Twice: 1\r\nTwice: 1\r\n\r\nAfter: x\r\n\r\n";
        let request = parse(text.as_bytes()).expect("a head").expect("whole").0;
        let map = [("authorization", "c d"), ("twice", "1"), ("twice", "1")];
        let map = map.map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        let mut all = HeaderMap::new();
        for (name, value) in map {
            let name: http::HeaderName = name;
            all.append(name, value);
        }
        let map = all;
        let parsed =
            Request { others: RawFields::Map { authority: None, fields: &map }, ..Request::default() };
        for (name, value) in
            [("authorization", Some(&b"c d"[..])), ("twice", Some(&b""[..])), ("none", None), ("after", None)]
        {
            assert_eq!((request.field(name), parsed.field(name)), (value, value), "{name}");
        }
    }

    #[test]
    fn the_host_of_the_target_goes_before_the_field() {
        for (line, host) in [
            ("GET /a://b/ HTTP/1.1", "h:1"),
            ("GET http://other:2/a HTTP/1.1", "other:2"),
            ("GET HTTP://other HTTP/1.1", "other"),
            ("GET http://other?a/b HTTP/1.1", "other"),
            ("OPTIONS * HTTP/1.1", "h:1"),
        ] {
            let text = format!("{line}\r\nHost: h:1\r\n\r\n");
            assert_eq!(whole(&text).host(), Some(host), "{line}");
        }
    }

    #[test]
    fn a_connection_ends_with_a_request_that_has_a_body() {
        for (fields, keep) in [
            ("", true),
            ("Connection: close\r\n", false),
            ("Content-Length: 0\r\n", true),
            ("Content-Length: 3\r\n", false),
            ("Transfer-Encoding: chunked\r\n", false),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            assert_eq!(whole(&text).keep, keep, "{fields:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\nHost: h\n\n",
            "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(matches!(parse(text.as_bytes()), Err(Error::Malformed(_))), "{text:?}");
        }
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: h\r\n"), Ok(None));
    }

    #[test]
    fn too_many_fields_are_too_large() {
        let fields: String = (0..=MAX_FIELDS).map(|n| format!("x{n}: y\r\n")).collect();
        let text = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(parse(text.as_bytes()), Err(Error::TooLarge));
    }
}
