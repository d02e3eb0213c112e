//! The routes of a path, by method.

use http::Method;

/// No route.
const NONE: u32 = u32::MAX;

/// The number of methods that have a number: those of RFC 9110, section 9, and PATCH (RFC 5789).
const KNOWN: usize = 9;

const GET: usize = 0;
const HEAD: usize = 1;

/// The routes of one path, as numbers.
#[derive(Debug)]
pub(crate) struct Methods {
    /// The routes by [`index`]. If HEAD has no route, it has GET's.
    known: [u32; KNOWN],
    /// Routes of methods without a number.
    others: Box<[(Method, u32)]>,
    /// The number of the path's `Allow`.
    allow: u32,
}

impl Methods {
    /// Makes the table from these routes, each with a different method.
    pub(crate) fn new(routes: Vec<(Method, u32)>, allow: u32) -> Self {
        let mut known = [NONE; KNOWN];
        let mut others = Vec::new();
        for (method, route) in routes {
            match index(&method) {
                Some(index) => known[index] = route,
                None => others.push((method, route)),
            }
        }
        if known[HEAD] == NONE {
            known[HEAD] = known[GET];
        }
        Self { known, others: others.into(), allow }
    }

    /// The route of a method.
    #[inline]
    pub(crate) fn find(&self, method: &Method) -> Option<u32> {
        match index(method) {
            Some(index) => Some(self.known[index]).filter(|&route| route != NONE),
            None => self.others.iter().find(|(other, _)| other == method).map(|(_, route)| *route),
        }
    }

    pub(crate) fn allow(&self) -> u32 {
        self.allow
    }
}

/// The methods of these routes in their order, as the text of `Allow` (RFC 9110, section 10.2.1). If HEAD has no route,
/// it follows GET.
pub(crate) fn allow(routes: &[(Method, u32)]) -> String {
    let own_head = routes.iter().any(|(method, _)| *method == Method::HEAD);
    let names: Vec<&str> = routes
        .iter()
        .map(|(method, _)| if *method == Method::GET && !own_head { "GET,HEAD" } else { method.as_str() })
        .collect();
    names.join(",")
}

/// The number of a method, if it has one.
#[inline(always)]
fn index(method: &Method) -> Option<usize> {
    Some(match *method {
        Method::GET => GET,
        Method::HEAD => HEAD,
        Method::POST => 2,
        Method::PUT => 3,
        Method::DELETE => 4,
        Method::OPTIONS => 5,
        Method::PATCH => 6,
        Method::TRACE => 7,
        Method::CONNECT => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(name: &str) -> Method {
        Method::from_bytes(name.as_bytes()).expect("a token")
    }

    #[test]
    fn each_method_finds_its_route() {
        let routes = vec![(method("PURGE"), 10), (Method::POST, 11), (Method::GET, 12)];
        assert_eq!(allow(&routes), "PURGE,POST,GET,HEAD");
        let methods = Methods::new(routes, 0);
        for (name, found) in [
            ("GET", Some(12)),
            ("HEAD", Some(12)),
            ("POST", Some(11)),
            ("PURGE", Some(10)),
            ("OPTIONS", None),
            ("PUT", None),
            ("BREW", None),
            ("get", None),
        ] {
            assert_eq!(methods.find(&method(name)), found, "{name}");
        }
    }

    #[test]
    fn head_may_have_a_route_of_its_own() {
        let routes = vec![(Method::GET, 1), (Method::HEAD, 2)];
        assert_eq!(allow(&routes), "GET,HEAD");
        assert_eq!(Methods::new(routes, 0).find(&Method::HEAD), Some(2));
    }

    #[test]
    fn known_methods_have_a_number_each() {
        let names = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];
        let numbers: Vec<_> = names.iter().filter_map(|name| index(&method(name))).collect();
        assert_eq!(numbers, (0..KNOWN).collect::<Vec<_>>());
    }
}
