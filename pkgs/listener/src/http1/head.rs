//! Reading a request's head, as strictly as RFC 9112 allows: what two servers could read differently is
//! refused, since that is how requests are smuggled.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, Version};
use httparse::{Error, Status};

use crate::config::Limits;
use crate::refusal::Refusal;

use super::buffers;

/// The most fields a head may have, whatever the limit says: room for them is on the stack.
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
    /// How long the body is.
    pub framing: Framing,
    /// Whether the client leaves the connection open.
    pub keep_alive: bool,
    /// Whether the client waits for 100 before it sends the body.
    pub expects_continue: bool,
}

/// How long a request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes, often none.
    Length(u64),
    /// As the chunked coding tells.
    Chunked,
}

/// Reads the head that `bytes` start with, and says how many bytes it takes; nothing where more is to come.
///
/// # Errors
/// What the request is to be refused with.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Option<(Head, usize)>, Refusal> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let fields = &mut fields[..limits.fields.min(MAX_FIELDS)];
    let mut parsed = httparse::Request::new(&mut []);
    let used = match parsed.parse_with_uninit_headers(bytes, fields) {
        Ok(Status::Complete(used)) if used <= limits.head_bytes => used,
        Ok(Status::Partial) if bytes.len() < limits.head_bytes => return Ok(None),
        Ok(_) if !bytes[..bytes.len().min(limits.head_bytes)].contains(&b'\n') => {
            return Err(Refusal::TargetTooLong);
        }
        Ok(_) | Err(Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
        Err(Error::Version) if names_a_version(bytes) => return Err(Refusal::Version),
        Err(error) => return Err(Refusal::Malformed(reason(error))),
    };
    let raw = &bytes[..used];
    // RFC 9112, section 2.2: a bare LF may be taken for a line's end; here it is not.
    if memchr::memchr_iter(b'\n', raw).any(|at| at == 0 || raw[at - 1] != b'\r') {
        return Err(Refusal::Malformed("a line ends without CR"));
    }

    let shared = buffers::share(raw);
    let piece = |part: &[u8]| slice(&shared, raw, part);
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let method = parsed.method.unwrap_or_default();
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Refusal::Malformed("no such method"))?;
    let uri = target(&method, piece(parsed.path.unwrap_or_default().as_bytes()))?;

    let mut head = Head {
        method,
        uri,
        version,
        fields: buffers::take_fields(),
        framing: Framing::Length(0),
        keep_alive: version == Version::HTTP_11,
        expects_continue: false,
    };
    head.fields.reserve(parsed.headers.len());
    let mut facts = Facts::default();
    for field in &*parsed.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes())
            .map_err(|_| Refusal::Malformed("a field's name is too long"))?;
        facts.see(&mut head, &name, field.value)?;
        head.fields.append(name, value(piece(field.value)));
    }
    facts.settle(&mut head, limits)?;
    Ok(Some((head, used)))
}

/// What is known of the fields so far.
#[derive(Default)]
struct Facts {
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Facts {
    /// Notes what a field says about the message itself.
    #[inline]
    fn see(&mut self, head: &mut Head, name: &HeaderName, value: &[u8]) -> Result<(), Refusal> {
        if *name == header::HOST {
            self.hosts += 1;
            if !value.iter().all(|byte| is_of_authority(*byte)) {
                return Err(Refusal::Malformed("Host names no host"));
            }
        } else if *name == header::CONTENT_LENGTH {
            // Section 6.3: two may be equal, and yet there is no reason to send two.
            let length =
                std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = length.and_then(|text| text.parse().ok());
            let length = length.ok_or(Refusal::Malformed("Content-Length is no number"))?;
            if self.length.replace(length).is_some() {
                return Err(Refusal::Malformed("there are two of Content-Length"));
            }
        } else if *name == header::TRANSFER_ENCODING {
            if self.chunked {
                return Err(Refusal::Malformed("there are two of Transfer-Encoding"));
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Refusal::Coding);
            }
            self.chunked = true;
        } else if *name == header::CONNECTION {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    head.keep_alive = false;
                    // Whatever else it says.
                    break;
                }
                head.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if *name == header::EXPECT {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Refusal::Expectation);
            }
            // RFC 9110, section 10.1.1: of HTTP/1.0 it is ignored.
            head.expects_continue = head.version == Version::HTTP_11;
        }
        Ok(())
    }

    /// Judges all of them together.
    fn settle(self, head: &mut Head, limits: &Limits) -> Result<(), Refusal> {
        let old = head.version == Version::HTTP_10;
        match self.hosts {
            1 => {}
            0 if old => {}
            0 => return Err(Refusal::Malformed("Host is missing")),
            _ => return Err(Refusal::Malformed("there are two of Host")),
        }
        if self.chunked {
            // Section 6.1: either may be an attempt at smuggling.
            if old {
                return Err(Refusal::Malformed("HTTP/1.0 has no Transfer-Encoding"));
            }
            if self.length.is_some() {
                return Err(Refusal::Malformed("there are both Content-Length and Transfer-Encoding"));
            }
            head.framing = Framing::Chunked;
        } else if let Some(length) = self.length {
            if length > limits.body_bytes {
                return Err(Refusal::BodyTooLarge);
            }
            head.framing = Framing::Length(length);
        }
        head.expects_continue &= head.framing != Framing::Length(0);
        if let Some(authority) = head.uri.authority() {
            // Section 3.2.2: what the target says counts, and Host is ignored.
            let authority = HeaderValue::from_str(authority.as_str());
            let authority = authority.map_err(|_| Refusal::Malformed("the target names no host"))?;
            head.fields.insert(header::HOST, authority);
        }
        Ok(())
    }
}

/// The target in one of its forms (section 3.2).
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

/// Whether a byte may be in `host [ ":" port ]` (RFC 3986, section 3.2.2), userinfo not being part of it.
fn is_of_authority(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(&byte)
}

/// `part` of `raw` as the same part of `shared`, which has equal bytes.
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
    // SAFETY: httparse takes in a value only HTAB, SP to ~ and 0x80 to 0xff, which is what `HeaderValue`
    // asks for. A second look at each byte would be a tenth of the time a browser's head takes.
    unsafe { HeaderValue::from_maybe_shared_unchecked(bytes) }
}

/// Whether the request line has a version where it should, even if not one that is spoken here.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r' || *byte == b'\n').next();
    line.and_then(|line| line.splitn(3, |byte| *byte == b' ').nth(2)).is_some_and(|v| v.starts_with(b"HTTP/"))
}

/// What httparse found, for people.
fn reason(error: Error) -> &'static str {
    match error {
        Error::HeaderName => "a field's name is malformed",
        Error::HeaderValue => "a field's value is malformed",
        Error::NewLine => "a CR is followed by something else than LF",
        Error::Token => "the method is malformed",
        Error::Status | Error::TooManyHeaders | Error::Version => "the request line is malformed",
    }
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

    #[test]
    fn connections_are_kept_as_the_client_asks() {
        for (version, connection, keep) in [
            ("1.1", "", true),
            ("1.1", "Connection: keep-alive\r\n", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: TE, Close\r\n", false),
            ("1.1", "Connection: close, keep-alive\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
        ] {
            let (head, _) = head(&format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n"))
                .expect("a request")
                .expect("a whole head");
            assert_eq!(head.keep_alive, keep, "{version} {connection}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length : 1\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Host: i\r\n",
            "A: b\r\n c\r\n",
            "A: b\r\n\tc\r\n",
            "A: b\n",
            "A: b\rc\r\n",
            "A\0: b\r\n",
            "A: \0\r\n",
            " A: b\r\n",
            ": b\r\n",
            "A b\r\n",
        ] {
            assert!(matches!(head(&with(fields)), Err(Refusal::Malformed(_))), "{fields:?}");
        }
        for whole in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET a HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\nHost: h\n\n",
            "G\u{e9}T / HTTP/1.1\r\nHost: h\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01",
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
