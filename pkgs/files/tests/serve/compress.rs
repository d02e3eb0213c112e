//! Codings that are made from files without a ready-made one.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::place::{Place, Server, settle, until};
use crate::routes::rules;
use crate::secure::secure;
use crate::versions::{self, ALL, knows_head};

const RULES: &str = "[[rule]]\npath = '*'\ncompress = true\n\
                     [[rule]]\npath = '/plain/*'\ncompress = false\n\
                     [[rule]]\npath = '/small/*'\ncompress-max = 5000\n";

fn text(number: usize) -> String {
    (0..4000).map(|line| format!("{number}: line {line} of a text\n")).collect()
}

/// A server with texts that have settled.
fn serve(place: &Place, flags: &[&str]) -> Server {
    for path in ["a.js", "plain/a.js", "small/a.js", "a.bin", "app/index.html"] {
        settle(&place.file(path, text(0)));
    }
    settle(&place.file("tiny.js", "x"));
    settle(&place.file("beside.js", text(0)));
    settle(&place.file("beside.js.gz", "beside"));
    let named = rules(place, RULES);
    secure(place, &[&named.each_ref().map(String::as_str)[..], flags].concat())
}

/// What a program makes from bytes.
pub fn through(program: &str, bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes).expect("it reads"));
    let mut out = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut out).expect("bytes");
    writer.join().expect("written");
    assert!(child.wait().expect("it ends").success(), "{program}");
    out
}

#[test]
fn a_text_has_codings_with_tags_ranges_and_conditions_of_their_own() {
    let place = Place::new();
    let server = serve(&place, &[]);
    let mut tags = Vec::new();
    for version in ALL {
        let get = |target: &str, fields: &[(&str, &str)]| versions::get(&server, version, target, fields);
        let plain = get("/a.js", &[]);
        assert_eq!((plain.field("content-encoding"), plain.text()), (None, &*text(0)), "{version}");
        assert_eq!(plain.field("vary").as_deref(), Some("accept-encoding"), "{version}");
        tags.push(plain.field("etag").expect("a tag"));
        for (accept, coding, program) in
            [("gzip", "gzip", "gzip"), ("br;q=0.5, zstd", "zstd", "zstd"), ("gzip, br", "br", "")]
        {
            let accept = ("accept-encoding", accept);
            let whole = get("/a.js", &[accept]);
            assert_eq!(
                (whole.status, whole.field("content-encoding").as_deref()),
                (200, Some(coding)),
                "{version}"
            );
            assert_eq!(whole.field("vary").as_deref(), Some("accept-encoding"));
            assert_eq!(whole.field("content-type"), plain.field("content-type"));
            assert_eq!(whole.field("last-modified"), plain.field("last-modified"));
            assert_eq!(whole.field("content-length"), Some(whole.body.len().to_string()));
            assert!(whole.body.len() * 4 < plain.body.len(), "{version} {coding}: {}", whole.body.len());
            if program.is_empty() {
                let mut decoded = Vec::new();
                brotli::BrotliDecompress(&mut &whole.body[..], &mut decoded).expect("brotli");
                assert!(decoded == plain.body, "{version} {coding}");
            } else {
                assert!(through(program, &whole.body) == plain.body, "{version} {coding}");
            }
            let tag = whole.field("etag").expect("a tag");
            // Conditions and ranges apply to the coding.
            let not_modified = get("/a.js", &[accept, ("if-none-match", &tag)]);
            assert_eq!((not_modified.status, not_modified.field("etag").as_ref()), (304, Some(&tag)));
            assert_eq!(not_modified.field("vary").as_deref(), Some("accept-encoding"));
            assert_eq!(get("/a.js", &[("if-none-match", &tag)]).status, 200, "{version}: not of the file");
            assert_eq!(get("/a.js", &[accept, ("if-match", &tags[0])]).status, 412, "{version}");
            let part = get("/a.js", &[accept, ("range", "bytes=100-199"), ("if-range", &tag)]);
            assert!(part.status == 206 && part.body == whole.body[100..200], "{version} {coding}");
            assert_eq!(
                part.field("content-range"),
                Some(format!("bytes 100-199/{}", whole.body.len())),
                "{version}"
            );
            let stale = get("/a.js", &[accept, ("range", "bytes=100-199"), ("if-range", &tags[0])]);
            assert!(stale.status == 200 && stale.body == whole.body, "{version} {coding}");
            let many = get("/a.js", &[accept, ("range", "bytes=0-1,500-501")]);
            assert_eq!(many.status, 206, "{version}");
            assert_eq!(get("/a.js", &[accept, ("range", "bytes=9999999-")]).status, 416, "{version}");
            if knows_head(version) {
                let head = versions::ask(&server, version, "HEAD", "/a.js", &[accept]);
                assert_eq!(head.field("content-length"), whole.field("content-length"), "{version}");
                assert_eq!((head.field("etag"), head.body.len()), (Some(tag.clone()), 0), "{version}");
            }
            tags.push(tag);
        }
        let gzip = ("accept-encoding", "gzip");
        for (target, coding, vary) in [
            ("/plain/a.js", None, None),
            ("/small/a.js", None, None),
            ("/a.bin", None, None),
            ("/tiny.js", None, None),
            ("/beside.js", Some("gzip"), Some("accept-encoding")),
        ] {
            let answer = get(target, &[gzip]);
            assert_eq!(
                (answer.status, answer.field("content-encoding").as_deref(), answer.field("vary").as_deref()),
                (200, coding, vary),
                "{version} {target}"
            );
        }
        assert_eq!(get("/beside.js", &[gzip]).text(), "beside");
        // If the ready-made codings aren't accepted, another one is made.
        assert_eq!(
            get("/beside.js", &[("accept-encoding", "zstd")]).field("content-encoding").as_deref(),
            Some("zstd")
        );
        assert_eq!(get("/a.js", &[("accept-encoding", "gzip;q=0, deflate")]).field("content-encoding"), None);
    }
    // Every version of HTTP gets the same tags.
    assert!(tags.chunks(4).all(|of_version| of_version == &tags[..4]), "{tags:?}");
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "each coding has one of its own");
    assert!(server.metric("linerate_files_variant_bytes") > 0.0);
}

#[test]
fn a_hot_coding_is_that_of_the_file_as_it_is() {
    let place = Place::new();
    let server = serve(&place, &["--revalidate", "100"]);
    let get = || server.get("/a.js", "Accept-Encoding: gzip\r\n");
    for number in 0..3 {
        fs::write(place.beside("next"), text(number)).unwrap();
        settle(&place.beside("next"));
        // Another second, so that the tags of all differ.
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000 + number as u64);
        fs::File::options().write(true).open(place.beside("next")).unwrap().set_modified(time).unwrap();
        fs::rename(place.beside("next"), place.root("a.js")).unwrap();
        for _ in 0..8 {
            until("the new text", || through("gzip", &get().body) == text(number).as_bytes());
        }
        let first = get();
        let mut client = server.connect();
        client.send("GET /a.js HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n".repeat(200));
        for _ in 0..200 {
            let answer = client.receive(true).unwrap();
            assert!(answer.field("content-encoding").as_deref() == Some("gzip") && answer.body == first.body);
        }
    }
}

#[test]
fn memory_for_codings_is_bounded_and_files_are_sent_all_the_same() {
    let place = Place::new();
    let size = text(0).len();
    for number in 0..60 {
        settle(&place.file(&format!("n{number}.txt"), text(number)));
    }
    let memory = 2 * size;
    let server = serve(&place, &["--variant-memory", &memory.to_string()]);
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for round in 0..3 {
        for number in (0..60).step_by(8) {
            for (offset, client) in clients.iter_mut().enumerate() {
                let number = (number + offset + round) % 60;
                client
                    .send(format!("GET /n{number}.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n"));
            }
            for (offset, client) in clients.iter_mut().enumerate() {
                let answer = client.receive(true).unwrap();
                let body = match answer.field("content-encoding").as_deref() {
                    Some("gzip") => through("gzip", &answer.body),
                    _ => answer.body,
                };
                assert!(body == text((number + offset + round) % 60).as_bytes(), "{number}");
            }
            assert!(server.metric("linerate_files_variant_bytes") <= memory as f64);
        }
    }
    let none = serve(&place, &["--variant-memory", "0"]);
    assert_eq!(none.get("/a.js", "Accept-Encoding: gzip\r\n").field("content-encoding"), None);
}

#[test]
fn who_may_not_have_a_file_may_not_have_its_coding() {
    let place = Place::new();
    settle(&place.file("private/a.js", text(0)));
    let flags = rules(
        &place,
        "[[rule]]\npath = '*'\ncompress = true\n[[rule]]\npath = '/private/*'\nreferrers = ['https://a.example']\n",
    );
    let server = secure(&place, &flags.each_ref().map(String::as_str));
    for version in ALL {
        for _ in 0..2 {
            let gzip = ("accept-encoding", "gzip");
            let may =
                versions::get(&server, version, "/private/a.js", &[gzip, ("referer", "https://a.example/")]);
            assert_eq!(
                (may.status, may.field("content-encoding").as_deref()),
                (200, Some("gzip")),
                "{version}"
            );
            assert_eq!(may.field("vary").as_deref(), Some("accept-encoding, referer"), "{version}");
            assert_eq!(versions::get(&server, version, "/private/a.js", &[gzip]).status, 403, "{version}");
        }
    }
}
