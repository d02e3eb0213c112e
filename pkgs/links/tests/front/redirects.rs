//! Links: their targets, statuses and headers, and the reasons for which they do not redirect.

use links::domains::NewDomain;
use links::link::{LinkPatch, RedirectStatus, Status};
use links::when::Timestamp;

use crate::server::{Server, settings};

fn visit(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: s.example\r\n{fields}\r\n")
}

#[test]
fn a_redirect_is_its_fields_and_nothing_else() {
    let server = Server::start(settings());
    for (redirect, reason) in [
        (RedirectStatus::MovedPermanently, "301 Moved Permanently"),
        (RedirectStatus::Found, "302 Found"),
        (RedirectStatus::TemporaryRedirect, "307 Temporary Redirect"),
        (RedirectStatus::PermanentRedirect, "308 Permanent Redirect"),
    ] {
        let code = &reason[..3];
        server.link(code, |link| link.redirect = redirect);
        let answer = server.answer(visit("GET", &format!("/{code}"), ""));
        assert_eq!(answer.status, redirect.code());
        assert!(answer.body.is_empty());
        let names: Vec<_> = answer.fields.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["cache-control", "content-length", "location", "date"], "{reason}");
        assert_eq!(answer.value("cache-control"), Some("private, no-cache"));
        assert_eq!(answer.value("content-length"), Some("0"));
        assert_eq!(answer.location(), "https://t.example/");
    }
}

#[test]
fn a_head_has_the_fields_of_a_get_and_is_no_click() {
    let server = Server::start(settings());
    server.link("abc", |_| ());
    let mut client = server.connect();
    for path in ["/abc", "/unknown", "/robots.txt", "/%61bc"] {
        let mut client = server.connect();
        client.send(visit("HEAD", path, "")).unwrap();
        let head = client.receive_head().unwrap();
        let get = server.answer(visit("GET", path, ""));
        let comparable = |fields: &[(String, String)]| -> Vec<(String, String)> {
            // These differ for each answer.
            let own = |name: &str| ["date", "x-request-id"].contains(&name);
            let mut fields: Vec<_> = fields.iter().filter(|(name, _)| !own(name)).cloned().collect();
            fields.sort();
            fields
        };
        assert_eq!((head.status, comparable(&head.fields)), (get.status, comparable(&get.fields)), "{path}");
    }
    // No byte of a body follows: the next bytes are the next request's answer.
    client.send(visit("HEAD", "/unknown", "")).unwrap();
    assert_eq!(client.receive_head().unwrap().status, 404);
    assert_eq!(client.get("abc").unwrap().status, 307);
    server.assert_clicks("abc", 3);
}

#[test]
fn a_query_is_forwarded_only_where_the_link_says_so() {
    let server = Server::start(settings());
    for (code, target, forward, path, location) in [
        ("off", "https://t.example/", false, "/off?a=1", "https://t.example/"),
        ("plain", "https://t.example/p", true, "/plain?a=1", "https://t.example/p?a=1"),
        ("none", "https://t.example/p", true, "/none", "https://t.example/p"),
        ("empty", "https://t.example/p", true, "/empty?", "https://t.example/p"),
        ("more", "https://t.example/?x=y", true, "/more?a=1&b", "https://t.example/?x=y&a=1&b"),
        ("bare", "https://t.example/?", true, "/bare?a=1", "https://t.example/?a=1"),
        ("hash", "https://t.example/#top", true, "/hash?a=1", "https://t.example/?a=1#top"),
        ("both", "https://t.example/?x#top", true, "/both?a=1", "https://t.example/?x&a=1#top"),
        ("twice", "https://t.example/", true, "/twice?a=1?b=2", "https://t.example/?a=1?b=2"),
        ("lone", "https://t.example/#a?b", true, "/lone?c", "https://t.example/?c#a?b"),
        ("quoted", "https://t.example/", true, "/quoted?a=%26%23%0d%0a", "https://t.example/?a=%26%23%0d%0a"),
    ] {
        server.link(code, |link| {
            link.target = target.to_owned();
            link.forward_query = forward;
        });
        let answer = server.answer(visit("GET", path, ""));
        assert_eq!((answer.status, answer.location()), (307, location), "{path}");
    }
}

#[test]
fn a_query_cannot_add_a_field() {
    let server = Server::start(settings());
    server.link("abc", |link| link.forward_query = true);
    for query in
        ["a\r\nX-Injected: 1", "a\nX-Injected: 1", "a\rX-Injected: 1", "a\0b", "a\u{fc}", "a\tb", "a\x7fb"]
    {
        for first in ["/abc", "/%61bc"] {
            let mut client = server.connect();
            client.send(visit("GET", &format!("{first}?{query}"), "")).unwrap();
            let Ok(answer) = client.receive() else { continue };
            assert_eq!(answer.value("x-injected"), None, "{first}?{query:?}");
            assert!(answer.fields.iter().all(|(_, value)| value.bytes().all(|b| (b' '..0x7f).contains(&b))));
            assert!(answer.status == 400 || answer.location() == "https://t.example/", "{answer:?}");
        }
    }
}

#[test]
fn what_is_not_there_or_not_now_is_told_to_programs_and_people() {
    let server = Server::start(settings());
    let now = Timestamp::now().0;
    server.link("early", |link| link.not_before = Some(Timestamp(now + 1000)));
    server.link("late", |link| link.expires_at = Some(Timestamp(now - 1000)));
    server.link("off", |link| link.status = Status::Disabled);
    let long = "x".repeat(65);
    for (path, status) in [
        ("/unknown", 404),
        ("/early", 404),
        ("/off", 404),
        ("/late", 410),
        ("//", 404),
        ("/late/", 404),
        ("/late/x", 404),
        ("//late", 404),
        ("/a b", 400),
        ("/.late", 404),
        ("/%", 404),
        ("/%ff", 404),
        ("/la%74e", 410),
        ("/LATE", 404),
        (&*format!("/{long}"), 404),
    ] {
        let problem = server.answer(visit("GET", path, "Accept: */*\r\n"));
        assert_eq!(problem.status, status, "{path}");
        assert_eq!(problem.value("content-type"), Some("application/problem+json"), "{path}");
        let body: serde_json::Value = serde_json::from_slice(&problem.body).unwrap();
        assert_eq!(body["status"], status, "{path}");
        assert_eq!(problem.value("cache-control"), Some("no-store"), "{path}");
        if status != 400 {
            let page = server.answer(visit("GET", path, "Accept: text/html,application/xhtml+xml\r\n"));
            assert_eq!(page.status, status, "{path}");
            assert_eq!(page.value("content-type"), Some("text/html; charset=utf-8"), "{path}");
            assert!(page.text().contains(&status.to_string()), "{path}");
        }
    }
}

#[test]
fn an_edit_a_deletion_and_a_creation_are_seen_by_the_next_visit() {
    let server = Server::start(settings());
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("abc").unwrap().status, 404);
    }
    server.link("abc", |_| ());
    for client in &mut clients {
        assert_eq!(client.get("abc").unwrap().status, 307);
    }
    let patch = LinkPatch { target: Some("https://other.example/".to_owned()), ..LinkPatch::default() };
    server.store().edit("abc".to_owned(), patch).wait().unwrap();
    for client in &mut clients {
        assert_eq!(client.get("abc").unwrap().location(), "https://other.example/");
    }
    server.store().delete("abc".to_owned()).wait().unwrap();
    for client in &mut clients {
        assert_eq!(client.get("abc").unwrap().status, 404);
    }
}

#[test]
fn a_click_limit_is_exact_across_connections_and_workers() {
    const LIMIT: u64 = 40;
    let server = Server::start(settings());
    server.link("abc", |link| link.max_clicks = Some(LIMIT));
    let followed: u64 = std::thread::scope(|scope| {
        let visitors: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.connect();
                    let statuses = (0..10).map(|_| client.get("abc").unwrap().status);
                    statuses.filter(|&status| status == 307).count() as u64
                })
            })
            .collect();
        visitors.into_iter().map(|visitor| visitor.join().unwrap()).sum()
    });
    assert_eq!(followed, LIMIT);
    assert_eq!(server.answer(visit("GET", "/abc", "")).status, 410);
    server.assert_clicks("abc", LIMIT);
    assert_eq!(server.answer(visit("GET", "/abc", "")).status, 410);
}

#[test]
fn a_redirect_carries_a_page_and_an_age_where_configured() {
    let mut configured = settings();
    configured.redirect_body = true;
    configured.redirect_max_age = 60;
    let server = Server::start(configured);
    server.link("abc", |link| link.target = "https://t.example/?a=1&b='x'".to_owned());
    for path in ["/abc", "/%61bc"] {
        let answer = server.answer(visit("GET", path, ""));
        assert_eq!(answer.status, 307);
        assert_eq!(answer.value("cache-control"), Some("private, max-age=60"));
        assert_eq!(answer.value("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(answer.location(), "https://t.example/?a=1&b=%27x%27");
        assert!(answer.text().contains("href=\"https://t.example/?a=1&amp;b=%27x%27\""), "{}", answer.text());
    }
}

#[test]
fn what_may_end_without_an_edit_is_not_cached_whatever_is_configured() {
    let mut configured = settings();
    configured.redirect_max_age = 60;
    configured.root_target = Some("https://root.example/".to_owned());
    configured.favicon_target = Some("https://icon.example/".to_owned());
    let server = Server::start(configured);
    let default_target = Some("https://elsewhere.example/".to_owned());
    let domain = NewDomain { host: "b.example".to_owned(), default_target, ..NewDomain::default() };
    server.store().create_domain(domain).wait().unwrap();
    let now = Timestamp::now().0;
    server.link("plain", |_| ());
    server.link("begun", |link| link.not_before = Some(Timestamp(now - 1_000)));
    server.link("ends", |link| link.expires_at = Some(Timestamp(now + 1_000)));
    server.link("few", |link| link.max_clicks = Some(100));
    server.link("locked", |link| link.password = Some("secret".to_owned()));
    // On the fast path and on the slow path.
    for (path, slow, host, expected) in [
        ("/plain", "/%70lain", "h", "private, max-age=60"),
        ("/begun", "/%62egun", "h", "private, max-age=60"),
        ("/ends", "/%65nds", "h", "private, no-cache"),
        ("/few", "/%66ew", "h", "private, no-cache"),
        ("/unknown", "/%75nknown", "b.example", "private, no-cache"),
        ("/", "http://h/", "h", "private, max-age=60"),
        ("/favicon.ico", "/favicon%2eico", "h", "private, max-age=60"),
    ] {
        for path in [path, slow] {
            let answer = server.answer(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!([302, 307].contains(&answer.status), "{path}: {answer:?}");
            assert_eq!(answer.value("cache-control"), Some(expected), "{path}");
        }
    }
    let opened = server.connect().request("POST", "/locked", "", "password=secret").unwrap();
    assert_eq!((opened.status, opened.value("cache-control")), (303, Some("private, no-cache")));
}

#[test]
fn a_head_shows_nothing_of_what_a_get_would_spend() {
    let server = Server::start(settings());
    server.link("once", |link| link.max_clicks = Some(1));
    // On the fast path and on the slow path.
    for path in ["/once", "/%6fnce"] {
        let mut client = server.connect();
        client.send(visit("HEAD", path, "")).unwrap();
        let head = client.receive_head().unwrap();
        assert_eq!((head.status, head.value("location")), (200, None), "{path}");
        assert_eq!(head.value("cache-control"), Some("no-store"));
        if !head.closes() {
            // No byte of a body follows.
            assert_eq!(client.get("unknown").unwrap().status, 404);
        }
    }
    assert_eq!(server.answer(visit("GET", "/once", "")).status, 307, "not spent");
    let mut client = server.connect();
    client.send(visit("HEAD", "/once", "")).unwrap();
    assert_eq!(client.receive_head().unwrap().status, 410);
    server.assert_clicks("once", 1);
}

/// Clients that request a link because it was sent in a chat, found by a crawler, or is monitored.
const BOTS: [&str; 3] = [
    "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
    "WhatsApp/2.23.20.0",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
];

#[test]
fn a_bot_neither_uses_up_a_limited_link_nor_sees_where_it_leads() {
    let server = Server::start(settings());
    server.link("once", |link| link.max_clicks = Some(1));
    server.link("asks", |link| {
        link.max_clicks = Some(1);
        link.password = Some("secret".to_owned());
    });
    for bot in BOTS {
        let agent = format!("User-Agent: {bot}\r\n");
        // On the fast path and on the slow path.
        for path in ["/once", "/%6fnce"] {
            let mut client = server.connect();
            client.send(visit("GET", path, &agent)).unwrap();
            let answer = client.receive().unwrap();
            assert_eq!((answer.status, answer.value("location")), (200, None), "{path} {bot}");
            assert_eq!(answer.value("cache-control"), Some("no-store"));
            assert_eq!(answer.value("content-type"), Some("text/html; charset=utf-8"));
            assert!(answer.text().ends_with("in a browser.</p>") && !answer.text().contains("t.example"));
            if !answer.closes() {
                // The body ends where the head says.
                assert_eq!(client.get("unknown").unwrap().status, 404);
            }
            let mut client = server.connect();
            client.send(visit("HEAD", path, "")).unwrap();
            let head = client.receive_head().unwrap();
            assert_eq!(head.value("content-length"), answer.value("content-length"), "{path}");
        }
        let answer = server.answer(visit("GET", "/asks", &agent));
        assert!(answer.status == 200 && answer.text().contains("<form method=post>"), "{bot}");
        let form = format!("{agent}Content-Type: application/x-www-form-urlencoded\r\n");
        let answer = server.connect().request("POST", "/asks", &form, "password=secret").unwrap();
        assert_eq!((answer.status, answer.value("location")), (200, None), "{bot}");
        assert!(answer.text().ends_with("in a browser.</p>") && !answer.text().contains("t.example"));
    }
    server.assert_clicks("once", 0);
    server.assert_clicks("asks", 0);
    assert_eq!(server.answer(visit("GET", "/once", "User-Agent: curl/8.7.1\r\n")).status, 307, "not spent");
    let bot = format!("User-Agent: {}\r\n", BOTS[0]);
    assert_eq!(server.answer(visit("GET", "/once", &bot)).status, 410);
    server.assert_clicks("once", 1);
}

#[test]
fn a_bot_follows_a_link_without_a_limit_and_is_counted() {
    let server = Server::start(settings());
    server.link("abc", |_| ());
    for bot in BOTS {
        assert_eq!(
            server.answer(visit("GET", "/abc", &format!("User-Agent: {bot}\r\n"))).status,
            307,
            "{bot}"
        );
    }
    server.assert_clicks("abc", BOTS.len() as u64);
}
