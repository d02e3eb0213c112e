//! Host names, as people write them and as requests name them.

use url::Host;

/// The longest host name (RFC 1035, section 2.3.4), in bytes.
pub(super) const MAX_HOST_BYTES: usize = 253;

/// The longest label between dots (RFC 1035, section 2.3.4), in bytes.
const MAX_LABEL_BYTES: usize = 63;

/// Why a text is not a domain's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// It is not a host name.
    #[error("a domain is a host name such as go.example, without scheme, port and path")]
    Malformed,
    /// It is an address.
    #[error("a domain is a host name, not an address")]
    Address,
    /// It is reserved for the domain without a name.
    #[error("\"default\" stands for the domain without a name")]
    Reserved,
    /// It is the host of the default domain.
    #[error("this is the host of the default domain")]
    Own,
}

/// A host name in the form in which it is stored and found: lower case, IDNA as ASCII, without a root dot.
///
/// # Errors
/// [`InvalidHost`].
pub fn parse(text: &str) -> Result<String, InvalidHost> {
    let text = text.trim();
    let name = match Host::parse(text.strip_suffix('.').unwrap_or(text)) {
        Ok(Host::Domain(name)) => name,
        Ok(Host::Ipv4(_) | Host::Ipv6(_)) => return Err(InvalidHost::Address),
        Err(_) => return Err(InvalidHost::Malformed),
    };
    let label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    match &*name {
        super::DEFAULT => Err(InvalidHost::Reserved),
        name if name.len() <= MAX_HOST_BYTES && name.split('.').all(label) => Ok(name.to_owned()),
        _ => Err(InvalidHost::Malformed),
    }
}

/// The host of an authority (`host [ ":" port ]`), without its root dot and in its original case.
pub(super) fn of_authority(authority: &[u8]) -> &[u8] {
    let end = match authority {
        // Up to the bracket that ends the address.
        [b'[', ..] => authority.iter().position(|byte| *byte == b']').map_or(authority.len(), |at| at + 1),
        _ => authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    match port {
        [] => {}
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {}
        // The port is invalid, so the rest is not a host.
        _ => return b"",
    }
    host.strip_suffix(b".").unwrap_or(host)
}

/// Whether an authority names this host.
pub fn is_at(authority: &[u8], host: &str) -> bool {
    of_authority(authority).eq_ignore_ascii_case(host.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling_or_is_refused() {
        let long = format!("{}.example", "x".repeat(MAX_LABEL_BYTES));
        let too_long = format!("x{long}");
        let longest = ["x".repeat(63), "y".repeat(63), "z".repeat(63), "w".repeat(61)].join(".");
        for (text, expected) in [
            ("go.example", Ok("go.example")),
            (" Go.Example. ", Ok("go.example")),
            ("localhost", Ok("localhost")),
            ("a_b.example", Ok("a_b.example")),
            ("B\u{fc}cher.example", Ok("xn--bcher-kva.example")),
            ("xn--bcher-kva.example", Ok("xn--bcher-kva.example")),
            (&long, Ok(&*long)),
            (&longest, Ok(&*longest)),
            (&format!("{longest}w"), Err(InvalidHost::Malformed)),
            (&too_long, Err(InvalidHost::Malformed)),
            ("", Err(InvalidHost::Malformed)),
            (".", Err(InvalidHost::Malformed)),
            ("a..example", Err(InvalidHost::Malformed)),
            ("go.example..", Err(InvalidHost::Malformed)),
            ("-a.example", Err(InvalidHost::Malformed)),
            ("go.example:443", Err(InvalidHost::Malformed)),
            ("https://go.example", Err(InvalidHost::Malformed)),
            ("go.example/x", Err(InvalidHost::Malformed)),
            ("u@go.example", Err(InvalidHost::Malformed)),
            ("a*b.example", Err(InvalidHost::Malformed)),
            ("a b.example", Err(InvalidHost::Malformed)),
            ("a\0b.example", Err(InvalidHost::Malformed)),
            ("192.0.2.1", Err(InvalidHost::Address)),
            ("127.1", Err(InvalidHost::Address)),
            ("[::1]", Err(InvalidHost::Address)),
            ("Default", Err(InvalidHost::Reserved)),
        ] {
            assert_eq!(parse(text).as_deref(), expected.as_ref().map(|host| *host), "{text:?}");
        }
    }

    #[test]
    fn a_host_is_found_in_an_authority() {
        for (authority, expected) in [
            ("go.example", "go.example"),
            ("Go.Example:8080", "Go.Example"),
            ("go.example:", "go.example"),
            ("go.example.", "go.example"),
            ("go.example.:80", "go.example"),
            ("go.example..", "go.example."),
            ("go.example:80:90", ""),
            ("go.example:x", ""),
            ("[2001:db8::1]:80", "[2001:db8::1]"),
            ("[2001:db8::1", "[2001:db8::1"),
            ("[::1]x", ""),
            (":80", ""),
            ("", ""),
            (".", ""),
        ] {
            let found = of_authority(authority.as_bytes());
            assert_eq!(found, expected.as_bytes(), "{authority:?}");
        }
        assert!(is_at(b"GO.example.:443", "go.example"));
        assert!(!is_at(b"go.example.evil", "go.example"));
    }
}
