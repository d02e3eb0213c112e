//! The paths for visitors: one table for every protocol.

use std::borrow::Cow;

use http::Method;
use router::{Lookup, Router};

/// The purpose of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Root,
    Robots,
    Favicon,
    Link,
}

/// The paths. If a fixed path matches, it goes before `/{code}`: such codes are reserved.
#[rustfmt::skip]
const TABLE: [(Method, &str, Page); 5] = [
    (Method::GET,  "/",            Page::Root),
    (Method::GET,  "/robots.txt",  Page::Robots),
    (Method::GET,  "/favicon.ico", Page::Favicon),
    (Method::GET,  "/{code}",      Page::Link),
    // The form of a link with a password.
    (Method::POST, "/{code}",      Page::Link),
];

/// The target of a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'p> {
    /// `/`.
    Root,
    /// `/robots.txt`.
    Robots,
    /// `/favicon.ico`.
    Favicon,
    /// The link of this code, which may not exist.
    Link(Cow<'p, str>),
    /// No path of the table.
    Nothing,
}

/// The table, compiled.
pub struct Routes(Router<Page>);

impl Routes {
    /// Compiles [`TABLE`].
    pub fn new() -> Self {
        let mut routes = router::Builder::new();
        for (method, path, page) in TABLE {
            routes.insert(method, path, page).expect("paths of the table, each with a method once");
        }
        Self(routes.build().expect("a table of few routes"))
    }

    /// The target of a path; `None` if the path has only other methods. Allocates only for a code with escapes.
    #[inline]
    pub fn find<'p>(&self, method: &Method, path: &'p str) -> Option<Target<'p>> {
        if let Some((Page::Link, code)) = self.0.find_segment(method, path) {
            return Some(Target::Link(Cow::Borrowed(code)));
        }
        match self.0.find(method, path) {
            Lookup::Match(found) => Some(match found.value {
                Page::Link => match found.first_decoded() {
                    Some(Ok(code)) => Target::Link(code),
                    _ => Target::Nothing,
                },
                Page::Root => Target::Root,
                Page::Robots => Target::Robots,
                Page::Favicon => Target::Favicon,
            }),
            Lookup::MethodNotAllowed(_) => None,
            Lookup::NotFound => Some(Target::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::CodePolicy;

    #[test]
    fn each_path_is_of_what_it_names() {
        let routes = Routes::new();
        let link = |code: &'static str| Some(Target::Link(Cow::Borrowed(code)));
        for (path, get, post) in [
            ("/", Some(Target::Root), None),
            ("/robots.txt", Some(Target::Robots), None),
            ("/robots%2etxt", Some(Target::Robots), None),
            ("/favicon.ico", Some(Target::Favicon), None),
            ("/Robots.txt", link("Robots.txt"), link("Robots.txt")),
            ("/robots.txt.", link("robots.txt."), link("robots.txt.")),
            ("/abc", link("abc"), link("abc")),
            ("/%61bc", link("abc"), link("abc")),
            ("/a%2Fb", link("a/b"), link("a/b")),
            ("/%ff", Some(Target::Nothing), Some(Target::Nothing)),
            ("/abc/", Some(Target::Nothing), Some(Target::Nothing)),
            ("//abc", Some(Target::Nothing), Some(Target::Nothing)),
            ("/robots.txt/abc", Some(Target::Nothing), Some(Target::Nothing)),
            ("*", Some(Target::Nothing), Some(Target::Nothing)),
            ("", Some(Target::Nothing), Some(Target::Nothing)),
        ] {
            for (method, expected) in [(Method::GET, &get), (Method::HEAD, &get), (Method::POST, &post)] {
                assert_eq!(routes.find(&method, path), *expected, "{method} {path}");
            }
        }
        assert_eq!(routes.find(&Method::PUT, "/abc"), None);
    }

    #[test]
    fn no_link_is_where_a_fixed_path_is() {
        for (_, path, _) in TABLE.iter().filter(|(_, _, page)| *page != Page::Link) {
            assert!(CodePolicy::default().validate(&path[1..]).is_err(), "{path}");
        }
    }
}
