//! What is answered (RFC 9110).

use std::fs;

use crate::place::{Place, pattern, until};

#[test]
fn a_file_is_sent_whole_by_every_engine() {
    let place = Place::new();
    let sizes = [0, 1, 2047, 2048, 2049, 4096, 4097, 16_384, 65_536, 1 << 20, (1 << 20) + 1, 5_000_000];
    for size in sizes {
        place.file(&format!("f{size}"), pattern(size));
    }
    for engine in ["auto", "sendfile", "splice", "copy"] {
        let server = place.serve(&["--engine", engine]);
        let mut client = server.connect();
        for size in sizes {
            for _ in 0..2 {
                let answer = client.get(&format!("/f{size}"), "");
                assert_eq!(answer.status, 200, "{engine} {size}");
                assert!(answer.body == pattern(size), "{engine} {size}");
                let head = client.ask("HEAD", &format!("/f{size}"), "");
                let but_date = |fields: &[(String, String)]| {
                    fields.iter().filter(|(name, _)| name != "date").cloned().collect::<Vec<_>>()
                };
                assert_eq!(but_date(&head.fields), but_date(&answer.fields));
            }
        }
        // All of them at once, in one pipeline.
        let pipeline: String =
            sizes.iter().map(|size| format!("GET /f{size} HTTP/1.1\r\nHost: h\r\n\r\n")).collect();
        client.send(pipeline);
        for size in sizes {
            assert!(client.receive(true).expect("an answer").body == pattern(size), "{engine} {size}");
        }
    }
}

#[test]
fn fields_tell_of_the_file() {
    let place = Place::new();
    let path = place.file("a.txt", "text");
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(784_111_777, 5);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    let server = place.serve(&[]);
    let answer = server.get("/a.txt", "");
    assert_eq!(answer.field("content-type").as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.field("last-modified").as_deref(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!(answer.field("accept-ranges").as_deref(), Some("bytes"));
    assert_eq!(answer.field("etag").as_deref(), Some("\"ae1b981bc490a05-4\""));
    assert_eq!(answer.field("vary"), None);
    assert!(httpdate::parse_http_date(&answer.field("date").expect("a date")).is_ok());
}

#[test]
fn conditions_are_kept() {
    let place = Place::new();
    place.file("a.txt", "text");
    let server = place.serve(&[]);
    let mut client = server.connect();
    let first = client.get("/a.txt", "");
    let (etag, modified) = (first.field("etag").unwrap(), first.field("last-modified").unwrap());
    for (fields, status) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: \"x\"\r\nIf-None-Match: W/{etag}\r\n"), 304),
        ("If-None-Match: *\r\n".into(), 304),
        ("If-None-Match: \"x\"\r\n".into(), 200),
        (format!("If-Modified-Since: {modified}\r\n"), 304),
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {modified}\r\n"), 200),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".into(), 200),
        ("If-Match: \"x\"\r\n".into(), 412),
        (format!("If-Match: {etag}\r\n"), 200),
        (format!("If-Unmodified-Since: {modified}\r\n"), 200),
        ("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".into(), 412),
        (format!("Range: bytes=0-0\r\nIf-Range: {etag}\r\n"), 206),
        ("Range: bytes=0-0\r\nIf-Range: \"x\"\r\n".into(), 200),
        (format!("Range: bytes=0-0\r\nIf-None-Match: {etag}\r\n"), 304),
        ("Range: bytes=0-0\r\nRange: bytes=1-1\r\n".into(), 200),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = client.ask(method, "/a.txt", &fields);
            let status = if method == "HEAD" && status == 206 { 200 } else { status };
            assert_eq!(answer.status, status, "{method} {fields}");
            if status == 304 {
                assert_eq!(answer.field("etag").as_ref(), Some(&etag), "{fields}");
                assert_eq!(answer.field("content-length"), None, "{fields}");
            }
        }
    }
}

#[test]
fn a_coding_beside_a_file_is_sent_to_who_takes_it() {
    let place = Place::new();
    place.file("a.js", "plain");
    for (suffix, body) in [("br", "brotli"), ("zst", "zstandard"), ("gz", "gzip")] {
        place.file(&format!("a.js.{suffix}"), body);
    }
    place.file("b.js", "plain");
    let server = place.serve(&[]);
    let mut client = server.connect();
    let mut tags = Vec::new();
    for (accept, coding, body) in [
        ("", None, "plain"),
        ("Accept-Encoding: gzip, br\r\n", Some("br"), "brotli"),
        ("Accept-Encoding: gzip;q=1, br;q=0.1\r\n", Some("gzip"), "gzip"),
        ("Accept-Encoding: zstd\r\n", Some("zstd"), "zstandard"),
        ("Accept-Encoding: deflate\r\n", None, "plain"),
    ] {
        let answer = client.get("/a.js", accept);
        assert_eq!((answer.field("content-encoding").as_deref(), answer.text()), (coding, body), "{accept}");
        assert_eq!(answer.field("content-type").as_deref(), Some("text/javascript; charset=utf-8"));
        assert_eq!(answer.field("vary").as_deref(), Some("accept-encoding"));
        tags.push(answer.field("etag").unwrap());
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "each coding has a tag of its own");
    assert_eq!(client.get("/b.js", "Accept-Encoding: gzip\r\n").field("vary"), None);
}

#[test]
fn methods_are_told() {
    let place = Place::new();
    place.file("a", "a");
    let server = place.serve(&[]);
    let mut client = server.connect();
    for target in ["/a", "*", "/missing"] {
        let answer = client.ask("OPTIONS", target, "");
        assert_eq!((answer.status, answer.field("allow").as_deref()), (204, Some("GET, HEAD, OPTIONS")));
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"] {
        let answer = client.ask(method, "/a", "");
        assert_eq!(
            (answer.status, answer.field("allow").as_deref()),
            (405, Some("GET, HEAD, OPTIONS")),
            "{method}"
        );
    }
}

#[test]
fn directories_have_a_slash_and_an_index() {
    let place = Place::new();
    place.file("sub dir/index.html", "index");
    place.file("index.html", "root");
    fs::create_dir(place.root("empty")).unwrap();
    let server = place.serve(&[]);
    let mut client = server.connect();
    let answer = client.get("/sub%20dir?a=b", "");
    assert_eq!((answer.status, answer.field("location").as_deref()), (301, Some("/sub%20dir/?a=b")));
    let answer = client.get("//sub%20dir", "");
    assert_eq!(answer.field("location").as_deref(), Some("/sub%20dir/"), "not another host");
    let answer = client.get("/sub%20dir/", "");
    assert_eq!(
        (answer.text(), answer.field("content-type").as_deref()),
        ("index", Some("text/html; charset=utf-8"))
    );
    assert_eq!(client.get("/", "").text(), "root");
    assert_eq!(client.get("/empty/", "").status, 404, "not listed unless asked to");
}

#[test]
fn errors_are_told_to_people_and_programs() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut client = server.connect();
    let answer = client.get("/missing", "");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(problem["status"], 404);
    let answer = client.get("/missing", "Accept: text/html\r\n");
    assert!(answer.text().contains("<h1>Not Found</h1>"));
    let head = client.ask("HEAD", "/missing", "");
    assert_eq!((head.status, head.body.len()), (404, 0));
}

#[test]
fn rules_say_what_holds_where_and_are_read_again() {
    let place = Place::new();
    place.file("assets/a.js", "script");
    place.file("a.txt", "text");
    place.file("errors/404.html", "<p>lost");
    let rules = place.beside("rules.toml");
    fs::write(
        &rules,
        "[error-pages]\n404 = 'errors/404.html'\n[[rule]]\npath = '*'\nsecurity = true\n\
         [[rule]]\npath = '/assets/*'\ncache-control = 'public, max-age=9'\ncors = ['https://a.example']\n",
    )
    .unwrap();
    let server = place.serve(&["--rules", rules.to_str().unwrap()]);
    let mut client = server.connect();
    let answer = client.get("/assets/a.js", "Origin: https://a.example\r\n");
    assert_eq!(answer.field("cache-control").as_deref(), Some("public, max-age=9"));
    assert_eq!(answer.field("x-content-type-options").as_deref(), Some("nosniff"));
    assert_eq!(answer.field("access-control-allow-origin").as_deref(), Some("https://a.example"));
    assert_eq!(answer.field("vary").as_deref(), Some("origin"));
    let other = client.get("/assets/a.js", "Origin: https://b.example\r\n");
    assert_eq!(
        (other.field("access-control-allow-origin"), other.field("vary").as_deref()),
        (None, Some("origin"))
    );
    let preflight = client.ask(
        "OPTIONS",
        "/assets/a.js",
        "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n",
    );
    assert_eq!(preflight.field("access-control-allow-origin").as_deref(), Some("https://a.example"));
    let answer = client.get("/a.txt", "");
    assert_eq!((answer.field("cache-control"), answer.field("vary")), (None, None));
    let answer = client.get("/missing", "");
    assert_eq!((answer.status, answer.text()), (404, "<p>lost"));
    assert_eq!(answer.field("content-type").as_deref(), Some("text/html; charset=utf-8"));

    fs::write(&rules, "[[rule]]\npath = '*'\ncache-control = 'no-store'\n").unwrap();
    server.signal(rustix::process::Signal::HUP);
    until("the new rules", || client.get("/a.txt", "").field("cache-control").as_deref() == Some("no-store"));
    // Rules that make no sense change nothing.
    fs::write(&rules, "[[rule]]\npath = 1\n").unwrap();
    server.signal(rustix::process::Signal::HUP);
    until("an error", || server.log().contains("stay as they were"));
    assert_eq!(client.get("/a.txt", "").field("cache-control").as_deref(), Some("no-store"));
}

#[test]
fn whatever_other_origins_may_have_says_that_it_depends_on_the_origin() {
    let place = Place::new();
    place.file("d/a", "text");
    let rules = place.beside("rules.toml");
    let text = "[[rule]]\npath = '*'\nlisting = true\narchive = ['zip']\ncors = ['https://a.example']\n";
    fs::write(&rules, text).unwrap();
    let server = place.serve(&["--rules", rules.to_str().unwrap()]);
    let mut client = server.connect();
    for (target, vary) in [("/d/a", "origin"), ("/d/", "accept, origin"), ("/d/?archive=zip", "origin")] {
        for origin in [None, Some("https://a.example")] {
            let fields = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
            let answer = client.get(target, &fields);
            assert_eq!((answer.status, answer.field("vary").as_deref()), (200, Some(vary)), "{target}");
            assert_eq!(answer.field("access-control-allow-origin").as_deref(), origin, "{target}");
        }
    }
}

#[test]
fn a_client_of_http_1_0_is_answered_as_it_asks() {
    let place = Place::new();
    place.file("a", "text");
    let server = place.serve(&["--listing"]);
    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.receive(true).unwrap();
    assert_eq!((answer.text(), answer.field("connection").as_deref()), ("text", Some("keep-alive")));
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let head = client.receive_head().unwrap();
    assert!(head.closes() && head.field("transfer-encoding").is_none());
    let (listing, well) = client.rest();
    assert!(well && String::from_utf8_lossy(&listing).contains("<a href=\"a\">a</a>"));
}

#[test]
fn rules_are_about_the_file_that_is_sent() {
    let place = Place::new();
    for path in ["index.html", "index.html.gz", "d/index.html", "list/a", "a.js", "a.js.gz"] {
        place.file(path, path);
    }
    let rules = place.beside("rules.toml");
    let text = [
        ("*", "all", ""),
        ("*.html", "page", "cors = ['https://x.example']"),
        ("/d/", "asked", ""),
        ("/list/", "listed", "cors = ['*']"),
        ("*.js", "script", ""),
        ("*.gz", "coded", ""),
    ]
    .map(|(path, name, more)| {
        format!("[[rule]]\npath = '{path}'\nheaders = {{ x-rule = '{name}' }}\n{more}\n")
    });
    fs::write(&rules, text.concat()).unwrap();
    let server = place.serve(&["--listing", "--rules", rules.to_str().unwrap()]);
    let mut client = server.connect();
    let gzip = "Accept-Encoding: gzip\r\n";
    for (target, fields, rule) in [
        ("/", "", "page"),
        ("/", gzip, "page"),
        ("/index.html", "", "page"),
        ("/d/", "", "page"),
        ("/d/index.html", "", "page"),
        ("/list/", "", "listed"),
        ("/list/a", "", "all"),
        ("/a.js", "", "script"),
        // A file's ready-made coding is sent as that file; under its own name, it is a separate file.
        ("/a.js", gzip, "script"),
        ("/a.js.gz", "", "coded"),
    ] {
        let answer = client.get(target, fields);
        assert_eq!(
            (answer.status, answer.field("x-rule").as_deref()),
            (200, Some(rule)),
            "{target} {fields}"
        );
    }
    // A preflight says how the following request will be answered.
    let preflight = "Origin: https://x.example\r\nAccess-Control-Request-Method: GET\r\n";
    for (target, origin) in [("/d/", Some("https://x.example")), ("/list/", Some("*")), ("/list/a", None)] {
        let answer = client.ask("OPTIONS", target, preflight);
        assert_eq!(answer.field("access-control-allow-origin").as_deref(), origin, "{target}");
    }
    // A listing that is replaced by a page follows the page's rules.
    place.file("list/index.html", "page");
    until("the page", || client.get("/list/", "").field("x-rule").as_deref() == Some("page"));
}
