//! What a client sees with a healthy origin: the same as with local files.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::process::Command;

use crate::client::Client;
use crate::fixture::{Fixture, is};
use crate::meddler::Fault;
use crate::place::{BINARY, Server, pattern, until};
use crate::tools;

const MIB: usize = 1 << 20;

/// Whether a file is complete in the cache: the server then fetches nothing for it.
fn is_warm(fixture: &Fixture, server: &Server, path: &str) -> bool {
    fixture.meddler.asked();
    let status = server.get(path, "").status;
    status == 200 && fixture.meddler.asked().is_empty()
}

#[test]
fn a_cold_file_is_fetched_once_and_a_warm_one_never() {
    let Some(fixture) = Fixture::new("a_cold_file_is_fetched_once_and_a_warm_one_never") else { return };
    let all = pattern(3 * MIB + 77);
    let small = pattern(500);
    fixture.gateway.put("docs/large.bin", &all, &[]);
    fixture.gateway.put("docs/small.txt", &small, &["content-type: text/x-own", "cache-control: max-age=5"]);
    fixture.gateway.put("empty", b"", &[]);
    let server = fixture.serve(&["--no-precompressed"]);
    assert!(fixture.asked().is_empty(), "nothing is asked at start");

    let cold = server.get("/docs/small.txt", "");
    assert_eq!((cold.status, &cold.body), (200, &small));
    assert_eq!(cold.field("content-type").as_deref(), Some("text/x-own"));
    assert_eq!(cold.field("cache-control").as_deref(), Some("max-age=5"));
    assert_eq!(fixture.asked(), ["GET /docs/small.txt"]);
    for _ in 0..50 {
        let warm = server.get("/docs/small.txt", "");
        assert_eq!((warm.status, &warm.body), (200, &small));
        assert_eq!(warm.field("etag"), cold.field("etag"));
    }
    assert!(fixture.asked().is_empty());

    let large = server.get("/docs/large.bin", "");
    assert!(large.status == 200 && large.body == all);
    let asked = fixture.meddler.asked();
    assert_eq!(asked.len(), 4, "a block each: {asked:?}");
    let tag = large.field("etag").expect("a tag");
    assert!(asked[1..].iter().all(|asked| asked.field("if-match") == Some(&tag)), "{asked:?}");
    assert!(asked[0].field("if-match").is_none());
    assert!(server.get("/docs/large.bin", "").body == all);
    assert!(fixture.asked().is_empty());

    let empty = server.get("/empty", "");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    assert_eq!(server.get("/none", "").status, 404);
    fixture.asked();
    assert_eq!(server.get("/none", "").status, 404);
    assert!(fixture.asked().is_empty(), "what is missing is remembered");
    assert_eq!(server.metric("linerate_origin_fetched_blocks_total"), 5.0);
    assert!(server.metric("linerate_origin_cache_bytes") > 3e6);
}

#[test]
fn ranges_fetch_what_they_lie_in() {
    let Some(fixture) = Fixture::new("ranges_fetch_what_they_lie_in") else { return };
    let all = pattern(8 * MIB + 5);
    fixture.gateway.put("f", &all, &[]);
    let server = fixture.serve(&[]);
    let mut client = server.connect();
    // The first look-up includes the first block.
    let asked_for = |fixture: &Fixture| -> Vec<String> {
        let mut ranges: Vec<String> = fixture
            .meddler
            .asked()
            .iter()
            .map(|asked| asked.field("range").unwrap_or("none").to_owned())
            .collect();
        ranges.sort();
        ranges
    };
    let part = |client: &mut Client, field: &str| client.get("/f", &format!("Range: bytes={field}\r\n"));
    let answer = part(&mut client, "5242880-5242889");
    assert_eq!((answer.status, &answer.body[..]), (206, &all[5_242_880..5_242_890]));
    assert_eq!(asked_for(&fixture), ["bytes=0-1048575", "bytes=5242880-6291455"]);
    let answer = part(&mut client, "-5");
    assert_eq!((answer.status, &answer.body[..]), (206, &all[8 * MIB..]));
    assert_eq!(asked_for(&fixture), ["bytes=8388608-8388612"]);
    // Across a boundary, with only one side there.
    let answer = part(&mut client, "6291400-6291500");
    assert_eq!((answer.status, &answer.body[..]), (206, &all[6_291_400..6_291_501]));
    assert_eq!(asked_for(&fixture), ["bytes=6291456-7340031"]);
    let many = part(&mut client, "2097152-2097155,4194304-4194307");
    assert_eq!(many.status, 206);
    for range in [2_097_152..2_097_156, 4_194_304..4_194_308] {
        assert!(many.body.windows(4).any(|window| *window == all[range.clone()]), "{range:?}");
    }
    assert_eq!(asked_for(&fixture), ["bytes=2097152-3145727", "bytes=4194304-5242879"]);
    assert_eq!(part(&mut client, "99999999-").status, 416);
    let whole = client.get("/f", "");
    assert!(whole.status == 200 && whole.body == all);
    assert!(is_warm(&fixture, &server, "/f"));
}

#[test]
fn conditions_and_heads_are_those_of_the_origin() {
    let Some(fixture) = Fixture::new("conditions_and_heads_are_those_of_the_origin") else { return };
    let all = pattern(2 * MIB);
    fixture.gateway.put("f", &all, &[]);
    let server = fixture.serve(&[]);
    // Once before the file is complete, and once after.
    for _ in 0..2 {
        let mut client = server.connect();
        let head = client.ask("HEAD", "/f", "");
        assert_eq!(head.status, 200);
        assert_eq!(head.field("content-length").as_deref(), Some("2097152"));
        let (tag, time) = (head.field("etag").expect("a tag"), head.field("last-modified").expect("a time"));
        for (field, status) in [
            (format!("If-None-Match: {tag}\r\n"), 304),
            (format!("If-Modified-Since: {time}\r\n"), 304),
            (format!("If-Match: {tag}\r\n"), 200),
            ("If-Match: \"other\"\r\n".to_owned(), 412),
            (format!("If-Range: {tag}\r\nRange: bytes=0-1\r\n"), 206),
            ("If-Range: \"other\"\r\nRange: bytes=0-1\r\n".to_owned(), 200),
        ] {
            let answer = client.get("/f", &field);
            assert_eq!(answer.status, status, "{field}");
            assert!(answer.status != 200 || answer.body == all);
        }
    }
}

#[test]
fn directories_have_an_index_and_no_listing() {
    let Some(fixture) = Fixture::new("directories_have_an_index_and_no_listing") else { return };
    fixture.gateway.put("index.html", b"root", &[]);
    fixture.gateway.put("docs/index.html", b"docs", &[]);
    fixture.gateway.put("bare/file", b"file", &[]);
    let server = fixture.serve(&[]);
    for (path, status, body) in [
        ("/", 200, "root"),
        ("/docs/", 200, "docs"),
        ("/bare/file", 200, "file"),
        ("/bare/", 404, ""),
        ("/bare", 404, ""),
        ("/.hidden", 404, ""),
        ("/a/../../secret", 400, ""),
        ("/%ff", 404, ""),
    ] {
        let answer = server.get(path, "");
        assert_eq!(answer.status, status, "{path}");
        assert!(status != 200 || answer.text() == body, "{path}");
    }
    let moved = server.get("/docs?q", "");
    assert_eq!((moved.status, moved.field("location").as_deref()), (301, Some("/docs/?q")));
    assert_eq!(server.get("/", "").field("content-type").as_deref(), Some("text/html; charset=utf-8"));
}

#[test]
fn codings_beside_a_file_and_rules_work_as_with_local_files() {
    let Some(fixture) = Fixture::new("codings_beside_a_file_and_rules_work_as_with_local_files") else {
        return;
    };
    fixture.gateway.put("app.js", b"plain", &[]);
    fixture.gateway.put("app.js.gz", b"coded", &[]);
    fixture.gateway.put("app/index.html", b"app", &[]);
    for key in ["site/blog.html", "site/blog/index.html", "site/docs/index.html"] {
        fixture.gateway.put(key, key.as_bytes(), &[]);
    }
    fixture.gateway.put("text.html", "some text ".repeat(500).as_bytes(), &[]);
    let said =
        ["content-type: text/x-own", "cache-control: private, no-store", "content-disposition: attachment"];
    fixture.gateway.put("own/made.txt", "some text ".repeat(500).as_bytes(), &said);
    fixture.gateway.put("own/beside.txt", b"plain", &said);
    let other = ["content-type: application/gzip", "cache-control: max-age=9"];
    fixture.gateway.put("own/beside.txt.gz", b"coded", &other);
    let rules = fixture.place.beside("rules.toml");
    fs::write(
        &rules,
        "[[rule]]\npath = \"/app/*\"\nfallback = \"/app/index.html\"\n\
         [[rule]]\npath = \"*.html\"\ncompress = true\ncache-control = \"max-age=9\"\n\
         [[rule]]\npath = \"/site/*\"\ntry = [\"$path\", \"$path.html\", \"$path/\"]\n\
         [[rule]]\npath = \"/own/*\"\ncompress = true\n\
         [[rule]]\npath = \"/old/*\"\nredirect = \"/$1\"\n",
    )
    .expect("room");
    let server = fixture.serve(&["--rules", rules.to_str().unwrap()]);
    let coded = server.get("/app.js", "Accept-Encoding: gzip\r\n");
    assert_eq!((coded.text(), coded.field("content-encoding").as_deref()), ("coded", Some("gzip")));
    let plain = server.get("/app.js", "");
    assert_eq!((plain.text(), plain.field("vary").as_deref()), ("plain", Some("accept-encoding")));
    assert_ne!(plain.field("etag"), coded.field("etag"));
    assert_eq!(server.get("/app/some/where", "").text(), "app");
    for _ in 0..2 {
        assert_eq!(server.get("/site/blog", "").text(), "site/blog.html");
        assert_eq!(server.get("/site/docs", "").field("location").as_deref(), Some("/site/docs/"));
    }
    assert_eq!(server.get("/old/app.js", "").field("location").as_deref(), Some("/app.js"));
    let text = server.get("/text.html", "");
    assert_eq!(text.field("cache-control").as_deref(), Some("max-age=9"));
    // A coding is only made from a complete file.
    until("a coding is made", || {
        let made = server.get("/text.html", "Accept-Encoding: gzip\r\n");
        assert_eq!(made.status, 200);
        made.field("content-encoding").as_deref() == Some("gzip")
    });
    // What the origin says counts for codings too, also of those that say something else themselves.
    for path in ["/own/made.txt", "/own/beside.txt"] {
        let plain = server.get(path, "");
        for (name, value) in [("content-type", "text/x-own"), ("cache-control", "private, no-store")] {
            assert_eq!(plain.field(name).as_deref(), Some(value), "{path}");
        }
        for (field, status) in [("", 200), ("Range: bytes=0-1\r\n", 206)] {
            let asked = format!("Accept-Encoding: gzip\r\n{field}");
            until("a coding is made", || {
                let coded = server.get(path, &asked);
                assert_eq!(coded.status, status, "{path}");
                if coded.field("content-encoding").as_deref() != Some("gzip") {
                    return false;
                }
                for name in ["content-type", "cache-control", "content-disposition"] {
                    assert_eq!(coded.field(name), plain.field(name), "{path} {field} {name}");
                }
                true
            });
        }
        let tag = server.get(path, "Accept-Encoding: gzip\r\n").field("etag").expect("a tag");
        let same = server.get(path, &format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"));
        assert_eq!((same.status, same.field("cache-control")), (304, plain.field("cache-control")), "{path}");
    }
}

#[test]
fn a_file_whose_first_byte_is_there_is_sent_before_its_last() {
    let Some(fixture) = Fixture::new("a_file_whose_first_byte_is_there_is_sent_before_its_last") else {
        return;
    };
    let all = pattern(4 * MIB);
    fixture.gateway.put("f", &all, &[]);
    let server = fixture.serve(&[]);
    assert_eq!(server.connect().ask("HEAD", "/f", "").status, 200);
    until("the first block is there", || server.metric("linerate_origin_fetched_blocks_total") == 1.0);
    fixture.meddler.set(Fault::Held);
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let mut begun = Vec::new();
    let mut space = vec![0; MIB];
    while begun.len() < 1000 {
        let count = client.stream.read(&mut space).expect("the first bytes");
        assert!(count > 0, "it ends early");
        begun.extend_from_slice(&space[..count]);
    }
    // Whoever waits doesn't make anybody else wait.
    assert_eq!(server.get("/f", "Range: bytes=0-9\r\n").body, &all[..10]);
    fixture.meddler.set(Fault::None);
    let (rest, well) = client.rest();
    let received = [begun, rest].concat();
    assert!(well && received.starts_with(b"HTTP/1.1 200") && received.ends_with(&all));
}

#[test]
fn every_version_of_http_has_the_same_cold_and_warm() {
    let Some(fixture) = Fixture::new("every_version_of_http_has_the_same_cold_and_warm") else { return };
    let [cert, key] = testkit::certificate(&["localhost"]).write_in(fixture.place.beside(""));
    let tls = ["--tls-listen", "127.0.0.1:0", "--cert", &cert, "--key", &key];
    let all = pattern(3_000_001);
    for (version, flags) in
        [("--http1.1", &[][..]), ("--http1.1", &["--no-ktls"]), ("--http2", &[]), ("h3", &[])]
    {
        // What h3.py checks: all files named f, and ranges of one. Each version has its own, so that it is cold.
        for size in [0, 1, 65_536, 65_537, 3_000_001] {
            fixture.gateway.put(&format!("f{size}"), &all[..size], &[]);
            fs::write(fixture.place.root(&format!("f{size}")), &all[..size]).unwrap();
        }
        fixture.gateway.put("a.js", b"plain", &[]);
        fixture.gateway.put("a.js.gz", b"coded", &[]);
        let _ = fs::remove_dir_all(fixture.cache());
        let server = fixture.serve(&[&tls[..], flags].concat());
        let port = server.secure.expect("a TLS listener").port().to_string();
        for round in ["cold", "warm"] {
            if version == "h3" {
                tools::run(
                    Command::new(tools::aioquic())
                        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/h3.py"))
                        .args([&port, "check"])
                        .arg(fixture.place.root("")),
                );
                continue;
            }
            let mut found = HashMap::new();
            for (name, range) in
                [("f3000001", "1000000-2999999"), ("f3000001", "0-"), ("f1", "0-"), ("f65536", "0-")]
            {
                let output = Command::new("curl")
                    .args([
                        "--silent",
                        "--show-error",
                        "--insecure",
                        "--max-time",
                        "120",
                        version,
                        "-r",
                        range,
                    ])
                    .arg(format!("https://127.0.0.1:{port}/{name}"))
                    .output()
                    .expect("curl runs");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                found.insert((name, range), output.stdout);
            }
            assert!(
                found[&("f3000001", "1000000-2999999")] == all[1_000_000..3_000_000],
                "{version} {round}"
            );
            assert!(found[&("f3000001", "0-")] == all, "{version} {round}");
            assert!(found[&("f1", "0-")] == all[..1] && found[&("f65536", "0-")] == all[..65_536]);
        }
    }
}

#[test]
fn an_object_that_a_protected_path_leads_to_is_for_no_cache() {
    let Some(fixture) = Fixture::new("an_object_that_a_protected_path_leads_to_is_for_no_cache") else {
        return;
    };
    let said = ["cache-control: public, max-age=3600", "content-disposition: attachment"];
    fixture.gateway.put("page", &pattern(10_000), &said);
    fs::write(fixture.place.beside("key"), "0123456789abcdef0123456789abcdef\n").expect("room");
    let rules = fixture.place.beside("rules.toml");
    fs::write(
        &rules,
        "[key.links]\nfile = 'key'\n[[rule]]\npath = '/member/*'\nsigned = 'links'\nrewrite = '/$1'\n",
    )
    .expect("room");
    let server = fixture.serve(&["--rules", rules.to_str().unwrap()]);
    let key = fixture.place.beside("key");
    let output = Command::new(BINARY)
        .args(["sign", "--key", key.to_str().unwrap(), "--for", "1000", "/member/page"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let url = String::from_utf8(output.stdout).expect("text");
    let plain = server.get("/page", "");
    let tag = plain.field("etag").expect("a tag");
    for (path, said) in [("/page", "public, max-age=3600"), (url.trim(), "private")] {
        for (field, status) in [
            (String::new(), 200),
            ("Range: bytes=0-1\r\n".to_owned(), 206),
            ("Range: bytes=0-1,5000-5001\r\n".to_owned(), 206),
            (format!("If-None-Match: {tag}\r\n"), 304),
        ] {
            let answer = server.get(path, &field);
            let lines = answer.fields.iter().filter(|(name, _)| name == "cache-control");
            let lines: Vec<_> = lines.map(|(_, value)| value.as_str()).collect();
            assert_eq!((answer.status, lines), (status, vec![said]), "{path} {field}");
            assert_eq!(answer.field("content-disposition").as_deref(), Some("attachment"), "{path} {field}");
        }
    }
}

#[test]
fn a_hundred_clients_of_a_cold_key_are_one_fetch() {
    let Some(fixture) = Fixture::new("a_hundred_clients_of_a_cold_key_are_one_fetch") else { return };
    let all = pattern(MIB);
    fixture.gateway.put("f", &all, &[]);
    let server = fixture.serve(&[]);
    fixture.meddler.set(Fault::Held);
    let mut clients: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    }
    until("the gateway is asked", || fixture.meddler.waiting() == 1);
    // Another key is looked up meanwhile, by a client that comes after all those.
    let mut late = server.connect();
    late.send("GET /g HTTP/1.1\r\nHost: h\r\n\r\n");
    until("it is asked again", || fixture.meddler.waiting() >= 2);
    fixture.meddler.set(Fault::None);
    for client in &mut clients {
        let answer = client.receive(true).expect("an answer");
        assert!(answer.status == 200 && answer.body == all);
    }
    assert_eq!(late.receive(true).expect("an answer").status, 404);
    let asked = fixture.asked();
    assert_eq!(asked.iter().filter(|line| *line == "GET /f").count(), 1, "{asked:?}");
    assert_eq!(server.metric("linerate_origin_fetched_blocks_total"), 1.0);
}

#[test]
fn what_is_replaced_is_seen_after_the_ttl() {
    let Some(fixture) = Fixture::new("what_is_replaced_is_seen_after_the_ttl") else { return };
    fixture.gateway.put("f", b"first", &[]);
    let server = fixture.serve(&["--origin-ttl", "1", "--origin-missing-ttl", "0", "--revalidate", "250"]);
    let first = server.get("/f", "");
    assert_eq!(first.text(), "first");
    // A revalidation moves no bytes.
    fixture.meddler.asked();
    until("it is revalidated", || {
        assert_eq!(server.get("/f", "").text(), "first");
        fixture.meddler.asked().iter().any(|asked| asked.field("if-none-match").is_some())
    });
    assert_eq!(server.metric("linerate_origin_fetched_blocks_total"), 1.0);
    fixture.gateway.put("f", b"second", &[]);
    until("the second is seen", || server.get("/f", "").text() == "second");
    fixture.gateway.delete("f");
    until("it is gone", || server.get("/f", "").status == 404);
    fixture.gateway.put("f", b"third", &[]);
    until("the third is seen", || is(&server, "/f", "third"));
}
