//! Writes a response's head, and decides how its body is framed.

use http::header::{self, HeaderMap};
use http::{StatusCode, Version};

/// The framing of a response's body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// This many bytes.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// Until the connection closes: HTTP/1.0 has no other way for an unknown length.
    Close,
}

/// What the head depends on besides the response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// The request's version.
    pub version: Version,
    /// Whether the request was a `HEAD`.
    pub head: bool,
    /// The length of the body, if known.
    pub exact: Option<u64>,
    /// Whether the connection is to stay open.
    pub keep_alive: bool,
    /// The `date` line, for a response without one.
    pub date: &'a [u8],
    /// Additional lines.
    pub more: &'a [u8],
}

/// Appends the head of a response. Returns the body's framing, and whether the connection stays open.
pub fn write(
    out: &mut Vec<u8>,
    status: StatusCode,
    fields: &HeaderMap,
    response_context: &ResponseContext<'_>,
) -> (Framing, bool) {
    status_line(out, status);
    let (mut keep_alive, mut dated, mut length) = (response_context.keep_alive, false, None);
    for (name, value) in fields {
        if *name == header::CONTENT_LENGTH {
            length = value.to_str().ok().and_then(|text| text.parse::<u64>().ok());
            continue;
        } else if *name == header::CONNECTION {
            keep_alive &= !value.as_bytes().split(|b| *b == b',').any(|o| o.trim_ascii() == b"close");
            continue;
        } else if *name == header::TRANSFER_ENCODING {
            // This module decides the framing.
            continue;
        } else if *name == header::DATE {
            dated = true;
        }
        line(out, name.as_str().as_bytes(), value.as_bytes());
    }

    let bodiless = status.is_informational() || status == 204 || status == 304;
    let framing = match (response_context.exact, length) {
        _ if bodiless || response_context.head => Framing::None,
        (Some(exact), _) => Framing::Length(exact),
        (None, Some(length)) => Framing::Length(length),
        (None, None) if response_context.version == Version::HTTP_11 => Framing::Chunked,
        (None, None) => Framing::Close,
    };
    match framing {
        Framing::Length(length) => content_length(out, length),
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Close => keep_alive = false,
        // RFC 9110, section 8.6: none for 204; otherwise the length that a GET would have, if known.
        Framing::None if status != 204 => {
            let empty = response_context.exact.filter(|exact| *exact > 0);
            if let Some(length) = length.or(empty) {
                content_length(out, length);
            }
        }
        Framing::None => {}
    }
    if !keep_alive {
        out.extend_from_slice(b"connection: close\r\n");
    } else if response_context.version == Version::HTTP_10 {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
    if !dated {
        out.extend_from_slice(response_context.date);
    }
    out.extend_from_slice(response_context.more);
    out.extend_from_slice(b"\r\n");
    (framing, keep_alive)
}

/// Appends the size of a chunk.
pub fn chunk_size(out: &mut Vec<u8>, size: usize) {
    use std::io::Write;
    // Writing to memory cannot fail.
    let _ = write!(out, "{size:x}\r\n");
}

fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    if status == 200 {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let reason = status.canonical_reason().unwrap_or_default();
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    // Checks the capacity once instead of four times.
    out.reserve(name.len() + value.len() + 4);
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

fn content_length(out: &mut Vec<u8>, length: u64) {
    line(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const CONTEXT: ResponseContext<'_> = ResponseContext {
        version: Version::HTTP_11,
        head: false,
        exact: Some(3),
        keep_alive: true,
        date: b"date: D\r\n",
        more: b"",
    };

    fn head(
        status: u16,
        fields: &[(&'static str, &'static str)],
        response_context: &ResponseContext<'_>,
    ) -> (String, Framing, bool) {
        let fields = fields
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut out = Vec::new();
        let status = StatusCode::from_u16(status).expect("a status");
        let (framing, keep_alive) = write(&mut out, status, &fields.collect(), response_context);
        (String::from_utf8(out).expect("text"), framing, keep_alive)
    }

    #[test]
    fn a_known_length_is_told() {
        let (text, framing, keep) = head(200, &[("content-type", "text/plain")], &CONTEXT);
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\ndate: D\r\n\r\n"
        );
        assert_eq!((framing, keep), (Framing::Length(3), true));
    }

    #[test]
    fn framing_follows_status_method_and_version() {
        let unknown = ResponseContext { exact: None, ..CONTEXT };
        let old = ResponseContext { version: Version::HTTP_10, ..unknown };
        let asked = ResponseContext { head: true, ..CONTEXT };
        let none = ResponseContext { exact: Some(0), ..CONTEXT };
        for (status, response_context, framing, keep, lines) in [
            (200, &unknown, Framing::Chunked, true, "transfer-encoding: chunked\r\n"),
            (200, &old, Framing::Close, false, "connection: close\r\n"),
            (200, &asked, Framing::None, true, "content-length: 3\r\n"),
            (200, &none, Framing::Length(0), true, "content-length: 0\r\n"),
            (204, &none, Framing::None, true, ""),
            (204, &CONTEXT, Framing::None, true, ""),
            (304, &none, Framing::None, true, ""),
            (404, &CONTEXT, Framing::Length(3), true, "content-length: 3\r\n"),
        ] {
            let (text, found, kept) = head(status, &[], response_context);
            assert_eq!((found, kept), (framing, keep), "{status} {response_context:?}");
            let (_, rest) = text.split_once("\r\n").expect("a status line");
            assert_eq!(rest, format!("{lines}date: D\r\n\r\n"), "{status} {response_context:?}");
        }
    }

    #[test]
    fn a_service_decides_less_than_its_fields_say() {
        let fields = [
            ("content-length", "9"),
            ("transfer-encoding", "chunked"),
            ("connection", "x, close"),
            ("date", "E"),
        ];
        let (text, framing, keep) = head(200, &fields, &CONTEXT);
        assert_eq!(text, "HTTP/1.1 200 OK\r\ndate: E\r\ncontent-length: 3\r\nconnection: close\r\n\r\n");
        assert_eq!((framing, keep), (Framing::Length(3), false));
        let (text, framing, _) = head(200, &fields[..1], &ResponseContext { exact: None, ..CONTEXT });
        assert!(text.contains("content-length: 9\r\n"));
        assert_eq!(framing, Framing::Length(9));
        let (text, ..) = head(200, &fields[..1], &ResponseContext { exact: Some(0), head: true, ..CONTEXT });
        assert!(text.contains("content-length: 9\r\n"), "of a HEAD it is what a GET would have");
    }
}
