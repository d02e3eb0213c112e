//! Trees that belong to a host.

use std::collections::HashMap;

use http::{Request, header};

/// The longest name of a host, in bytes (RFC 1035, section 2.3.4).
const MAX_HOST: usize = 255;

/// Which trees to look into for which host. Trees are known by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    exact: HashMap<Box<str>, u32>,
    /// What follows the `*`, with its dot; the longest first.
    wildcards: Vec<(Box<str>, u32)>,
}

impl Hosts {
    /// Adds a host that [`normal`] has seen.
    pub(crate) fn add(&mut self, host: &str, tree: u32) {
        match host.strip_prefix('*') {
            None => {
                self.exact.insert(host.into(), tree);
            }
            Some(suffix) => {
                self.wildcards.push((suffix.into(), tree));
                self.wildcards.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
            }
        }
    }

    /// The first that `look` finds in a tree of the request's host, the most exact host first.
    pub(crate) fn find<B, T>(&self, request: &Request<B>, look: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let host = host(request)?;
        let mut lower = [0; MAX_HOST];
        let lower = lower.get_mut(..host.len())?;
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let host = std::str::from_utf8(lower).ok()?;
        let fits = |suffix: &str| host.len() > suffix.len() && host.ends_with(suffix);
        let wildcards = self.wildcards.iter().filter(|(suffix, _)| fits(suffix));
        self.exact.get(host).into_iter().chain(wildcards.map(|(_, tree)| tree)).copied().find_map(look)
    }
}

/// The host that a request is for: of its URI, as HTTP/2 and proxies have it, or of the field `Host`
/// (RFC 9110, section 7.2); without port.
fn host<B>(request: &Request<B>) -> Option<&str> {
    if let Some(host) = request.uri().host() {
        return Some(host);
    }
    let field = request.headers().get(header::HOST)?.to_str().ok()?;
    let end =
        if field.starts_with('[') { field.find(']')? + 1 } else { field.find(':').unwrap_or(field.len()) };
    Some(&field[..end])
}

/// A host as it is compared: a name or `*.` and a name, in small letters, without port.
pub(crate) fn normal(host: &str) -> Option<String> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let address = name.starts_with('[') && name.ends_with(']');
    let legal = !name.is_empty() && host.len() <= MAX_HOST && (address || name.bytes().all(letters));
    legal.then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_of_the_uri_or_of_the_field() {
        for (uri, field, expected) in [
            ("/", None, None),
            ("/", Some("a.example"), Some("a.example")),
            ("/", Some("a.example:8080"), Some("a.example")),
            ("/", Some("[::1]:8080"), Some("[::1]")),
            ("/", Some("[::1"), None),
            ("http://b.example:1/", Some("a.example"), Some("b.example")),
        ] {
            let mut request = Request::builder().uri(uri);
            if let Some(field) = field {
                request = request.header(header::HOST, field);
            }
            assert_eq!(host(&request.body(()).expect("a request")), expected, "{uri} {field:?}");
        }
    }

    #[test]
    fn the_most_exact_host_is_looked_into_first() {
        let mut hosts = Hosts::default();
        for (tree, host) in ["*.example", "a.b.example", "*.b.example"].into_iter().enumerate() {
            hosts.add(host, tree as u32);
        }
        for (host, expected) in [
            ("a.b.example", &[1, 2, 0][..]),
            ("A.B.Example:80", &[1, 2, 0]),
            ("x.b.example", &[2, 0]),
            ("b.example", &[0]),
            ("example", &[]),
            (".example", &[]),
            ("other", &[]),
        ] {
            let request = Request::builder().header(header::HOST, host).body(()).expect("a request");
            let mut trees = Vec::new();
            assert!(
                hosts
                    .find(&request, |tree| {
                        trees.push(tree);
                        None::<()>
                    })
                    .is_none()
            );
            assert_eq!(trees, expected, "{host}");
        }
    }

    #[test]
    fn hosts_are_names() {
        for (host, expected) in [
            ("Example.com", Some("example.com")),
            ("*.Example.com", Some("*.example.com")),
            ("[::1]", Some("[::1]")),
            ("", None),
            ("*.", None),
            ("*", None),
            ("a.*.b", None),
            ("a:80", None),
            ("a/b", None),
        ] {
            assert_eq!(normal(host).as_deref(), expected, "{host}");
        }
    }
}
