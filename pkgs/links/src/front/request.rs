//! Reading a request's head: a plain visit at once, anything else once more and in full.

pub use request_head::Error;
use request_head::{Framing, Lines, Message, room};

use super::{MAX_FIELDS, MAX_HEAD_BYTES};

/// A plain visit: `GET` or `HEAD` by HTTP/1.1 without a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'b> {
    /// Whether it is a `HEAD`.
    pub head: bool,
    /// The path without its leading slash.
    pub code: &'b str,
    /// What follows the `?`.
    pub query: Option<&'b str>,
    /// The `Referer` field.
    pub referrer: Option<&'b [u8]>,
    /// The `User-Agent` field.
    pub agent: Option<&'b [u8]>,
    /// Whether a person's browser asks: `Accept` names `text/html`.
    pub html: bool,
    /// Whether the client wants the connection closed.
    pub close: bool,
}

/// What the bytes received so far are.
#[derive(Debug, PartialEq, Eq)]
pub enum Head<'b> {
    /// Not yet a whole head.
    Partial,
    /// A plain visit, and how many bytes its head takes.
    Visit(Request<'b>, usize),
    /// A request that is not plain: see [`General::read`].
    Other,
    /// No request that could be answered.
    Refused(Error),
}

/// A request of any form, for the slow path.
#[derive(Debug, PartialEq, Eq)]
pub struct General<'b> {
    /// What is asked for. Of the visit's fields all hold but `code`, which may be percent-encoded here.
    pub visit: Request<'b>,
    /// The code, with percent-encoding undone (RFC 3986, section 2.4).
    pub code: String,
    /// Whether it is followed, unlocked, or neither.
    pub method: Method,
    /// How long its body is.
    pub framing: Framing,
    /// Whether the client waits for 100 before it sends the body.
    pub expects_continue: bool,
    /// How many bytes its head takes.
    pub length: usize,
}

/// What a method is to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET` and `HEAD`.
    Follow,
    /// `POST`: brings a password.
    Unlock,
    /// Any other.
    Other,
}

/// Reads the head of the request that `bytes` start with.
#[inline]
pub fn parse(bytes: &[u8]) -> Head<'_> {
    read(bytes).unwrap_or_else(Head::Refused)
}

#[inline]
fn read(bytes: &[u8]) -> Result<Head<'_>, Error> {
    let mut room = room::<MAX_FIELDS>();
    let Some(lines) = Lines::read(bytes, &mut room, MAX_HEAD_BYTES)? else { return Ok(Head::Partial) };
    Ok(plain(&lines)?.map_or(Head::Other, |request| Head::Visit(request, lines.length)))
}

/// The plain visit that `lines` ask for; none where they ask for anything else.
///
/// # Errors
/// [`Error`], as [`parse`] has it.
#[inline]
pub fn plain<'b>(lines: &Lines<'_, 'b>) -> Result<Option<Request<'b>>, Error> {
    let head = match lines.method {
        "GET" => false,
        "HEAD" => true,
        _ => return Ok(None),
    };
    let Some(path) = lines.target.strip_prefix('/') else { return Ok(None) };
    if lines.old || path.contains('%') {
        return Ok(None);
    }
    let (code, query) = match path.split_once('?') {
        Some((code, query)) => (code, Some(query)),
        None => (path, None),
    };
    let mut request = Request { head, code, query, referrer: None, agent: None, html: false, close: false };
    let message = fields(lines, &mut request)?;
    // A body, even if for no purpose that is known of a visit.
    Ok((message.framing == Framing::Length(0)).then_some(request))
}

/// Reads the fields into `request`, and gives what they say of the message.
#[inline]
fn fields<'b>(lines: &Lines<'_, 'b>, request: &mut Request<'b>) -> Result<Message, Error> {
    let mut message = Message::new(lines.old);
    for field in lines.fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if message.takes(field.name, field.value)? {
            continue;
        }
        match field.name.len() {
            6 if is("accept") => request.html = names_html(field.value),
            7 if is("referer") => request.referrer = Some(field.value),
            10 if is("user-agent") => request.agent = Some(field.value),
            _ => {}
        }
    }
    let message = message.settle()?;
    request.close = !message.keep_alive;
    Ok(message)
}

/// Whether an `Accept` is a person's browser's.
#[inline]
pub fn names_html(accept: &[u8]) -> bool {
    accept.windows(9).any(|part| part == b"text/html")
}

impl<'b> General<'b> {
    /// Reads the head that `bytes` start with; none where it is not whole.
    ///
    /// # Errors
    /// [`Error`], as [`parse`] has it.
    pub fn read(bytes: &'b [u8]) -> Result<Option<Self>, Error> {
        let mut room = room::<MAX_FIELDS>();
        let Some(lines) = Lines::read(bytes, &mut room, MAX_HEAD_BYTES)? else { return Ok(None) };
        let method = match lines.method {
            "GET" | "HEAD" => Method::Follow,
            "POST" => Method::Unlock,
            _ => Method::Other,
        };
        let path = match path(lines.target) {
            Some(path) => path,
            // `OPTIONS *` and `CONNECT host:port` are refused for their methods.
            None if method == Method::Other => "",
            None => return Err(Error::Malformed("the request target is no path and no URL")),
        };
        let (code, query) = path.split_once('?').map_or((path, None), |(code, query)| (code, Some(query)));
        let head = lines.method == "HEAD";
        let mut visit = Request { head, code, query, referrer: None, agent: None, html: false, close: true };
        let message = fields(&lines, &mut visit)?;
        visit.close = true;
        Ok(Some(Self {
            visit,
            code: percent_encoding::percent_decode_str(code).decode_utf8_lossy().into_owned(),
            method,
            framing: message.framing,
            expects_continue: message.expects_continue,
            length: lines.length,
        }))
    }
}

/// What follows the first slash of a target's path, in origin or absolute form (RFC 9112, section 3.2).
fn path(target: &str) -> Option<&str> {
    if let Some(path) = target.strip_prefix('/') {
        return Some(path);
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = rest.find(['/', '?']).unwrap_or(rest.len());
    let path = &rest[authority..];
    (authority > 0).then(|| path.strip_prefix('/').unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit<'b>(code: &'b str, query: Option<&'b str>) -> Request<'b> {
        Request { head: false, code, query, referrer: None, agent: None, html: false, close: false }
    }

    #[test]
    fn a_plain_visit_is_read_whole() {
        let bytes = b"GET /abc?x=1&y HTTP/1.1\r\nHost: h\r\nReferer: https://r/\r\nUser-Agent: u\r\n\
            Accept: text/html,*/*\r\nConnection: keep-alive\r\n\r\nGET /next";
        let Head::Visit(request, used) = parse(bytes) else { panic!("not a visit") };
        assert_eq!((request.code, request.query), ("abc", Some("x=1&y")));
        assert_eq!((request.referrer, request.agent), (Some(&b"https://r/"[..]), Some(&b"u"[..])));
        assert!(request.html && !request.close && !request.head);
        assert_eq!(&bytes[used..], b"GET /next");
    }

    #[test]
    fn requests_are_told_apart() {
        for (bytes, expected) in [
            ("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", Head::Visit(visit("a", None), 28)),
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", Head::Visit(visit("", None), 27)),
            ("GET /a HTTP/1.1\r\nHost: h\r\n", Head::Partial),
            ("", Head::Partial),
            ("POST /a HTTP/1.1\r\nHost: h\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.0\r\nHost: h\r\n\r\n", Head::Other),
            ("GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n", Head::Other),
            ("GET /%61 HTTP/1.1\r\nHost: h\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\n\r\n", Head::Visit(visit("a", None), 40)),
            ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", Head::Visit(visit("a", None), 47)),
        ] {
            assert_eq!(parse(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for bytes in [
            "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: h\r\nX: y\n\r\n",
            "GET /a HTTP/1.1\r\nHost: h@i\r\n\r\n",
            "GET /a HTTP/1.1\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
            "GET  /a HTTP/1.1\r\nHost: h\r\n\r\n",
            "\x16\x03\x01\x02",
        ] {
            assert!(matches!(parse(bytes.as_bytes()), Head::Refused(Error::Malformed(_))), "{bytes:?}");
        }
        for (fields, error) in [
            ("Transfer-Encoding: gzip\r\n", Error::Coding),
            ("Transfer-Encoding: chunked, identity\r\n", Error::Coding),
            ("Expect: more\r\n", Error::Expectation),
        ] {
            let bytes = format!("GET /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            assert_eq!(parse(bytes.as_bytes()), Head::Refused(error), "{fields}");
        }
        assert_eq!(parse(b"GET /a HTTP/2.0\r\nHost: h\r\n\r\n"), Head::Refused(Error::Version));
    }

    #[test]
    fn a_request_of_any_form_names_a_code() {
        for (line, method, code, query) in [
            ("GET /%61b", Method::Follow, "ab", None),
            ("GET /%zz", Method::Follow, "%zz", None),
            ("GET http://h/a?b", Method::Follow, "a", Some("b")),
            ("GET HTTPS://h:8080/a", Method::Follow, "a", None),
            ("GET http://h?b", Method::Follow, "", Some("b")),
            ("GET http://h", Method::Follow, "", None),
            ("POST /a", Method::Unlock, "a", None),
            ("PUT /a", Method::Other, "a", None),
            ("OPTIONS *", Method::Other, "", None),
            ("CONNECT h:1", Method::Other, "", None),
        ] {
            let bytes = format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
            let general = General::read(bytes.as_bytes()).unwrap().expect("a whole head");
            assert_eq!(
                (general.method, &*general.code, general.visit.query),
                (method, code, query),
                "{line}"
            );
            assert_eq!((general.visit.close, general.length), (true, bytes.len()));
        }
        for line in ["GET a", "GET *", "GET ftp://h/a", "GET http:///a", "POST h:80"] {
            let bytes = format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
            assert!(matches!(General::read(bytes.as_bytes()), Err(Error::Malformed(_))), "{line}");
        }
        assert_eq!(General::read(b"GET /a HTTP/1.1\r\n"), Ok(None));
    }

    #[test]
    fn too_many_fields_are_too_large() {
        let mut head = String::from("GET /a HTTP/1.1\r\n");
        for n in 0..=MAX_FIELDS {
            head.push_str(&format!("x{n}: y\r\n"));
        }
        head.push_str("\r\n");
        assert_eq!(parse(head.as_bytes()), Head::Refused(Error::TooLarge));
    }
}
