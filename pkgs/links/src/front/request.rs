//! Reading a request's head: just enough to know a plain visit from anything else.

use std::mem::MaybeUninit;

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
pub fn parse(bytes: &[u8]) -> Head<'_> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let used = match parsed.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Head::Partial,
        Err(httparse::Error::TooManyHeaders) => return Head::TooLarge,
        Err(_) => return Head::Bad,
    };
    let head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Head::Other,
    };
    let Some(path) = parsed.path.and_then(|target| target.strip_prefix('/')) else { return Head::Other };
    if parsed.version != Some(1) || path.contains('%') {
        return Head::Other;
    }
    let (code, query) = match path.split_once('?') {
        Some((code, query)) => (code, Some(query)),
        None => (path, None),
    };
    let mut request = Request { head, code, query, referrer: None, agent: None, html: false, close: false };
    let mut hosts = 0;
    for field in &*parsed.headers {
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => hosts += 1,
            6 if field.name.eq_ignore_ascii_case("accept") => {
                request.html = field.value.windows(9).any(|part| part == b"text/html");
            }
            6 if field.name.eq_ignore_ascii_case("expect") => return Head::Other,
            7 if field.name.eq_ignore_ascii_case("referer") => request.referrer = Some(field.value),
            7 if field.name.eq_ignore_ascii_case("upgrade") => return Head::Other,
            10 if field.name.eq_ignore_ascii_case("user-agent") => request.agent = Some(field.value),
            10 if field.name.eq_ignore_ascii_case("connection") => {
                if field.value.eq_ignore_ascii_case(b"close") {
                    request.close = true;
                } else if !field.value.eq_ignore_ascii_case(b"keep-alive") {
                    return Head::Other;
                }
            }
            14 if field.name.eq_ignore_ascii_case("content-length") => return Head::Other,
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => return Head::Other,
            _ => {}
        }
    }
    // RFC 9112, section 3.2: exactly one Host, or 400.
    if hosts == 1 { Head::Visit(request, used) } else { Head::Bad }
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
            ("GET /a HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\n\r\n", Head::Other),
            ("GET /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", Head::Other),
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
