//! Which domain answers, depending on the host that a request names.

use links::domains::{Domain, NewDomain};
use links::front::{Settings, UnknownHost};

use crate::http::Answer;
use crate::server::{Server, settings};

/// A server with a link `abc` at the default domain and at two others. The target of each contains its domain.
fn server(adjust: impl FnOnce(&mut Settings)) -> Server {
    let mut settings = settings();
    settings.root_target = Some("https://root.example/".to_owned());
    adjust(&mut settings);
    let server = Server::start(settings);
    server.link("abc", |link| "https://t.example/default".clone_into(&mut link.target));
    for host in ["a.example", "xn--bcher-kva.example"] {
        domain(&server, NewDomain { host: host.to_owned(), ..NewDomain::default() });
        at(&server, host, "abc");
    }
    server
}

fn domain(server: &Server, new: NewDomain) -> Domain {
    server.store().create_domain(new).wait().expect("a valid domain")
}

fn at(server: &Server, host: &str, code: &str) {
    server.link(code, |link| {
        link.target = format!("https://t.example/{host}");
        link.domain = Some(host.to_owned());
    });
}

fn get(server: &Server, host: &str, path: &str) -> Answer {
    server.answer(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\n\r\n"))
}

/// The target to which a code leads at a host.
fn led(server: &Server, host: &str) -> String {
    let answer = get(server, host, "/abc");
    assert_eq!(answer.status, 307, "{host:?}: {answer:?}");
    answer.location().trim_start_matches("https://t.example/").to_owned()
}

#[test]
fn the_host_tells_the_domain_and_an_unknown_one_the_default() {
    let server = server(|_| {});
    let long = format!("{}.a.example", "x".repeat(4_000));
    for (host, expected) in [
        ("a.example", "a.example"),
        ("A.EXAMPLE", "a.example"),
        ("a.example:8080", "a.example"),
        ("a.example:", "a.example"),
        ("a.example.", "a.example"),
        ("A.Example.:443", "a.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("b.example", "default"),
        ("a.example..", "default"),
        (".a.example", "default"),
        ("a.example:80:80", "default"),
        ("a.example:port", "default"),
        ("a.example,b.example", "default"),
        ("a%2Eexample", "default"),
        ("[::1]", "default"),
        ("[::1]:8080", "default"),
        ("[a.example]", "default"),
        ("192.0.2.1", "default"),
        ("", "default"),
        (":", "default"),
        (".", "default"),
        (&long, "default"),
    ] {
        assert_eq!(led(&server, host), expected, "{host:.300?}");
    }
    for host in ["a.example\\", "u@a.example", "a.ex\u{e4}mple", "a.example/x", "a b"] {
        assert_eq!(get(&server, host, "/abc").status, 400, "{host:?}");
    }
}

#[test]
fn the_target_in_absolute_form_names_the_host_before_the_field_does() {
    let server = server(|_| {});
    for (head, expected) in [
        ("GET http://a.example/abc HTTP/1.1\r\nHost: xn--bcher-kva.example", "a.example"),
        ("GET https://A.EXAMPLE:99/abc HTTP/1.1\r\nHost: h", "a.example"),
        ("GET http://b.example/abc HTTP/1.1\r\nHost: a.example", "default"),
        ("GET /%61bc HTTP/1.1\r\nHost: a.example", "a.example"),
        ("GET /abc HTTP/1.0\r\nHost: a.example", "a.example"),
        ("GET /abc HTTP/1.0", "default"),
        (
            "GET /abc HTTP/1.1\r\nHost: h\r\nX-Forwarded-Host: a.example\r\nForwarded: host=a.example",
            "default",
        ),
    ] {
        let answer = server.answer(format!("{head}\r\n\r\n"));
        assert_eq!(answer.location(), format!("https://t.example/{expected}"), "{head:?}");
    }
}

#[test]
fn one_connection_may_ask_at_all_domains() {
    let server = server(|_| {});
    let mut client = server.connect();
    for _ in 0..3 {
        for host in ["a.example", "h", "xn--bcher-kva.example", "A.example:1"] {
            client.send(format!("GET /abc HTTP/1.1\r\nHost: {host}\r\n\r\n")).unwrap();
        }
        for expected in ["a.example", "default", "xn--bcher-kva.example", "a.example"] {
            assert_eq!(client.receive().unwrap().location(), format!("https://t.example/{expected}"));
        }
    }
}

#[test]
fn unknown_hosts_have_nothing_where_that_is_asked_for() {
    let own = "go.example".to_owned();
    let server = server(|settings| settings.unknown_host = UnknownHost::NotFound { own });
    assert_eq!(led(&server, "Go.example:8443"), "default");
    assert_eq!(led(&server, "a.example"), "a.example");
    assert_eq!(get(&server, "go.example", "/").location(), "https://root.example/");
    for host in ["b.example", "go.example.b.example", "127.0.0.1", "[::1]", ""] {
        for path in ["/abc", "/", "/robots.txt", "/favicon.ico", "/no", "/%61bc"] {
            assert_eq!(get(&server, host, path).status, 404, "{host:?} {path}");
        }
    }
    assert_eq!(server.answer("GET /abc HTTP/1.0\r\n\r\n").status, 404);
    // The same holds if there are no domains.
    let mut configured = settings();
    configured.unknown_host = UnknownHost::NotFound { own: "go.example".to_owned() };
    let server = Server::start(configured);
    server.link("abc", |_| {});
    for (host, status) in [("go.example", 307), ("b.example", 404)] {
        assert_eq!(get(&server, host, "/abc").status, status, "{host}");
    }
}

#[test]
fn a_domain_has_a_root_and_a_default_or_a_page_of_its_own() {
    let server = server(|settings| settings.favicon_target = Some("https://icon.example/".to_owned()));
    let page = "<!doctype html><title>Lost</title><h1>Nothing here</h1>";
    domain(
        &server,
        NewDomain {
            host: "page.example".to_owned(),
            root_target: Some("https://root.page.test/".to_owned()),
            not_found_html: Some(page.to_owned()),
            ..NewDomain::default()
        },
    );
    let default_target = Some("https://elsewhere.test/".to_owned());
    domain(&server, NewDomain { host: "to.example".to_owned(), default_target, ..NewDomain::default() });
    at(&server, "to.example", "abc");

    assert_eq!(get(&server, "h", "/").location(), "https://root.example/");
    assert_eq!(get(&server, "page.example", "/").location(), "https://root.page.test/");
    assert_eq!(get(&server, "a.example", "/").status, 200, "says what this is");
    for host in ["h", "a.example", "page.example", "to.example"] {
        assert_eq!(get(&server, host, "/favicon.ico").location(), "https://icon.example/", "{host}");
        assert_eq!(get(&server, host, "/robots.txt").status, 200, "{host}");
    }
    for path in ["/no", "/a/b", "/%6eo", "/abc"] {
        let answer = get(&server, "page.example", path);
        assert_eq!((answer.status, answer.text()), (404, page), "{path}");
        assert_eq!(answer.value("content-type"), Some("text/html; charset=utf-8"));
        let policy = answer.value("content-security-policy").expect("a policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("script-src"), "{policy}");
    }
    let program = server.answer("GET /no HTTP/1.1\r\nHost: page.example\r\n\r\n");
    assert_eq!((program.status, program.value("content-type")), (404, Some("application/problem+json")));
    let mut client = server.connect();
    client.send("HEAD /no HTTP/1.1\r\nHost: page.example\r\nAccept: text/html\r\n\r\n").unwrap();
    let head = client.receive_head().unwrap();
    assert_eq!((head.status, head.value("content-length")), (404, Some(&*page.len().to_string())));

    for path in ["/no", "/a/b"] {
        let answer = get(&server, "to.example", path);
        assert_eq!((answer.status, answer.location()), (302, "https://elsewhere.test/"), "{path}");
    }
    assert_eq!(led(&server, "to.example"), "to.example");
    let posted = client.request("POST", "/no", "", "password=x").unwrap();
    assert_eq!(posted.status, 404);
    let posted = server.answer("POST /no HTTP/1.1\r\nHost: to.example\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(posted.status, 404, "a form has no link to unlock there");
}

#[test]
fn a_password_opens_the_link_of_its_domain_alone() {
    let server = server(|_| {});
    for (host, password) in [(None, "one"), (Some("a.example"), "two")] {
        server.link("locked", |link| {
            link.domain = host.map(str::to_owned);
            link.password = Some(password.to_owned());
            link.target = format!("https://t.example/{password}");
        });
    }
    let post = |host: &str, password: &str| {
        let body = format!("password={password}");
        server.answer(format!(
            "POST /locked HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    assert_eq!(post("h", "one").location(), "https://t.example/one");
    assert_eq!(post("a.example", "two").location(), "https://t.example/two");
    assert_eq!(post("a.example", "one").status, 403);
    assert_eq!(post("xn--bcher-kva.example", "one").status, 404);
}

#[test]
fn what_changes_is_seen_by_the_next_visit() {
    let server = server(|_| {});
    for _ in 0..3 {
        assert_eq!(led(&server, "a.example"), "a.example");
        assert_eq!(led(&server, "new.example"), "default");
        domain(&server, NewDomain { host: "new.example".to_owned(), ..NewDomain::default() });
        assert_eq!(get(&server, "new.example", "/abc").status, 404);
        at(&server, "new.example", "abc");
        assert_eq!(led(&server, "new.example"), "new.example");
        while !server.store().delete_domain("new.example".to_owned(), true).wait().unwrap() {}
    }
    assert_eq!(led(&server, "new.example"), "default");
    server.store().delete("abc").wait().unwrap();
    assert_eq!(get(&server, "h", "/abc").status, 404);
    assert_eq!(led(&server, "a.example"), "a.example");
}
