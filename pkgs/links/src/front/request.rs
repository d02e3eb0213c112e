//! Reading a request's head: just enough to know a plain visit from anything else.

use request_head::{Error, Framing, Lines, Message, room};

use super::MAX_HEAD_BYTES;

/// The most fields a head may have; browsers send some 20.
const MAX_FIELDS: usize = 64;

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
    /// A request that is not plain.
    Other,
    /// Not HTTP/1.1 as RFC 9112 has it.
    Bad,
    /// More fields than allowed.
    TooLarge,
}

/// Reads the head of the request that `bytes` start with.
#[inline]
pub fn parse(bytes: &[u8]) -> Head<'_> {
    read(bytes).unwrap_or_else(|error| match error {
        Error::TooLarge | Error::TargetTooLong => Head::TooLarge,
        // Whoever takes these over says what is wrong with them.
        Error::Coding | Error::Expectation => Head::Other,
        Error::Malformed(_) | Error::Version => Head::Bad,
    })
}

#[inline]
fn read(bytes: &[u8]) -> Result<Head<'_>, Error> {
    let mut room = room::<MAX_FIELDS>();
    let Some(lines) = Lines::read(bytes, &mut room, MAX_HEAD_BYTES)? else { return Ok(Head::Partial) };
    let head = match lines.method {
        "GET" => false,
        "HEAD" => true,
        _ => return Ok(Head::Other),
    };
    let Some(path) = lines.target.strip_prefix('/') else { return Ok(Head::Other) };
    if lines.old || path.contains('%') {
        return Ok(Head::Other);
    }
    let (code, query) = match path.split_once('?') {
        Some((code, query)) => (code, Some(query)),
        None => (path, None),
    };
    let mut request = Request { head, code, query, referrer: None, agent: None, html: false, close: false };
    let mut message = Message::new(false);
    for field in lines.fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if message.takes(field.name, field.value)? {
            continue;
        }
        match field.name.len() {
            6 if is("accept") => request.html = field.value.windows(9).any(|part| part == b"text/html"),
            7 if is("referer") => request.referrer = Some(field.value),
            7 if is("upgrade") => return Ok(Head::Other),
            10 if is("user-agent") => request.agent = Some(field.value),
            _ => {}
        }
    }
    let message = message.settle()?;
    request.close = !message.keep_alive;
    // A body, even if for no purpose that is known of a visit.
    let plain = message.framing == Framing::Length(0);
    Ok(if plain { Head::Visit(request, lines.length) } else { Head::Other })
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
            ("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", Head::Visit(visit("a", None), 47)),
            ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", Head::Bad),
            ("GET /a HTTP/1.1\r\nHost: h\r\nX: y\n\r\n", Head::Bad),
            ("GET /a HTTP/1.1\r\nHost: h@i\r\n\r\n", Head::Bad),
            ("GET /a HTTP/1.1\r\n\r\n", Head::Bad),
            ("GET /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", Head::Bad),
            ("GET /a HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", Head::Bad),
            ("GET  /a HTTP/1.1\r\nHost: h\r\n\r\n", Head::Bad),
            ("\x16\x03\x01\x02", Head::Bad),
        ] {
            assert_eq!(parse(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn too_many_fields_are_too_large() {
        let mut head = String::from("GET /a HTTP/1.1\r\n");
        for n in 0..=MAX_FIELDS {
            head.push_str(&format!("x{n}: y\r\n"));
        }
        head.push_str("\r\n");
        assert_eq!(parse(head.as_bytes()), Head::TooLarge);
    }
}
