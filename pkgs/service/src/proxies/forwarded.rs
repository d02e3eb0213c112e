//! `Forwarded` (RFC 7239) and `X-Forwarded-For`: the addresses that a request came through.
//!
//! Each proxy appends the address that it got the request from. The client may have invented everything before. So both
//! fields are read from their ends, and only as far as the addresses are trusted. Nothing is allocated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most elements that are looked at: proxies in a row, and empty elements, which mean nothing (RFC 9110, section
/// 5.6.1).
const MAX_ELEMENTS: usize = 32;

/// The longest element, in bytes. The longest address with a port has 47; a host and a protocol may follow.
const MAX_ELEMENT_BYTES: usize = 512;

/// Walks back from the last element of the last line as long as addresses are `trusted`. Returns the first one that is
/// not, or else the last that could be read; none if not even one could.
pub(super) fn walk<'l>(
    lines: impl DoubleEndedIterator<Item = &'l [u8]>,
    syntax: &Syntax,
    trusted: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let elements = lines.rev().flat_map(|line| Elements { rest: Some(line), quotes: syntax.quotes });
    let mut found = None;
    for element in elements.take(MAX_ELEMENTS) {
        if element.is_empty() {
            continue;
        }
        if element.len() > MAX_ELEMENT_BYTES {
            break;
        }
        let Some(address) = (syntax.address)(element) else { break };
        let address = address.to_canonical();
        found = Some(address);
        if !trusted(address) {
            break;
        }
    }
    found
}

/// How a field writes addresses.
pub(super) struct Syntax {
    /// Whether quotes may contain a comma.
    quotes: bool,
    /// Reads the address of an element.
    address: fn(&[u8]) -> Option<IpAddr>,
}

/// The syntax of `Forwarded`.
pub(super) const FORWARDED: Syntax = Syntax { quotes: true, address: forwarded_for };

/// The syntax of `X-Forwarded-For`.
pub(super) const X_FORWARDED_FOR: Syntax = Syntax { quotes: false, address: x_forwarded_for };

/// The elements of a line, last first, without surrounding space.
struct Elements<'l> {
    rest: Option<&'l [u8]>,
    quotes: bool,
}

impl<'l> Iterator for Elements<'l> {
    type Item = &'l [u8];

    fn next(&mut self) -> Option<&'l [u8]> {
        let line = self.rest?;
        // The line is read from its end, so its quotes mean what the writer of the last elements meant, whatever a
        // client wrote before. An escaped quote is taken for the end of a string, and splits its element in the wrong
        // place. But that element then has a backslash, and is refused for it.
        let mut quoted = false;
        let comma = line.iter().rposition(|byte| {
            quoted ^= self.quotes && *byte == b'"';
            *byte == b',' && !quoted
        });
        let (rest, element) = match comma {
            Some(at) => (Some(&line[..at]), &line[at + 1..]),
            None => (None, line),
        };
        self.rest = rest;
        Some(element.trim_ascii())
    }
}

/// The address in an element of `Forwarded`: `for=192.0.2.1;proto=https`, `for="[2001:db8::1]:8080"`. None if it is
/// hidden (`unknown`, `_name`) or anything is malformed.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    if element.contains(&b'\\') {
        return None;
    }
    let mut found = None;
    let mut quoted = false;
    let pairs = element.split(|byte| {
        quoted ^= *byte == b'"';
        *byte == b';' && !quoted
    });
    for pair in pairs.map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty()) {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        if name.eq_ignore_ascii_case(b"for") && found.replace(node(value)?).is_some() {
            return None;
        }
    }
    found
}

/// The address of a node (section 6). It may contain a colon only within quotes.
fn node(value: &[u8]) -> Option<IpAddr> {
    match value.strip_prefix(b"\"") {
        None => Some(std::str::from_utf8(value).ok()?.parse::<Ipv4Addr>().ok()?.into()),
        Some(quoted) => with_port(std::str::from_utf8(quoted.strip_suffix(b"\"")?).ok()?),
    }
}

/// The address in an element of `X-Forwarded-For`. There is no standard, and some proxies add a port.
fn x_forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Some(address.into()),
        Err(_) => with_port(text),
    }
}

/// `192.0.2.1` or `[2001:db8::1]`, with a port or without.
fn with_port(text: &str) -> Option<IpAddr> {
    let (address, port): (IpAddr, _) = match text.strip_prefix('[') {
        Some(text) => {
            let (address, port) = text.split_once(']')?;
            (address.parse::<Ipv6Addr>().ok()?.into(), port)
        }
        None => {
            let (address, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (address.parse::<Ipv4Addr>().ok()?.into(), port)
        }
    };
    // The port may be obfuscated instead of a number (section 6.3).
    let is_port = |port: &str| {
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn an_element_of_forwarded_has_one_address() {
        for (element, expected) in [
            ("for=192.0.2.1", "192.0.2.1"),
            ("For=192.0.2.1", "192.0.2.1"),
            ("for=\"192.0.2.1\"", "192.0.2.1"),
            ("for=\"192.0.2.1:80\"", "192.0.2.1"),
            ("for=\"[2001:db8:cafe::17]\"", "2001:db8:cafe::17"),
            ("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=\"[2001:db8::1]:_hidden\"", "2001:db8::1"),
            ("proto=https;for=192.0.2.1;by=_proxy", "192.0.2.1"),
            ("for=192.0.2.1; proto=https;", "192.0.2.1"),
            ("host=\"a;for=203.0.113.1\";for=192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(forwarded_for(element.as_bytes()), address(expected), "{element}");
        }
        for element in [
            "",
            "for=",
            "for",
            "for=unknown",
            "for=_hidden",
            "for=\"_hidden:80\"",
            "by=192.0.2.1",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.1:80",
            "for=[2001:db8::1]",
            "for=2001:db8::1",
            "for=\"2001:db8::1\"",
            "for=\"192.0.2.1",
            "for=192.0.2.1\"",
            "for=\"192.0.2.1\"x",
            "for=\"192.0.2\\.1\"",
            "for=\"192.0.2.1:\"",
            "for=\"192.0.2.1:8 0\"",
            "for = 192.0.2.1",
            "for=192.0.2.01",
            "for=192.0.2.1;proto",
            "192.0.2.1",
        ] {
            assert_eq!(forwarded_for(element.as_bytes()), None, "{element}");
        }
    }

    #[test]
    fn an_element_of_x_forwarded_for_is_an_address() {
        for (element, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
        ] {
            assert_eq!(x_forwarded_for(element.as_bytes()), address(expected), "{element}");
        }
        for element in [
            "",
            "unknown",
            "localhost",
            "for=192.0.2.1",
            "192.0.2.1:",
            "[192.0.2.1]",
            "::1%lo",
            "[::1",
            "\"::1\"",
        ] {
            assert_eq!(x_forwarded_for(element.as_bytes()), None, "{element}");
        }
        assert_eq!(x_forwarded_for(b"\xff"), None);
    }

    /// The test reads elements from the end, and stops at the first untrusted one.
    #[test]
    fn the_walk_ends_at_the_first_that_is_not_trusted_and_before_what_is_malformed() {
        let trusted = |address: IpAddr| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);
        let x = |lines: &[&str]| walk(lines.iter().map(|line| line.as_bytes()), &X_FORWARDED_FOR, trusted);
        for (lines, expected) in [
            (&["192.0.2.1"][..], "192.0.2.1"),
            (&["203.0.113.1, 192.0.2.1"], "192.0.2.1"),
            (&["203.0.113.1,192.0.2.1 , 10.0.0.1\t,\t10.0.0.2"], "192.0.2.1"),
            (&["203.0.113.1", "192.0.2.1", "10.0.0.1, 10.0.0.2"], "192.0.2.1"),
            (&["192.0.2.1", "", ",, 10.0.0.1, ,"], "192.0.2.1"),
            (&["10.0.0.1, 10.0.0.2"], "10.0.0.1"),
            (&["192.0.2.1, unknown, 10.0.0.2"], "10.0.0.2"),
            (&["192.0.2.1, 10.0.0.1 10.0.0.3, 10.0.0.2"], "10.0.0.2"),
            (&["192.0.2.1, ::ffff:10.0.0.1"], "192.0.2.1"),
        ] {
            assert_eq!(x(lines), address(expected), "{lines:?}");
        }
        for lines in [&[][..], &[""], &[" , "], &["192.0.2.1, unknown"], &["192.0.2.1", "x"]] {
            assert_eq!(x(lines), None, "{lines:?}");
        }

        let forwarded = |line: &str| walk([line.as_bytes()].into_iter(), &FORWARDED, trusted);
        for (line, expected) in [
            ("for=203.0.113.1, for=192.0.2.1;by=10.0.0.1, for=10.0.0.1", "192.0.2.1"),
            ("for=192.0.2.1, for=\"10.0.0.1:80\"", "192.0.2.1"),
            // Quotes that a client opens or closes do not affect the proxy's element behind them.
            ("for=\"203.0.113.1, for=192.0.2.1", "192.0.2.1"),
            ("for=\"203.0.113.1, for=\"[2001:db8::1]\"", "2001:db8::1"),
            ("\\, for=192.0.2.1", "192.0.2.1"),
            ("for=203.0.113.1, for=192.0.2.1;host=\"a, b\"", "192.0.2.1"),
        ] {
            assert_eq!(forwarded(line), address(expected), "{line}");
        }
        // A string with escapes is refused, so that nothing in it can be taken for an element.
        assert_eq!(forwarded("for=192.0.2.1;host=\"a\\\", for=203.0.113.1\""), None);
        assert_eq!(forwarded("for=192.0.2.1;host=\"a\\\", for=\\\"203.0.113.1\""), None);
    }

    #[test]
    fn no_more_is_looked_at_than_proxies_could_have_written() {
        let line = |hops: usize| format!("192.0.2.1{}", ", 10.0.0.1".repeat(hops));
        let x = |line: &str| {
            walk([line.as_bytes()].into_iter(), &X_FORWARDED_FOR, |address| {
                address == IpAddr::from([10, 0, 0, 1])
            })
        };
        assert_eq!(x(&line(MAX_ELEMENTS - 1)), address("192.0.2.1"));
        assert_eq!(x(&line(MAX_ELEMENTS)), address("10.0.0.1"));
        let long = format!("for=192.0.2.1;host=\"{}\"", "x".repeat(MAX_ELEMENT_BYTES));
        assert_eq!(walk([long.as_bytes()].into_iter(), &FORWARDED, |_| false), None);
    }
}
