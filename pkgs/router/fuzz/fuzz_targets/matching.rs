//! Any routes and any path: a match is the route with its parameters filled in, only for the route's methods, and it is
//! the same without the other routes.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use router::{Builder, Lookup};

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let Some(path) = lines.next() else { return };
    let mut builder = Builder::new();
    let mut routes = Vec::new();
    for route in lines.take(64) {
        if builder.insert(Method::GET, route, routes.len()).is_ok() {
            routes.push(route);
        }
    }
    let Ok(router) = builder.build() else { return };
    let Some(found) = router.find(&Method::GET, path).matched() else { return };
    assert_eq!(found.pattern(), routes[*found.value]);
    assert!(found.params().all(|(_, value)| !value.is_empty()));
    let other = router.find(&Method::PUT, path);
    assert!(matches!(other, Lookup::MethodNotAllowed(allow) if allow == "GET,HEAD"));

    // Literals are compared as RFC 3986 normalises them, so this simple comparison is valid only without escapes.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@{}".contains(&byte);
    if path.bytes().all(plain) && found.pattern().bytes().all(plain) {
        assert_eq!(filled(found.pattern(), found.params()), path, "{}", found.pattern());
    }

    let mut alone = Builder::new();
    alone.insert(Method::GET, found.pattern(), ()).expect("a route again");
    let alone = alone.build().expect("one route is never ambiguous");
    let again = alone.find(&Method::GET, path).matched().expect("a match again");
    assert!(again.params().eq(found.params()));
});

/// The route with its parameters filled in.
fn filled<'a>(route: &str, mut params: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut path = String::new();
    let mut rest = route;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("{{") || rest.starts_with("}}") {
            path.push(first);
            rest = &rest[2..];
        } else if first == '{' {
            let end = rest.find('}').expect("a closed brace");
            path.push_str(params.next().expect("as many parameters as braces").1);
            rest = &rest[end + 1..];
        } else {
            path.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    assert!(params.next().is_none());
    path
}
