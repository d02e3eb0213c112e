//! An HTTP/1.1 answer that another protocol sends.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};

/// The answer of a fast path.
#[derive(Clone, Copy, Debug)]
pub struct PlainAnswer<'a> {
    /// Three digits.
    pub status: &'a [u8; 3],
    /// Its fields, an empty line, and its body.
    rest: &'a [u8],
}

impl<'a> PlainAnswer<'a> {
    /// Reads the first line of an answer. None if it is invalid.
    #[inline]
    pub fn read(answer: &'a [u8]) -> Option<Self> {
        let (line, rest) = cut_line(answer)?;
        Some(Self { status: line.strip_prefix(b"HTTP/1.1 ")?.first_chunk()?, rest })
    }

    /// Passes each field to `each`, except `connection`, which HTTP/2 and 3 do not have (RFC 9113, section 8.2.2; RFC
    /// 9114, section 4.2). Returns the body. None if the answer is incomplete.
    #[inline]
    pub fn fields(&self, mut each: impl FnMut(&'a [u8], &'a [u8])) -> Option<&'a [u8]> {
        let mut rest = self.rest;
        loop {
            let line;
            (line, rest) = cut_line(rest)?;
            if line.is_empty() {
                return Some(rest);
            }
            let colon = memchr::memchr(b':', line)?;
            let (name, value) = (&line[..colon], line.get(colon + 2..)?);
            if name != b"connection" {
                each(name, value);
            }
        }
    }

    /// The answer as a response.
    pub fn response(&self) -> Option<Response<Bytes>> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::from_bytes(self.status).ok()?;
        let mut all = Some(());
        let body = self.fields(|name, value| {
            match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                (Ok(name), Ok(value)) => drop(response.headers_mut().append(name, value)),
                _ => all = None,
            }
        })?;
        *response.body_mut() = Bytes::copy_from_slice(body);
        all.map(|()| response)
    }
}

/// The first line without its end, and the rest.
fn cut_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some((bytes[..end].strip_suffix(b"\r")?, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_fields_and_a_body() {
        let bytes =
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\nx: a: b\r\n\r\nabc\r\n\r\nde";
        let answer = PlainAnswer::read(bytes).expect("it is one");
        let mut fields = Vec::new();
        let body = answer.fields(|name, value| fields.push((name, value)));
        assert_eq!(answer.status, b"200");
        assert_eq!(fields, [(&b"content-length"[..], &b"9"[..]), (b"x", b"a: b")]);
        assert_eq!(body, Some(&b"abc\r\n\r\nde"[..]));
        let response = answer.response().expect("it is one");
        assert_eq!((response.status(), response.headers().len()), (StatusCode::OK, 2));
        assert_eq!((response.headers()["x"].as_bytes(), body), (&b"a: b"[..], Some(&response.body()[..])));
        let empty = PlainAnswer::read(b"HTTP/1.1 204 No Content\r\n\r\n").expect("it is one");
        assert_eq!(empty.fields(|_, _| panic!("there are none")), Some(&b""[..]));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for bytes in ["", "HTTP/1.1 200", "HTTP/1.1 20\r\n\r\n", "abc\r\n\r\n"] {
            assert!(PlainAnswer::read(bytes.as_bytes()).is_none(), "{bytes:?}");
        }
        for bytes in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\na: b\r\n", "HTTP/1.1 200 OK\r\na\r\n\r\n"] {
            let odd = PlainAnswer::read(bytes.as_bytes()).expect("it begins like one");
            assert!(odd.fields(|_, _| ()).is_none() && odd.response().is_none(), "{bytes:?}");
        }
    }
}
