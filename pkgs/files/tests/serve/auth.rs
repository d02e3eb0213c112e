//! Access control: passwords and signed URLs.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::process::Signal;

use crate::place::{BINARY, Place, Server, settle, until};
use crate::routes::rules;
use crate::secure::secure;
use crate::versions::{self, ALL, knows_head};

/// A hash made by the binary.
pub fn hash(password: &str) -> String {
    let mut child = Command::new(BINARY)
        .arg("password")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), format!("{password}\n").as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

fn serve(place: &Place, text: &str, flags: &[&str]) -> Server {
    let named = rules(place, text);
    secure(place, &[&named.each_ref().map(String::as_str)[..], flags].concat())
}

fn realm(place: &Place) -> String {
    fs::write(place.beside("users"), format!("# those of the file\n\nbob:{}\n", hash("two"))).unwrap();
    format!("[realm.staff]\nusers = {{ alice = '{}' }}\nfile = 'users'\n", hash("one: \u{e9}"))
}

#[test]
fn who_has_a_password_has_the_files_by_every_version_and_name() {
    let place = Place::new();
    for path in
        ["private/a.js", "private/a.js.gz", "private/index.html", "private/sub/x", "public", "private/big"]
    {
        place.file(path, path);
    }
    place.file("private/big", vec![b'x'; 300_000]);
    let text = realm(&place)
        + "[[rule]]\npath = '/private/*'\nauth = 'staff'\ncors = ['https://app.example']\n\
           [[rule]]\npath = '/alias/*'\nrewrite = '/private/$1'\n\
           [[rule]]\npath = '/any/*'\ntry = ['/private/$1', '/public']\n\
           [[rule]]\npath = '/first/*'\ntry = ['/none/$1', '/private/$1']\n\
           [[rule]]\npath = '/spa/*'\nfallback = '/private/index.html'\n\
           [[rule]]\npath = '/private/sub/*'\nlisting = true\n\
           [[rule]]\npath = '/member/*'\nauth = 'staff'\nrewrite = '/$1'\n\
           [[rule]]\npath = '/private/old/*'\nredirect = '/$1'\n";
    let server = serve(&place, &text, &[]);
    let (alice, bob) = (basic("alice", "one: \u{e9}"), basic("bob", "two"));
    for version in ALL {
        for target in [
            "/private/a.js",
            "/private/a.js.gz",
            "//private//./a.js",
            "/%70rivate/a%2ejs",
            "/private/",
            "/private/index.html",
            "/private",
            "/private/sub/",
            "/private/sub/?format=json",
            "/private/sub",
            "/private/missing",
            "/private/old/x",
            "/alias/a.js",
            "/alias/missing",
            "/any/a.js",
            "/first/a.js",
            "/first/missing",
            "/spa/x",
            "/private/big",
            "/member/public",
            "/member/private/a.js",
        ] {
            for (method, field) in [
                ("GET", ("accept-encoding", "gzip")),
                ("GET", ("range", "bytes=0-0")),
                ("GET", ("if-none-match", "*")),
                ("HEAD", ("accept", "text/html")),
            ] {
                if method == "HEAD" && !knows_head(version) {
                    continue;
                }
                let answer = versions::ask(&server, version, method, target, &[field]);
                let is_told = answer.field("www-authenticate").as_deref()
                    == Some("Basic realm=\"staff\", charset=\"UTF-8\"");
                assert!(answer.status == 401 && is_told, "{version} {method} {target}: {}", answer.status);
                assert_eq!(answer.field("cache-control").as_deref(), Some("no-store"));
                assert_eq!(
                    (answer.field("etag"), answer.field("location")),
                    (None, None),
                    "{version} {target}"
                );
            }
        }
        for credentials in [&alice, &bob] {
            for (target, status) in [
                ("/private/a.js", 200),
                ("/private/", 200),
                ("/private", 301),
                ("/private/sub/", 200),
                ("/private/missing", 404),
                ("/private/old/x", 301),
                ("/alias/a.js", 200),
                ("/alias/missing", 404),
                ("/first/a.js", 200),
                ("/first/missing", 404),
                ("/any/a.js", 200),
                ("/any/b", 200),
                ("/spa/x", 200),
                ("/private/big", 200),
                // What is sent is for everybody, but not by this name.
                ("/member/public", 200),
                ("/member/private/a.js", 200),
            ] {
                let answer = versions::get(&server, version, target, &[("authorization", credentials)]);
                assert_eq!(answer.status, status, "{version} {target}");
                // No cache on the way may keep it for others.
                let is_private = answer.field("cache-control").as_deref() == Some("private");
                assert_eq!(is_private, status != 404 && target != "/any/b", "{version} {target}");
            }
        }
        assert_eq!(versions::get(&server, version, "/public", &[]).status, 200);
        let preflight = [("origin", "https://app.example"), ("access-control-request-method", "GET")];
        let answer = versions::ask(&server, version, "OPTIONS", "/private/a.js", &preflight);
        assert_eq!(
            (answer.status, answer.field("access-control-allow-origin").as_deref()),
            (204, Some("https://app.example"))
        );
    }
}

#[test]
fn wrong_passwords_are_few_by_address_and_known_ones_go_on() {
    let place = Place::new();
    settle(&place.file("a", "text"));
    let text = realm(&place) + "[[rule]]\npath = '*'\nauth = 'staff'\n";
    // A client behind the proxy has its own attempts.
    let server = serve(&place, &text, &["--trusted-proxy", "127.0.0.1/32"]);
    let right = basic("bob", "two");
    let ask = |version, credentials: &str, client: &str| {
        let fields = [("authorization", credentials), ("x-forwarded-for", client)];
        versions::get(&server, version, "/a", &fields)
    };
    assert_eq!(ask("plain", &right, "192.0.2.1").status, 200);
    for (version, n) in ALL.into_iter().cycle().zip(0..5) {
        assert_eq!(ask(version, &basic("bob", &n.to_string()), "192.0.2.1").status, 401, "{version}");
    }
    for version in ALL {
        // Each attempt is back after a fifth of a minute, which a slow machine may take to get here.
        let mut answers = (0..5).map(|_| ask(version, &basic("bob", "x"), "192.0.2.1"));
        let refused = answers.find(|answer| answer.status == 429).expect("no more tries");
        let seconds = refused.field("retry-after").and_then(|seconds| seconds.parse().ok());
        assert!(seconds.is_some_and(|seconds: u64| (1..=12).contains(&seconds)), "{version}: {seconds:?}");
        // Already known, from this address or another: not checked again.
        assert_eq!(ask(version, &right, "192.0.2.1").status, 200, "{version}");
        assert_eq!(ask(version, &right, "192.0.2.2").status, 200, "{version}");
    }
    assert_eq!(ask("plain", &basic("bob", "x"), "192.0.2.2").status, 401);
    // A pipeline is answered in order, and only those who may have a hot file get it.
    let mut client = server.connect();
    let with =
        format!("GET /a HTTP/1.1\r\nHost: h\r\nAuthorization: {right}\r\nX-Forwarded-For: 192.0.2.3\r\n\r\n");
    let without = "GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 192.0.2.3\r\n\r\n";
    let wrong = with.replace(&right, &basic("bob", "y"));
    for _ in 0..40 {
        client.send(format!("{with}{without}{with}"));
        for status in [200, 401, 200] {
            assert_eq!(client.receive(true).unwrap().status, status);
        }
    }
    client.send(format!("{wrong}{with}{without}"));
    for status in [401, 200, 401] {
        assert_eq!(client.receive(true).unwrap().status, status);
    }
    // Duplicate credentials don't count.
    let twice = format!("Authorization: {right}\r\nAuthorization: {right}\r\n");
    assert_eq!(server.get("/a", &twice).status, 401);
}

#[test]
fn a_wrong_password_is_one_attempt_where_a_missing_path_leads_to_a_protected_one() {
    // In memory, what is missing has to be looked up each time.
    let place = Place::in_memory();
    place.file("private/index.html", "text");
    let text = realm(&place)
        + "[[rule]]\npath = '/private/*'\nauth = 'staff'\n\
           [[rule]]\npath = '/spa/*'\nfallback = '/private/index.html'\n";
    // A client behind the proxy has its own attempts.
    let server = serve(&place, &text, &["--trusted-proxy", "127.0.0.1/32"]);
    for (version, number) in ALL.into_iter().zip(1..) {
        let client = format!("192.0.2.{number}");
        let status = |password: &str| {
            let credentials = basic("bob", password);
            let fields = [("authorization", credentials.as_str()), ("x-forwarded-for", client.as_str())];
            versions::get(&server, version, "/spa/x", &fields).status
        };
        assert_eq!(status("two"), 200, "{version}");
        for attempt in 0..5 {
            assert_eq!(status(&attempt.to_string()), 401, "{version} {attempt}");
        }
    }
}

#[test]
fn passwords_that_change_count_from_when_they_are_read() {
    let place = Place::new();
    place.file("a", "text");
    let text = realm(&place) + "[[rule]]\npath = '*'\nauth = 'staff'\n";
    let server = serve(&place, &text, &[]);
    let fields = |password: &str| format!("Authorization: {}\r\n", basic("bob", password));
    assert_eq!(server.get("/a", &fields("two")).status, 200);
    fs::write(place.beside("users"), format!("bob:{}\n", hash("three"))).unwrap();
    server.signal(Signal::HUP);
    // At most one more attempt each time: a correct password gives its attempt back.
    until("the new password", || server.get("/a", &fields("three")).status == 200);
    assert_eq!(server.get("/a", &fields("two")).status, 401);
    for bad in ["bob\n", "bob:x\n", ":$argon2id$\n"] {
        fs::write(place.beside("users"), bad).unwrap();
        let before = server.log().matches("stay as they were").count();
        server.signal(Signal::HUP);
        until("an error", || server.log().matches("stay as they were").count() > before);
        assert_eq!(server.get("/a", &fields("three")).status, 200, "{bad}");
        let flags = ["serve", "--listen", "127.0.0.1:0", "--rules", "rules.toml"];
        let output =
            Command::new(BINARY).current_dir(place.beside("")).args(flags).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    }
}

#[test]
fn a_signed_url_is_valid_for_its_path_until_it_expires() {
    let place = Place::new();
    for path in ["dl/a b", "dl/a b.gz", "dl/c", "dl/list/x"] {
        place.file(path, path);
    }
    fs::write(place.beside("key"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let text = "[key.links]\nfile = 'key'\n[[rule]]\npath = '/dl/*'\nsigned = 'links'\nlisting = true\n\
                [[rule]]\npath = '/to/*'\nrewrite = '/dl/$1'\n\
                [[rule]]\npath = '/away/*'\nsigned = 'links'\nredirect = 'https://cdn.example/secret/$1'\n";
    let server = serve(&place, text, &[]);
    let sign = |path: &str, seconds: u64| {
        let output = Command::new(BINARY)
            .args([
                "sign",
                "--key",
                place.beside("key").to_str().unwrap(),
                "--for",
                &seconds.to_string(),
                path,
            ])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    let url = sign("/dl/a b", 1000);
    let (path, query) = url.split_once('?').expect("a query");
    let listing = sign("/dl/list/", 1000);
    let led = sign("/to/c", 1000);
    let missing = sign("/to/missing", 1000);
    let away = sign("/away/c", 1000);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let later = query.replacen(&query[8..18], &(now + 5000).to_string(), 1);
    assert_ne!(later, query);
    for version in ALL {
        for (target, status) in [
            (url.clone(), 200),
            (format!("{path}?x=1&{query}"), 200),
            (format!("//dl/./a%20b?{query}"), 200),
            (listing.clone(), 200),
            (format!("{listing}&format=json&sort=-name"), 200),
            (led.clone(), 200),
            (missing.clone(), 404),
            (away.clone(), 301),
            ("/away/c".to_owned(), 403),
            (path.to_owned(), 403),
            (format!("/dl/c?{query}"), 403),
            (format!("{path}.gz?{query}"), 403),
            (format!("/to/a%20b?{query}"), 403),
            (format!("/to/missing?{query}"), 403),
            ("/to/missing".to_owned(), 403),
            (format!("{path}?{later}"), 403),
            (format!("{path}?{query}x"), 403),
            (format!("{path}?{query}&{query}"), 403),
            (format!("/dl/missing?{query}"), 403),
        ] {
            for field in [("accept-encoding", "gzip"), ("if-none-match", "\"x\"")] {
                let answer = versions::get(&server, version, &target, &[field]);
                assert_eq!(answer.status, status, "{version} {target}");
                let kept = if status < 400 { "private" } else { "no-store" };
                assert_eq!(answer.field("cache-control").as_deref(), Some(kept), "{version} {target}");
            }
        }
    }
    let mut brief = String::new();
    until("one that is still valid", || {
        brief = sign("/dl/c", 2);
        server.get(&brief, "").status == 200
    });
    until("its end", || server.get(&brief, "").status == 403);
    for (key, said) in [("short", "a key has at least 32 bytes"), ("", "a key has at least 32 bytes")] {
        fs::write(place.beside("key"), key).unwrap();
        let before = server.log().matches(said).count();
        server.signal(Signal::HUP);
        until("an error", || server.log().matches(said).count() > before);
        assert_eq!(server.get(&url, "").status, 200);
    }
}
