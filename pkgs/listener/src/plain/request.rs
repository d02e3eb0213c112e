//! The plain request in a field section of HTTP/2 or HTTP/3.

use request_head::{Header, Lines};

use crate::field_compression::Section;

/// A request that could equally have come over HTTP/1.1, with its authority as `host`.
pub struct PlainRequest<'a> {
    pub method: &'a str,
    target: &'a str,
    fields: Vec<Header<'a>>,
}

impl<'a> PlainRequest<'a> {
    /// Reads a section of at most `most` fields, with one of these schemes.
    ///
    /// None if the request needs any special care or is wrong (RFC 9113, section 8.1.1; RFC 9114, section 4.1.2).
    pub fn of(section: &'a Section, most: usize, schemes: &[&[u8]]) -> Option<Self> {
        let lines = section.lines();
        let mut fields = Vec::with_capacity(lines.len());
        fields.push(Header { name: "host", value: b"" });
        let (mut method, mut scheme, mut authority, mut path) = (None, None, None, None);
        for (name, value) in lines {
            if let [b':', name @ ..] = name {
                let pseudo = match name {
                    b"method" => &mut method,
                    b"scheme" => &mut scheme,
                    b"authority" => &mut authority,
                    b"path" => &mut path,
                    _ => return None,
                };
                // Each occurs once, and before all other fields.
                if fields.len() > 1 || pseudo.replace(value).is_some() {
                    return None;
                }
            } else {
                if !is_plain(name) || !is_value(value) {
                    return None;
                }
                fields.push(Header { name: std::str::from_utf8(name).ok()?, value });
            }
        }
        fields[0].value = authority.filter(|authority| !authority.is_empty() && is_value(authority))?;
        let path = path.filter(|path| path.starts_with(b"/") && path.iter().all(|byte| of_target(*byte)))?;
        let method = method.filter(|method| matches!(*method, b"GET" | b"HEAD"))?;
        if !schemes.contains(&scheme?) || fields.len() - 1 > most {
            return None;
        }
        Some(Self {
            method: std::str::from_utf8(method).ok()?,
            target: std::str::from_utf8(path).ok()?,
            fields,
        })
    }

    /// The request's lines, which took this many bytes.
    pub fn lines(&self, length: usize) -> Lines<'_, 'a> {
        Lines { method: self.method, target: self.target, old: false, fields: &self.fields, length }
    }
}

/// Whether a name is valid (RFC 9110, section 5.6.2; RFC 9113, section 8.2: in lower case), and not of a field about
/// the message or its connection.
fn is_plain(name: &[u8]) -> bool {
    let about_the_message = matches!(
        name,
        b"connection"
            | b"content-length"
            | b"expect"
            | b"host"
            | b"keep-alive"
            | b"proxy-connection"
            | b"te"
            | b"transfer-encoding"
            | b"upgrade"
    );
    let of_name = |byte: &u8| {
        matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'.' | b'^' | b'`' | b'|' | b'~')
    };
    !about_the_message && !name.is_empty() && name.iter().all(of_name)
}

/// Whether a value is valid (RFC 9110, section 5.5), without surrounding space.
fn is_value(value: &[u8]) -> bool {
    let of_value = |byte: &u8| *byte >= b' ' && *byte != 0x7f || *byte == b'\t';
    value.trim_ascii().len() == value.len() && value.iter().all(of_value)
}

/// Whether a byte may be in a path with its query (RFC 3986, sections 3.3 and 3.4), or is sent there by browsers
/// anyway.
fn of_target(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

#[cfg(test)]
mod tests {
    use crate::field_compression::Text;

    use super::*;

    const HTTPS: &[&[u8]] = &[b"https"];

    /// A field section of these lines.
    fn section(lines: &[(&'static str, &'static str)]) -> Section {
        let mut section = Section::new();
        section.clear(16 << 10);
        for (name, value) in lines {
            section.push(Text::Static(name), Text::Static(value)).expect("there is room");
        }
        section
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "h:1"), (":path", "/a?b=%20c")];

    #[test]
    fn a_plain_request_is_as_of_http_1() {
        let section = section(&[&GET[..], &[("accept", "text/html"), ("x_y", "")]].concat());
        let request = PlainRequest::of(&section, 2, HTTPS).expect("it is plain");
        let lines = request.lines(7);
        assert_eq!((lines.method, lines.target, lines.length), ("GET", "/a?b=%20c", 7));
        let fields: Vec<_> = lines.fields.iter().map(|field| (field.name, field.value)).collect();
        assert_eq!(fields, [("host", &b"h:1"[..]), ("accept", b"text/html"), ("x_y", b"")]);
        assert!(PlainRequest::of(&section, 1, HTTPS).is_none(), "there are too many");
        let other: &[&[u8]] = &[b"http", b"ftp"];
        assert!(PlainRequest::of(&section, 2, other).is_none(), "it is of another scheme");
    }

    #[test]
    fn what_is_odd_is_another_s() {
        let without = |at: usize| {
            let mut lines = GET.to_vec();
            lines.remove(at);
            lines
        };
        let with = |at: usize, value: &'static str| {
            let mut lines = GET.to_vec();
            lines[at].1 = value;
            lines
        };
        let and = |line: (&'static str, &'static str)| [&GET[..], &[line]].concat();
        let odd = [
            without(0),
            without(1),
            without(2),
            without(3),
            with(0, "POST"),
            with(0, "get"),
            with(0, "CONNECT"),
            with(1, "http"),
            with(2, ""),
            with(2, "a\nb"),
            with(3, ""),
            with(3, "*"),
            with(3, "a"),
            with(3, "https://h/a"),
            with(3, "/a b"),
            with(3, "/a#b"),
            with(3, "/a\r\nb"),
            with(3, "/\u{e9}"),
            and((":path", "/b")),
            and((":protocol", "websocket")),
            and((":status", "200")),
            and(("", "a")),
            and(("A", "b")),
            and(("a b", "c")),
            and(("a:", "c")),
            and(("a", "b\r\nc: d")),
            and(("a", "b\0")),
            and(("a", " b")),
            and(("a", "b\t")),
            and(("host", "h")),
            and(("te", "trailers")),
            and(("expect", "100-continue")),
            and(("content-length", "0")),
            and(("connection", "close")),
            and(("transfer-encoding", "chunked")),
            [&[("a", "b")], &GET[..]].concat(),
        ];
        for lines in odd {
            assert!(PlainRequest::of(&section(&lines), 100, HTTPS).is_none(), "{lines:?}");
        }
    }
}
