//! Reads a visit from a request's lines.

use request_head::{Error, Framing, Lines, Message, is_named, room};

use super::{MAX_FIELDS, MAX_HEAD_BYTES};

/// A plain visit: `GET` or `HEAD` in the form of HTTP/1.1, without a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'b> {
    /// Whether it is a `HEAD`.
    pub head: bool,
    /// The path, which has no escapes in a plain visit.
    pub path: &'b str,
    /// What follows the `?`.
    pub query: Option<&'b str>,
    /// The `Referer` field.
    pub referrer: Option<&'b [u8]>,
    /// The `User-Agent` field.
    pub agent: Option<&'b [u8]>,
    /// Whether the client is a person's browser: `Accept` names `text/html`.
    pub html: bool,
    /// Whether the client wants the connection closed.
    pub close: bool,
}

/// The plain visit in `lines`; `None` if the request is anything else.
///
/// # Errors
/// [`Error`], if the fields are malformed.
#[inline]
pub fn plain<'b>(lines: &Lines<'_, 'b>) -> Result<Option<Request<'b>>, Error> {
    let head = match lines.method {
        "GET" => false,
        "HEAD" => true,
        _ => return Ok(None),
    };
    let target = lines.target;
    // Requests with escaped paths go to the service. A query is passed on unchanged.
    let end = target.bytes().position(|byte| matches!(byte, b'%' | b'?')).unwrap_or(target.len());
    if lines.old || !target.starts_with('/') || target.as_bytes().get(end) == Some(&b'%') {
        return Ok(None);
    }
    let (path, query) = (&target[..end], target.get(end + 1..));
    let mut request = Request { head, path, query, referrer: None, agent: None, html: false, close: false };
    let message = fields(lines, &mut request)?;
    // A request with a body is not plain, even though a visit has no use for the body.
    Ok((message.framing == Framing::Length(0)).then_some(request))
}

/// Reads the fields into `request`. Returns the framing and connection state that they describe.
#[inline]
fn fields<'b>(lines: &Lines<'_, 'b>, request: &mut Request<'b>) -> Result<Message, Error> {
    let mut message = Message::new(lines.old);
    for field in lines.fields {
        if message.takes(field.name, field.value)? {
            continue;
        }
        match field.name.len() {
            6 if is_named(field.name, b"accept") => request.html = names_html(field.value),
            7 if is_named(field.name, b"referer") => request.referrer = Some(field.value),
            10 if is_named(field.name, b"user-agent") => request.agent = Some(field.value),
            _ => {}
        }
    }
    let message = message.settle()?;
    request.close = !message.keep_alive;
    Ok(message)
}

/// Whether an `Accept` field comes from a person's browser.
#[inline]
pub fn names_html(accept: &[u8]) -> bool {
    accept.windows(9).any(|part| part == b"text/html")
}

/// The result of reading bytes in the same way as the listener and its fast path.
#[doc(hidden)]
#[derive(Debug, PartialEq, Eq)]
pub enum Head<'b> {
    /// The head is incomplete.
    Partial,
    /// A plain visit, and the length of its head.
    Visit(Request<'b>, usize),
    /// A request that is not plain.
    Other,
    /// A malformed request.
    Refused(Error),
}

/// Reads the head at the start of `bytes`, for tests and fuzzing.
#[doc(hidden)]
pub fn parse(bytes: &[u8]) -> Head<'_> {
    let mut room = room::<MAX_FIELDS>();
    match Lines::read(bytes, &mut room, MAX_HEAD_BYTES) {
        Ok(None) => Head::Partial,
        Ok(Some(lines)) => match plain(&lines) {
            Ok(Some(request)) => Head::Visit(request, lines.length),
            Ok(None) => Head::Other,
            Err(error) => Head::Refused(error),
        },
        Err(error) => Head::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit<'b>(path: &'b str, query: Option<&'b str>) -> Request<'b> {
        Request { head: false, path, query, referrer: None, agent: None, html: false, close: false }
    }

    #[test]
    fn a_plain_visit_is_read_whole() {
        let bytes = b"GET /abc?x=1&y HTTP/1.1\r\nHost: h\r\nReferer: https://r/\r\nUser-Agent: u\r\n\
            Accept: text/html,*/*\r\nConnection: keep-alive\r\n\r\nGET /next";
        let Head::Visit(request, used) = parse(bytes) else { panic!("not a visit") };
        assert_eq!((request.path, request.query), ("/abc", Some("x=1&y")));
        assert_eq!((request.referrer, request.agent), (Some(&b"https://r/"[..]), Some(&b"u"[..])));
        assert!(request.html && !request.close && !request.head);
        assert_eq!(&bytes[used..], b"GET /next");
    }

    #[test]
    fn requests_are_told_apart() {
        for (bytes, expected) in [
            ("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", Head::Visit(visit("/a", None), 28)),
            ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", Head::Visit(visit("/", None), 27)),
            ("GET /a HTTP/1.1\r\nHost: h\r\n", Head::Partial),
            ("", Head::Partial),
            ("POST /a HTTP/1.1\r\nHost: h\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.0\r\nHost: h\r\n\r\n", Head::Other),
            ("GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n", Head::Other),
            ("GET /%61 HTTP/1.1\r\nHost: h\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\n\r\n", Head::Visit(visit("/a", None), 40)),
            ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", Head::Visit(visit("/a", None), 47)),
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
    fn too_many_fields_are_too_large() {
        let mut head = String::from("GET /a HTTP/1.1\r\n");
        for n in 0..=MAX_FIELDS {
            head.push_str(&format!("x{n}: y\r\n"));
        }
        head.push_str("\r\n");
        assert_eq!(parse(head.as_bytes()), Head::Refused(Error::TooLarge));
    }
}
