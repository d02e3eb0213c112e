//! Answers are the same with TLS and without.

use serde_json::json;
use testkit::{until, wait_for};

use crate::client::{Answer, Request, Secure, Version, ask, ask_one, curl_command, form, metric, request};
use crate::server::Server;

const FORM: &str = "content-type: application/x-www-form-urlencoded";
const HTML: &str = "accept: text/html";
const BOT: &str = "user-agent: Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)";

/// Creates links of every kind. There is one with a password for each version, since a visitor has few attempts per
/// link.
fn links(server: &Server) {
    let mut api = server.api();
    let mut add = |link| assert_eq!(api.add(&link).unwrap(), 201, "{link}");
    add(json!({ "code": "abc", "target": "https://t.example/?a=1#b", "forward_query": true }));
    add(json!({ "code": "kept", "target": "https://t.example/kept" }));
    for redirect in [301, 302, 308] {
        add(
            json!({ "code": format!("r{redirect}"), "target": "https://t.example/\"<r>", "redirect": redirect }),
        );
    }
    add(json!({ "code": "past", "target": "https://t.example/", "expires_at": "2001-01-01T00:00:00Z" }));
    add(json!({ "code": "few", "target": "https://t.example/", "max_clicks": 100 }));
    for version in Version::ALL {
        let code = format!("lock{version:?}");
        add(
            json!({ "code": code, "target": "https://t.example/in", "password": "open & sesame", "forward_query": true }),
        );
    }
}

/// Requests of every kind for a version.
fn requests(version: Version) -> Vec<Request> {
    let mut requests = Vec::new();
    for path in [
        "/abc",
        "/abc?x=1&y",
        "/%61bc",
        "/kept",
        "/kept?x=1",
        "/r301",
        "/r302",
        "/r308",
        "/past",
        "/few",
        "/missing",
        "/mis/sing",
        "/%ff",
        "/",
        "/?x",
        "/robots.txt",
        "/favicon.ico",
        "/kept/",
    ] {
        for method in ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST"] {
            requests.push(request(method, path, &[]));
        }
        requests.push(request("GET", path, &[HTML]));
        requests.push(request("HEAD", path, &[HTML]));
        requests.push(request("GET", path, &[BOT]));
        requests.push(form(path, &[FORM, HTML], "password=x"));
    }
    requests.push(Request { body: "of no use".to_owned(), ..request("GET", "/kept", &[]) });
    let locked = format!("/lock{version:?}");
    requests.push(request("GET", &locked, &[]));
    requests.push(request("HEAD", &locked, &[]));
    requests.push(request("PUT", &locked, &[HTML]));
    let long = format!("password={}", "x".repeat(2000));
    for (accept, body) in [
        ("accept: */*", "password=wrong"),
        (HTML, "password=wrong"),
        (HTML, "passwort=open"),
        ("accept: */*", ""),
        (HTML, &long),
        ("accept: */*", &long),
        (HTML, "password=open+%26+sesame"),
    ] {
        requests.push(form(&format!("{locked}?q=2"), &[FORM, accept], body));
    }
    requests
}

/// The answers after too many attempts, however slow the machine is: every 12 seconds one more is allowed.
fn too_many(server: &Server, version: Version) -> [Answer; 2] {
    ["accept: */*", HTML].map(|accept| {
        let wrong = form(&format!("/lock{version:?}?q=2"), &[FORM, accept], "password=wrong");
        wait_for("one attempt too many", || {
            Some(ask_one(server, version, wrong.clone()).essence()).filter(|answer| answer.status == 429)
        })
    })
}

fn check(flags: &[&str]) {
    let secure = Secure::new();
    let server = secure.serve(flags);
    links(&server);
    let answers = |version| -> Vec<Answer> {
        ask(&server, version, &requests(version)).into_iter().map(Answer::essence).collect()
    };
    let plain = answers(Version::Plain);
    for status in [200, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 413] {
        assert!(plain.iter().any(|answer| answer.status == status), "nothing is answered {status}");
    }
    for version in Version::SECURE {
        for ((request, plain), found) in requests(version).iter().zip(&plain).zip(answers(version)) {
            assert_eq!(&found, plain, "{version:?} {request:?}");
        }
    }
    let plain = too_many(&server, Version::Plain);
    for version in Version::SECURE {
        assert_eq!(too_many(&server, version), plain, "{version:?}");
    }
    // GET, GET by a browser, by a bot and with a body: each of these is a click. No other request is one.
    let mut api = server.api();
    until("all clicks are stored", || api.clicks("kept") >= 4 * 7);
    assert_eq!(api.clicks("kept"), 4 * 7);
    // Bots don't use up clicks of a limit.
    until("all clicks are stored", || api.clicks("few") >= 4 * 2);
    assert_eq!(api.clicks("few"), 4 * 2);
    for version in Version::ALL {
        let code = format!("lock{version:?}");
        until("the click of who knew the password is stored", || api.clicks(&code) >= 1);
        assert_eq!(api.clicks(&code), 1, "{version:?}");
    }
}

#[test]
fn answers_are_those_in_the_clear() {
    check(&[]);
}

#[test]
fn answers_are_those_in_the_clear_whatever_is_set() {
    check(&[
        "--redirect-body",
        "--redirect-max-age",
        "60",
        "--root-target",
        "https://root.example/",
        "--favicon-target",
        "https://icon.example/",
    ]);
}

#[test]
fn a_bot_neither_uses_up_a_limited_link_nor_sees_where_it_leads() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    let link = json!({ "code": "once", "target": "https://t.example/", "max_clicks": 1 });
    assert_eq!(server.api().add(&link).unwrap(), 201);
    for version in Version::ALL {
        let answer = ask_one(&server, version, request("GET", "/once", &[BOT]));
        assert_eq!((answer.status, answer.field("location")), (200, None), "{version:?}");
        assert!(answer.body.ends_with("in a browser.</p>") && !answer.body.contains("t.example"));
        let head = ask_one(&server, version, request("HEAD", "/once", &[])).essence();
        assert_eq!(
            (head.status, head.fields, &*head.body),
            (200, answer.essence().fields, ""),
            "{version:?}"
        );
    }
    assert_eq!(ask_one(&server, Version::Http2, request("GET", "/once", &[])).status, 307, "not spent");
    assert_eq!(ask_one(&server, Version::Http3, request("GET", "/once", &[BOT])).status, 410);
}

#[test]
fn http_3_is_told_of_unless_it_is_not_spoken() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    let port = server.secure.unwrap().port();
    for version in [Version::Http1, Version::Http2] {
        let answer = ask_one(&server, version, request("GET", "/missing", &[]));
        let told = answer.field("alt-svc").expect("it is told of");
        assert!(told.starts_with(&format!("h3=\":{port}\"")), "{told}");
    }
    assert_eq!(ask_one(&server, Version::Plain, request("GET", "/missing", &[])).field("alt-svc"), None);
    server.stop();
    let server = secure.serve(&["--no-http3"]);
    assert_eq!(ask_one(&server, Version::Http2, request("GET", "/missing", &[])).field("alt-svc"), None);
}

/// How many answers had this status.
fn counted(server: &Server, status: u16) -> f64 {
    metric(server, &["linerate_links_requests_total", &format!("\"{status}\"")])
}

#[test]
fn what_is_no_request_is_refused() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    assert_eq!(
        server.api().add(&json!({ "code": "abc", "target": "https://t.example/", "password": "p" })).unwrap(),
        201
    );
    let many: Vec<String> = (0..65).map(|n| format!("x{n}: y")).collect();
    let long = format!("x: {}", "y".repeat(9000));
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let large = "x".repeat(20_000);
    for (version, fields, body, status) in [
        (Version::Http1, &["expect: more"][..], "", 417),
        (Version::Http2, &["expect: more"], "", 417),
        (Version::Http1, &["host: h@i"], "", 400),
        (Version::Http1, &many, "", 431),
        (Version::Http2, &many, "", 431),
        (Version::Http1, &[&long], "", 431),
        (Version::Http1, &[], &large, 413),
        (Version::Http1, &["transfer-encoding: chunked"], &large, 413),
    ] {
        let mut command = curl_command(&server, version, &["/abc"]);
        command.args(["--output", "/dev/null", "--write-out", "%{http_code} %{content_type}"]);
        for field in fields {
            command.args(["--header", field]);
        }
        if !body.is_empty() {
            command.args(["--header", "expect:", "--data-raw", body]);
        }
        let output = command.output().expect("curl runs");
        let told = String::from_utf8_lossy(&output.stdout);
        let about = format!("{version:?} {} fields, {} bytes", fields.len(), body.len());
        assert_eq!(told, format!("{status} application/problem+json"), "{about}");
        assert!(counted(&server, status) > 0.0, "{about}");
    }
    // Some HTTP/2 clients miss an answer that arrives while they send.
    let before = counted(&server, 413);
    let mut command = curl_command(&server, Version::Http2, &["/abc"]);
    let _ = command.args(["--output", "/dev/null", "--data-raw", &large]).status();
    assert_eq!(counted(&server, 413), before + 1.0);
    assert_eq!(ask_one(&server, Version::Http3, request("GET", "/abc", &["expect: more"])).status, 417);
    assert_eq!(ask_one(&server, Version::Http3, form("/abc", &[], &large)).status, 413);
}

#[test]
fn visitors_in_the_clear_are_sent_to_tls_and_told_to_stay() {
    let secure = Secure::new();
    let server = secure.serve(&["--https-redirect", "--hsts", "600"]);
    assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
    let port = server.secure.unwrap().port();
    let hsts = "strict-transport-security";
    for (method, path) in
        [("GET", "/abc"), ("HEAD", "/abc?x=%41"), ("POST", "/"), ("GET", "/%61bc"), ("PUT", "/no")]
    {
        let answer = ask_one(&server, Version::Plain, request(method, path, &[]));
        assert_eq!(answer.status, 308, "{method} {path}");
        assert_eq!(answer.field("location"), Some(&*format!("https://localhost:{port}{path}")), "{method}");
        assert_eq!((answer.field(hsts), answer.field("cache-control")), (None, Some("no-store")));
        assert_eq!((answer.field("content-length"), &*answer.body), (Some("0"), ""));
    }
    for version in Version::SECURE {
        for (path, status) in [("/abc", 307), ("/no", 404)] {
            let answer = ask_one(&server, version, request("GET", path, &[]));
            assert_eq!((answer.status, answer.field(hsts)), (status, Some("max-age=600")), "{version:?}");
        }
    }
    let mut api = server.api();
    until("the clicks are stored", || api.clicks("abc") == 3);
    // One request names no host, while no host is configured. The other has no path to redirect to.
    for (head, status) in [("GET /abc HTTP/1.0\r\n\r\n", 400), ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 400)]
    {
        let mut client = server.connect();
        client.send(head).unwrap();
        assert_eq!(client.receive().unwrap().status, status, "{head:?}");
    }
    drop(api);
    server.stop();
    let server = secure.serve(&["--https-redirect", "--public-url", "https://go.example"]);
    for (head, location) in [
        ("GET /abc HTTP/1.0\r\n\r\n", "https://go.example/abc"),
        ("GET /abc?x HTTP/1.1\r\nHost:\r\n\r\n", "https://go.example/abc?x"),
        ("GET /abc HTTP/1.1\r\nHost: to.example:8080\r\n\r\n", "https://to.example/abc"),
        ("GET http://to.example/abc HTTP/1.1\r\nHost: to.example\r\n\r\n", "https://to.example/abc"),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "https://[::1]/"),
    ] {
        let mut client = server.connect();
        client.send(head).unwrap();
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, answer.location()), (308, location), "{head:?}");
        assert_eq!(answer.field(hsts), None);
    }
    assert_eq!(
        ask_one(&server, Version::Http2, request("GET", "/abc", &[])).field(hsts),
        None,
        "not asked for"
    );
}
