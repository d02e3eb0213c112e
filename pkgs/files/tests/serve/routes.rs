//! Where rules lead requests: redirects, rewrites, tries, fallbacks, and restrictions by referrer.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::archive::unpack;
use crate::place::{BINARY, Place, forget, settle, until};
use crate::secure::secure;
use crate::versions::{self, ALL, knows_head};

/// Writes rules beside the root, and returns the flags that name them.
pub fn rules(place: &Place, text: &str) -> [String; 2] {
    let path = place.beside("rules.toml");
    fs::write(&path, text).expect("rules");
    ["--rules".to_owned(), path.to_str().expect("a path of text").to_owned()]
}

const RULES: &str = r#"
[[rule]]
path = "/old*"
redirect = "/$1"

[[rule]]
match = "^/u/([0-9]+)$"
rewrite = "/users/$1.html"

[[rule]]
path = "/dots/*"
rewrite = "/$1"

[[rule]]
path = "/app/*"
try = ["$path", "$path.html", "$path/"]
fallback = "/app/index.html"

[[rule]]
path = "/app/api/*"
try = []
"#;

#[test]
fn requests_are_led_by_every_version_of_http() {
    let place = Place::new();
    for path in
        ["users/7.html", "app/index.html", "app/a.js", "app/page.html", "app/dir/index.html", ".hidden"]
    {
        place.file(path, path);
    }
    fs::create_dir(place.root("app/empty")).unwrap();
    fs::write(place.beside("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", place.root("out")).unwrap();
    let flags = rules(&place, RULES);
    let server = secure(&place, &flags.each_ref().map(String::as_str));
    for version in ALL {
        for (target, status, location) in [
            ("/old/a%20b?x=1&y", 301, "/a%20b?x=1&y"),
            ("/old%5c%5cevil.example/", 301, "/%5C%5Cevil.example/"),
            ("/old//evil.example", 301, "/evil.example"),
            ("/old/%3Fa=b%23c", 301, "/%3Fa=b%23c"),
            ("/app/dir?q", 301, "/app/dir/?q"),
        ] {
            let answer = versions::get(&server, version, target, &[]);
            assert_eq!(
                (answer.status, answer.field("location").as_deref()),
                (status, Some(location)),
                "{version} {target}"
            );
        }
        // Often enough for all workers to know what is found, and what isn't.
        for _ in 0..3 {
            for (target, status, body) in [
                ("/u/7", 200, "users/7.html"),
                ("/u/8", 404, ""),
                ("/u/7x", 404, ""),
                ("/app/", 200, "app/index.html"),
                ("/app/a.js", 200, "app/a.js"),
                ("/app/page", 200, "app/page.html"),
                ("/app/dir/", 200, "app/dir/index.html"),
                ("/app/empty/", 200, "app/index.html"),
                ("/app/any/route?at=all", 200, "app/index.html"),
                ("/app/api/x", 404, ""),
                ("/app/.hidden", 404, ""),
                ("/app/../secret", 400, ""),
                ("/app/%2e%2e/%2e%2e/secret", 400, ""),
                ("/app/..%2f..%2fsecret", 404, ""),
                ("/dots/.hidden", 404, ""),
                ("/dots/out", 404, ""),
                ("/dots/app/a.js", 200, "app/a.js"),
                ("/dots/%252e%252e/secret", 404, ""),
                ("/old%0d%0aset-cookie:%20a=b", 400, ""),
            ] {
                let answer = versions::get(&server, version, target, &[]);
                assert_eq!(answer.status, status, "{version} {target}");
                assert!(status != 200 || answer.text() == body, "{version} {target}: {}", answer.text());
                assert_eq!(answer.field("set-cookie"), None);
            }
        }
        // A page that stands in for another is treated as the page: conditions, ranges and HEAD apply to it.
        let page = versions::get(&server, version, "/app/index.html", &[]);
        let tag = page.field("etag").expect("a tag");
        let stood = versions::get(&server, version, "/app/any", &[("if-none-match", &tag)]);
        assert_eq!((stood.status, stood.field("etag").as_ref()), (304, Some(&tag)), "{version}");
        let part = versions::get(&server, version, "/app/any", &[("range", "bytes=0-2")]);
        assert_eq!((part.status, part.text()), (206, "app"), "{version}");
        if knows_head(version) {
            let head = versions::ask(&server, version, "HEAD", "/app/any", &[]);
            let length = head.field("content-length");
            assert_eq!((head.status, length.as_deref()), (200, Some("14")), "{version}");
        }
        let options = versions::ask(&server, version, "OPTIONS", "/old/a", &[]);
        assert_eq!((options.status, options.field("location")), (204, None), "{version}");
    }
}

#[test]
fn a_page_comes_before_the_directory_of_its_name() {
    let place = Place::new();
    place.file("spa.html", "spa.html");
    for below in ["page", "nginx", "app", "spa"] {
        for name in ["blog.html", "blog/post.html", "docs/index.html", "docs.html", "only/index.html"] {
            let path = format!("{below}/{name}");
            place.file(&path, &path);
        }
    }
    let flags = rules(
        &place,
        "[[rule]]\npath = '/page/*'\ntry = ['$path', '$path.html', '$path/']\n\
         [[rule]]\npath = '/nginx/*'\ntry = ['$path', '$path.html']\n\
         [[rule]]\npath = '/app/*'\ntry = ['$path', '$path/', '$path.html', '/spa.html']\n\
         [[rule]]\npath = '/spa/*'\ntry = ['$path', '/spa.html']\n",
    );
    let server = secure(&place, &flags.each_ref().map(String::as_str));
    for version in ALL {
        // Looked up, and then known.
        for _ in 0..3 {
            for (target, status, told) in [
                ("/page/blog", 200, "page/blog.html"),
                ("/page/blog/post", 200, "page/blog/post.html"),
                ("/page/docs", 200, "page/docs.html"),
                ("/page/only", 301, "/page/only/"),
                ("/nginx/blog", 200, "nginx/blog.html"),
                ("/nginx/only", 301, "/nginx/only/"),
                ("/app/blog", 200, "app/blog.html"),
                ("/app/docs", 301, "/app/docs/"),
                ("/app/docs/", 200, "app/docs/index.html"),
                ("/app/blog/", 200, "spa.html"),
                ("/spa/blog", 301, "/spa/blog/"),
                ("/spa/blog/", 200, "spa.html"),
                ("/spa/only", 301, "/spa/only/"),
                ("/spa/none", 200, "spa.html"),
            ] {
                let answer = versions::get(&server, version, target, &[]);
                assert_eq!(answer.status, status, "{version} {target}");
                match status {
                    301 => assert_eq!(answer.field("location").as_deref(), Some(told), "{version} {target}"),
                    _ => assert_eq!(answer.text(), told, "{version} {target}"),
                }
            }
        }
    }
}

#[test]
fn the_directory_that_rules_lead_to_is_listed_and_archived_and_no_other() {
    let place = Place::new();
    for path in ["pub/a", "drop/secret"] {
        place.file(path, path);
    }
    let flags = rules(
        &place,
        "[[rule]]\npath = '/pub/*'\nlisting = true\narchive = ['zip']\n\
         [[rule]]\npath = '/drop/*'\nfallback = '/pub/'\n\
         [[rule]]\npath = '/files/*'\nrewrite = '/pub/$1'\n",
    );
    let server = secure(&place, &flags.each_ref().map(String::as_str));
    for version in ALL {
        // Looked up, and then known.
        for target in ["/drop/", "/files/", "/drop/none", "/drop/", "/files/", "/pub/"] {
            let answer = versions::get(&server, version, target, &[("accept", "application/json")]);
            assert_eq!(answer.status, 200, "{version} {target}");
            let text = answer.text();
            assert!(text.contains("\"a\"") && !text.contains("secret"), "{version} {target}: {text}");
        }
        for target in ["/drop/?archive=zip", "/files/?archive=zip", "/pub/?archive=zip"] {
            let answer = versions::get(&server, version, target, &[]);
            assert_eq!(answer.status, 200, "{version} {target}");
            let all = unpack("zip", &answer.body);
            assert_eq!(all.into_keys().collect::<Vec<_>>(), ["pub/", "pub/a"], "{version} {target}");
        }
    }
}

#[test]
fn what_is_led_to_is_found_cold_and_changes() {
    let place = Place::new();
    let page = place.file("app/index.html", "one");
    let flags = rules(&place, RULES);
    let server = place.serve(&flags.each_ref().map(String::as_str));
    // Not in memory, as far as that can be achieved: a thread that may wait looks up the names.
    forget(&fs::File::open(&page).unwrap());
    let mut client = server.connect();
    // A pipeline of them is answered in order.
    client.send("GET /app/x HTTP/1.1\r\nHost: h\r\n\r\nGET /u/1 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(50));
    for _ in 0..50 {
        let answer = client.receive(true).unwrap();
        assert_eq!((answer.status, answer.text()), (200, "one"));
        assert_eq!(client.receive(true).unwrap().status, 404);
    }
    settle(&page);
    for text in ["two", "three"] {
        fs::write(place.beside("next"), text).unwrap();
        fs::rename(place.beside("next"), &page).unwrap();
        for _ in 0..8 {
            until("the new page", || server.get("/app/x", "").text() == text);
        }
    }
    // A file that appears is the answer from then on, and one that disappears no longer is.
    let real = place.file("app/x", "real");
    until("the file", || server.get("/app/x", "").text() == "real");
    fs::remove_file(real).unwrap();
    until("the page", || server.get("/app/x", "").text() == "three");
    fs::remove_file(page).unwrap();
    until("nothing", || server.get("/app/x", "").status == 404);
}

#[test]
fn pages_of_other_origins_may_not_refer_to_what_is_not_for_them() {
    let place = Place::new();
    for path in ["img/a.png", "img/a.png.gz", "img/dir/index.html", "a"] {
        place.file(path, path);
    }
    let flags = rules(
        &place,
        "[[rule]]\npath = '/img/*.png'\nreferrers = ['https://example.org', 'none']\n\
         [[rule]]\npath = '/img/dir/index.html'\nreferrers = ['https://example.org']\n\
         [[rule]]\npath = '/img/gone*'\nreferrers = ['https://example.org']\n\
         [[rule]]\npath = '/to/*'\nrewrite = '/img/$1'\n\
         [[rule]]\npath = '/led/*'\nreferrers = ['https://example.org']\nrewrite = '/$1'\n\
         [[rule]]\npath = '/away/*'\nreferrers = ['https://example.org']\nredirect = 'https://cdn.example/$1'\n",
    );
    let server = secure(&place, &flags.each_ref().map(String::as_str));
    for version in ALL {
        for (target, referrer, status) in [
            ("/img/a.png", "", 200),
            ("/img/a.png", "https://example.org/x", 200),
            ("/img/a.png", "https://evil.example/", 403),
            ("/img//./a%2Epng", "https://evil.example/", 403),
            // Under any name.
            ("/img/a.png.gz", "https://evil.example/", 403),
            ("/to/a.png", "https://evil.example/", 403),
            ("/img/dir/", "", 403),
            ("/img/dir/", "https://example.org/", 200),
            // A client that may not have it isn't told whether it exists.
            ("/img/gone", "", 403),
            ("/img/gone", "https://example.org/", 404),
            ("/to/gone.png", "https://evil.example/", 403),
            ("/to/gone.png", "https://example.org/", 404),
            ("/a", "https://evil.example/", 200),
            // Where the protected path leads to what everybody may have.
            ("/led/a", "https://evil.example/", 403),
            ("/led/a", "https://example.org/", 200),
            ("/away/x", "https://evil.example/", 403),
            ("/away/x", "https://example.org/", 301),
        ] {
            for method in if knows_head(version) { &["GET", "HEAD"][..] } else { &["GET"] } {
                let fields = [("referer", referrer)];
                let fields = if referrer.is_empty() { &[][..] } else { &fields };
                let answer = versions::ask(&server, version, method, target, fields);
                assert_eq!(answer.status, status, "{version} {method} {target} {referrer}");
                if matches!(status, 200 | 301) && target != "/a" {
                    assert_eq!(
                        answer.field("vary").as_deref().map(|vary| vary.contains("referer")),
                        Some(true)
                    );
                }
            }
        }
    }
}

#[test]
fn rules_that_lead_nowhere_are_refused_at_start_and_change_nothing_later() {
    let place = Place::new();
    place.file("a", "a");
    let flags = rules(&place, "[[rule]]\npath = '/b'\nrewrite = '/a'\n");
    let server = place.serve(&flags.each_ref().map(String::as_str));
    assert_eq!(server.get("/b", "").status, 200);
    for bad in [
        "[[rule]]\npath = '/b'\nredirect = '//evil.example/'\n",
        "[[rule]]\nmatch = '('\nrewrite = '/a'\n",
        "[[rule]]\npath = '/b'\ntry = ['a']\n",
    ] {
        rules(&place, bad);
        let before = server.log().matches("stay as they were").count();
        server.signal(Signal::HUP);
        until("an error", || server.log().matches("stay as they were").count() > before);
        assert_eq!(server.get("/b", "").status, 200);
        for arguments in [&["check"][..], &["serve", "--listen", "127.0.0.1:0", "--rules"]] {
            let output = Command::new(BINARY).args(arguments).arg(&flags[1]).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
            assert!(said.starts_with("error: ") && said.contains("rule \""), "{said}");
        }
    }
}

#[test]
fn a_configuration_of_nginx_becomes_rules_that_are_served_by() {
    let place = Place::new();
    for path in ["index.html", "assets/a.js", "404.html", "new"] {
        place.file(path, path);
    }
    let conf = place.beside("nginx.conf");
    let text = "server {\n  root /srv;\n  error_page 404 /404.html;\n  location /app/ { try_files $uri /index.html; }\n\
                \x20 location /assets/ { expires 1h; }\n  location = /old { return 301 /new; }\n\
                \x20 location /api/ { proxy_pass http://h; }\n}\n";
    fs::write(&conf, text).unwrap();
    let import = || Command::new(BINARY).arg("import-nginx").arg(&conf).output().expect("it runs");
    let output = import();
    assert!(output.status.success());
    let left = String::from_utf8(output.stderr).unwrap();
    assert!(left.ends_with("nginx.conf:7: proxy_pass http://h: it is not about files\n"), "{left}");
    let flags = rules(&place, std::str::from_utf8(&output.stdout).unwrap());
    let server = place.serve(&flags.each_ref().map(String::as_str));
    let mut client = server.connect();
    assert_eq!(client.get("/app/x", "").text(), "index.html");
    assert_eq!(client.get("/assets/a.js", "").field("cache-control").as_deref(), Some("max-age=3600"));
    assert_eq!(client.get("/old?a", "").field("location").as_deref(), Some("/new"));
    assert_eq!(client.get("/none", "").text(), "404.html");
    fs::write(&conf, "server {").unwrap();
    let output = import();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{said}");
}
