//! Which route matches which path, in tables.

use http::Method;
use router::{BuildError, Builder, Lookup, MAX_PATH, Match, Router, SyntaxError};

fn router(routes: &[&'static str]) -> Router<&'static str> {
    let mut builder = Builder::new();
    for route in routes {
        builder.insert(Method::GET, route, *route).expect(route);
    }
    builder.build().expect("a tree")
}

fn find<'r, 'p, T>(router: &'r Router<T>, path: &'p str) -> Option<Match<'r, 'p, T>> {
    router.find(&Method::GET, path).matched()
}

/// A path, and the route that it matches, with its parameters.
type Case<'a> = (&'a str, Option<(&'a str, &'a [(&'a str, &'a str)])>);

#[track_caller]
fn check(routes: &[&'static str], cases: &[Case<'_>]) {
    // The tree does not depend on the order in which routes are added.
    let mut reversed = routes.to_vec();
    reversed.reverse();
    for router in [router(routes), router(&reversed)] {
        for (path, expected) in cases {
            let found = find(&router, path);
            let found = found.as_ref().map(|found| (found.pattern(), found.params().collect::<Vec<_>>()));
            let expected = expected.map(|(route, params)| (route, params.to_vec()));
            assert_eq!(found, expected, "{path}");
            // The shorter way says the same or nothing.
            if let Some((route, param)) = router.find_segment(&Method::GET, path) {
                let (pattern, params) = found.expect("a route");
                assert_eq!((pattern, &params[..]), (*route, &[(params[0].0, param)][..]), "{path}");
            }
        }
    }
}

#[test]
fn static_routes_match_whole_paths() {
    check(
        &["/", "/a", "/a/b", "/ab", "/a/b/c/d", "/long/run/of/segments/without/a/branch", "/x/", "/x//y"],
        &[
            ("/", Some(("/", &[]))),
            ("/a", Some(("/a", &[]))),
            ("/a/", None),
            ("/ab", Some(("/ab", &[]))),
            ("/abc", None),
            ("/a/b", Some(("/a/b", &[]))),
            ("/a/b/c", None),
            ("/a/b/c/d", Some(("/a/b/c/d", &[]))),
            ("/long/run/of/segments/without/a/branch", Some(("/long/run/of/segments/without/a/branch", &[]))),
            ("/long/run/of/segments/without/a/branch/", None),
            ("/long/run/of", None),
            ("/x", None),
            ("/x/", Some(("/x/", &[]))),
            ("/x//y", Some(("/x//y", &[]))),
            ("/x/y", None),
            ("//", None),
            ("", None),
            ("a", None),
            ("*", None),
        ],
    );
}

#[test]
fn many_siblings_are_told_apart() {
    let routes: Vec<&'static str> = (0..500).map(|n| &*format!("/n{n}/leaf/{{id}}").leak()).collect();
    let router = router(&routes);
    for (n, route) in routes.iter().enumerate() {
        let path = format!("/n{n}/leaf/x");
        assert_eq!(*find(&router, &path).expect("a route").value, *route);
        assert!(find(&router, &format!("/n{n}")).is_none());
    }
    assert!(find(&router, "/n500/leaf/x").is_none());
}

#[test]
fn parameters_take_whole_segments_that_are_not_empty() {
    check(
        &["/users/{id}", "/users/{id}/posts/{post}", "/{a}/{b}/{c}/{d}"],
        &[
            ("/users/7", Some(("/users/{id}", &[("id", "7")]))),
            ("/users/", None),
            ("/users/7/", None),
            ("/users/7/posts/9", Some(("/users/{id}/posts/{post}", &[("id", "7"), ("post", "9")]))),
            (
                "/users/7/likes/9",
                Some(("/{a}/{b}/{c}/{d}", &[("a", "users"), ("b", "7"), ("c", "likes"), ("d", "9")])),
            ),
            ("/users//posts/9", None),
            ("/users/a%2Fb", Some(("/users/{id}", &[("id", "a%2Fb")]))),
            ("/users/a%2fb", Some(("/users/{id}", &[("id", "a%2fb")]))),
        ],
    );
}

#[test]
fn the_first_class_that_leads_to_a_route_wins() {
    check(
        &["/f/new", "/f/{name}", "/f/{*rest}", "/f/{name}/edit", "/f/{name}.x/edit"],
        &[
            ("/f/new", Some(("/f/new", &[]))),
            ("/f/name", Some(("/f/{name}", &[("name", "name")]))),
            ("/f/new/edit", Some(("/f/{name}/edit", &[("name", "new")]))),
            ("/f/7.x/edit", Some(("/f/{name}.x/edit", &[("name", "7")]))),
            ("/f/new/x", Some(("/f/{*rest}", &[("rest", "new/x")]))),
            ("/f/7/edit/", Some(("/f/{*rest}", &[("rest", "7/edit/")]))),
            ("/f//", Some(("/f/{*rest}", &[("rest", "/")]))),
            ("/f/", None),
            ("/f", None),
        ],
    );
}

#[test]
fn prefixes_and_suffixes_narrow_a_parameter() {
    check(
        &["/{name}.json", "/{name}.tar.gz", "/{name}.gz", "/v{any}", "/{a}", "/x{a}", "/{a}y"],
        &[
            ("/report.json", Some(("/{name}.json", &[("name", "report")]))),
            ("/.json", Some(("/{a}", &[("a", ".json")]))),
            ("/a.tar.gz", Some(("/{name}.tar.gz", &[("name", "a")]))),
            (".gz", None),
            ("/.tar.gz", Some(("/{name}.gz", &[("name", ".tar")]))),
            ("/v9", Some(("/v{any}", &[("any", "9")]))),
            ("/v", Some(("/{a}", &[("a", "v")]))),
            ("/xy", Some(("/x{a}", &[("a", "y")]))),
            ("/ay", Some(("/{a}y", &[("a", "a")]))),
            ("/other", Some(("/{a}", &[("a", "other")]))),
        ],
    );
}

#[test]
fn a_failed_branch_leaves_no_parameters_behind() {
    check(
        &["/{a}/{b}/{c}/end", "/{x}/static/{*rest}", "/one/{y}/{z}/other"],
        &[
            ("/one/static/q/end", Some(("/{x}/static/{*rest}", &[("x", "one"), ("rest", "q/end")]))),
            ("/one/two/q/end", Some(("/{a}/{b}/{c}/end", &[("a", "one"), ("b", "two"), ("c", "q")]))),
            ("/one/static/q/other", Some(("/one/{y}/{z}/other", &[("y", "static"), ("z", "q")]))),
        ],
    );
}

#[test]
fn catch_alls_take_what_is_left() {
    check(
        &["/{*all}", "/files/{*path}", "/files/readme", "/files/{id}/raw"],
        &[
            ("/", None),
            ("/x", Some(("/{*all}", &[("all", "x")]))),
            ("/x/y/", Some(("/{*all}", &[("all", "x/y/")]))),
            ("/files/", Some(("/{*all}", &[("all", "files/")]))),
            ("/files/a/b", Some(("/files/{*path}", &[("path", "a/b")]))),
            ("/files/readme", Some(("/files/readme", &[]))),
            ("/files/readme/", Some(("/files/{*path}", &[("path", "readme/")]))),
            ("/files/a/raw", Some(("/files/{id}/raw", &[("id", "a")]))),
            ("//a", Some(("/{*all}", &[("all", "/a")]))),
        ],
    );
}

#[test]
fn escapes_are_compared_as_rfc_3986_normalises_them() {
    check(
        &["/~user", "/caf\u{e9}/{x}", "/a%2fb", "/{{id}}", "/{p}/b", "/{p}"],
        &[
            ("/~user", Some(("/~user", &[]))),
            ("/%7Euser", Some(("/~user", &[]))),
            ("/%7euser", Some(("/~user", &[]))),
            ("/caf%C3%A9/1", Some(("/caf\u{e9}/{x}", &[("x", "1")]))),
            ("/caf%c3%a9/%41", Some(("/caf\u{e9}/{x}", &[("x", "%41")]))),
            ("/a%2Fb", Some(("/a%2fb", &[]))),
            ("/a%2fb", Some(("/a%2fb", &[]))),
            ("/a/b", Some(("/{p}/b", &[("p", "a")]))),
            ("/{id}", Some(("/{{id}}", &[]))),
            ("/%7Bid%7D", Some(("/{{id}}", &[]))),
            ("/x%20y", Some(("/{p}", &[("p", "x%20y")]))),
            ("/%41%2f%42", Some(("/{p}", &[("p", "%41%2f%42")]))),
            ("/100%", Some(("/{p}", &[("p", "100%")]))),
        ],
    );
    let router = router(&["/{p}"]);
    for (path, decoded) in
        [("/a%2Fb%20c", "a/b c"), ("/%61b", "ab"), ("/%61%2fb", "a/b"), ("/ab", "ab"), ("/a%b", "a%b")]
    {
        let found = find(&router, path).expect("a route");
        assert_eq!(found.decoded("p").expect("a parameter").as_deref(), Ok(decoded), "{path}");
        assert_eq!(found.first_decoded().expect("a parameter").as_deref(), Ok(decoded), "{path}");
    }
    let found = find(&router, "/ab").expect("a route");
    assert!(found.decoded("q").is_none());
    assert!(find(&router, "/%ff").expect("a route").decoded("p").expect("a parameter").is_err());
}

#[test]
fn dots_are_segments_like_others() {
    check(
        &["/a/{p}", "/b/{*rest}"],
        &[
            ("/a/..", Some(("/a/{p}", &[("p", "..")]))),
            ("/b/../a/x", Some(("/b/{*rest}", &[("rest", "../a/x")]))),
        ],
    );
}

#[test]
fn a_path_that_is_too_long_matches_nothing() {
    let router = router(&["/{*rest}"]);
    let path = format!("/{}", "a".repeat(MAX_PATH));
    assert!(find(&router, &path[..MAX_PATH]).is_some());
    assert!(find(&router, &path).is_none());
}

#[test]
fn conflicts_name_both_routes() {
    for (old, new) in [
        ("/a", "/a"),
        ("/{a}", "/{b}"),
        ("/{a}/{*rest}", "/{b}/{*all}"),
        ("/x{a}y", "/x{b}y"),
        ("/~a", "/%7Ea"),
        ("/caf\u{e9}", "/caf%c3%a9"),
    ] {
        let mut builder = Builder::new();
        builder.insert(Method::GET, old, ()).expect(old);
        let method = "GET".to_owned();
        let conflict = BuildError::Conflict { new: new.to_owned(), old: old.to_owned(), method };
        assert_eq!(conflict.to_string(), format!("route {new:?} conflicts with {old:?} for GET"));
        assert_eq!(builder.insert(Method::GET, new, ()), Err(conflict));
        builder.insert(Method::PUT, new, ()).expect("another method");
    }
    for (old, new) in [("/a", "/a/"), ("/{a}", "/{*a}"), ("/{a}x", "/x{a}")] {
        let mut builder = Builder::new();
        builder.insert(Method::GET, old, ()).expect(old);
        builder.insert(Method::GET, new, ()).expect(new);
    }
}

#[test]
fn faulty_routes_say_what_is_wrong() {
    let mut builder = Builder::new();
    for (route, message) in [
        ("a", "route \"a\": a route begins with /, at byte 0"),
        (
            "/x/{id",
            "route \"/x/{id\": { is not closed in its segment (a literal brace is written twice), at byte 3",
        ),
        (
            "/{a-b}",
            "route \"/{a-b}\": a parameter's name has letters, digits and _, and begins with no digit, at byte 1",
        ),
    ] {
        assert_eq!(builder.insert(Method::GET, route, ()).expect_err(route).to_string(), message);
    }
    assert!(matches!(
        builder.insert(Method::GET, "/a}", ()),
        Err(BuildError::Syntax { reason: SyntaxError::Unopened, .. })
    ));
}

#[test]
fn what_failed_to_be_added_is_not_there() {
    let mut builder = Builder::new();
    builder.insert(Method::GET, "/a/{id", 1).expect_err("a brace is open");
    builder.insert(Method::GET, "/a/{id}", 2).expect("a route");
    builder.insert(Method::GET, "/a/{other}", 3).expect_err("a conflict");
    let router = builder.build().expect("a tree");
    assert_eq!(*find(&router, "/a/x").expect("a route").value, 2);
    assert!(find(&router, "/a").is_none());
}

#[test]
fn each_method_of_a_path_has_a_route_and_names_of_its_own() {
    let mut builder = Builder::new();
    for (method, pattern) in [
        (Method::POST, "/users"),
        (Method::GET, "/users"),
        (Method::GET, "/users/{id}"),
        (Method::PUT, "/users/{user}"),
        (Method::OPTIONS, "/users/{id}/x"),
    ] {
        let value = format!("{method} {pattern}");
        builder.insert(method, pattern, value).expect(pattern);
    }
    let router = builder.build().expect("a tree");
    for (method, path, value, params) in [
        (Method::GET, "/users", "GET /users", None),
        (Method::HEAD, "/users", "GET /users", None),
        (Method::POST, "/users", "POST /users", None),
        (Method::HEAD, "/users/7", "GET /users/{id}", Some(("id", "7"))),
        (Method::PUT, "/users/7", "PUT /users/{user}", Some(("user", "7"))),
        (Method::OPTIONS, "/users/7/x", "OPTIONS /users/{id}/x", Some(("id", "7"))),
    ] {
        let found = router.find(&method, path).matched().expect(path);
        assert_eq!(found.value, value, "{method} {path}");
        assert_eq!(found.params().next(), params, "{method} {path}");
    }
    for (method, path, allow) in [
        ("DELETE", "/users", "POST,GET,HEAD"),
        ("OPTIONS", "/users", "POST,GET,HEAD"),
        ("BREW", "/users/7", "GET,HEAD,PUT"),
        ("GET", "/users/7/x", "OPTIONS"),
    ] {
        let method = Method::from_bytes(method.as_bytes()).expect("a token");
        let Lookup::MethodNotAllowed(told) = router.find(&method, path) else { panic!("{method} {path}") };
        assert_eq!(told, allow, "{method} {path}");
    }
    for path in ["/", "/users/", "/users/7/", "*", ""] {
        assert!(matches!(router.find(&Method::OPTIONS, path), Lookup::NotFound), "{path}");
    }
}

#[test]
fn the_path_decides_before_the_method_does() {
    let mut builder = Builder::new();
    builder.insert(Method::GET, "/users/me", ()).expect("a route");
    builder.insert(Method::PUT, "/users/{id}", ()).expect("a route");
    let router = builder.build().expect("a tree");
    let Lookup::MethodNotAllowed(allow) = router.find(&Method::PUT, "/users/me") else { panic!("a route") };
    assert_eq!(allow, "GET,HEAD");
}

/// Behaviour on which users of other routers rely, with our own routes.
#[test]
fn a_static_beginning_that_leads_nowhere_gives_way() {
    check(
        &["/{kind}/{id}", "/vault/{id}/open", "/vault/keys"],
        &[
            ("/vault/keys", Some(("/vault/keys", &[]))),
            ("/vault/7", Some(("/{kind}/{id}", &[("kind", "vault"), ("id", "7")]))),
            ("/vault/7/open", Some(("/vault/{id}/open", &[("id", "7")]))),
            ("/vault/keys/open", Some(("/vault/{id}/open", &[("id", "keys")]))),
            ("/box/7", Some(("/{kind}/{id}", &[("kind", "box"), ("id", "7")]))),
            ("/vault/7/shut", None),
        ],
    );
    check(
        &["/docs/start", "/docs/start/{step}", "/docs/{*page}"],
        &[
            ("/docs/start", Some(("/docs/start", &[]))),
            ("/docs/start/2", Some(("/docs/start/{step}", &[("step", "2")]))),
            ("/docs/start/2/", Some(("/docs/{*page}", &[("page", "start/2/")]))),
            ("/docs/start/", Some(("/docs/{*page}", &[("page", "start/")]))),
            ("/docs/st", Some(("/docs/{*page}", &[("page", "st")]))),
            ("/docs", None),
        ],
    );
}

#[test]
fn common_beginnings_of_segments_mean_nothing() {
    check(
        &["/cat", "/cats", "/cat/nap", "/cat_nap", "/c/{x}", "/ca/{x}"],
        &[
            ("/cat", Some(("/cat", &[]))),
            ("/cats", Some(("/cats", &[]))),
            ("/cat/", None),
            ("/cat_nap", Some(("/cat_nap", &[]))),
            ("/catnap", None),
            ("/c/at", Some(("/c/{x}", &[("x", "at")]))),
            ("/ca/t", Some(("/ca/{x}", &[("x", "t")]))),
            ("/ca", None),
        ],
    );
}

#[test]
fn a_suffix_and_a_longer_route_share_a_segment() {
    check(
        &["/img/{name}.png", "/img/{name}/meta", "/img/{name}", "/img/{name}.png/raw"],
        &[
            ("/img/a.png", Some(("/img/{name}.png", &[("name", "a")]))),
            ("/img/a.png/meta", Some(("/img/{name}/meta", &[("name", "a.png")]))),
            ("/img/a.png/raw", Some(("/img/{name}.png/raw", &[("name", "a")]))),
            ("/img/a.jpg", Some(("/img/{name}", &[("name", "a.jpg")]))),
            ("/img/.png", Some(("/img/{name}", &[("name", ".png")]))),
        ],
    );
}

#[test]
fn one_segment_is_found_by_the_shorter_way() {
    let segment = |routes: &[&'static str], path: &str| {
        let router = router(routes);
        router.find_segment(&Method::GET, path).map(|(route, param)| (*route, param.to_owned()))
    };
    let found = |param: &str| Some(("/{code}", param.to_owned()));
    let routes = ["/", "/robots.txt", "/{code}", "/a/b", "/{code}/more", "/{*rest}"];
    for path in ["/abc", "/a", "/robots.txt.", "/0123456789abcdef"] {
        assert_eq!(segment(&routes, path), found(&path[1..]), "{path}");
    }
    for path in ["", "/", "abc", "*", "/robots.txt", "/a/b", "/abc/", "/a%62c", "//abc"] {
        assert_eq!(segment(&routes, path), None, "{path}");
    }
    assert_eq!(segment(&["/{code}"], "/abc"), found("abc"), "without routes of fixed paths");
    // Others go before it, or there is none that takes any segment.
    for routes in [&["/a{x}", "/{code}"][..], &["/{code}/more"], &["/{*rest}"], &["/v1/{code}"]] {
        assert_eq!(segment(routes, "/abc"), None, "{routes:?}");
    }
    assert_eq!(router(&routes).find_segment(&Method::POST, "/abc"), None, "another method");
}
