//! The same files with HTTP/1.1, HTTP/2 and HTTP/3 over TLS.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use files::disk::resident::is_resident;
use rustls::{ClientConnection, StreamOwned};
use testkit::logged;

use crate::crowd::{gather, session};
use crate::place::{BINARY, Place, Server, crowd_of, forget, pattern, settle, until};
use crate::tools;
use crate::versions;

const SIZES: [usize; 5] = [0, 1, 65_536, 65_537, 3_000_001];

/// A server with a TLS listener and these additional flags.
pub fn secure(place: &Place, flags: &[&str]) -> Server {
    secure_by(Command::new(BINARY), place, flags)
}

/// The same with a command that ends with the binary's name.
fn secure_by(command: Command, place: &Place, flags: &[&str]) -> Server {
    let [cert, key] = testkit::certificate(&["localhost"]).write_in(place.beside(""));
    let tls = ["--tls-listen", "127.0.0.1:0", "--cert", &cert, "--key", &key, "--admin", "127.0.0.1:0"];
    place.serve_by(command, &[&tls[..], flags].concat())
}

fn serve(place: &Place) -> Server {
    for size in SIZES {
        place.file(&format!("f{size}"), pattern(size));
    }
    place.file("a.js", "plain");
    place.file("a.js.gz", "coded");
    secure(place, &["--listing"])
}

/// A connection after its handshake, for HTTP/1.1.
fn handshake(server: &Server, certificate: &Path) -> StreamOwned<ClientConnection, TcpStream> {
    let stream = TcpStream::connect(server.secure.expect("a TLS listener")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    StreamOwned::new(session(certificate), stream)
}

fn curl(server: &Server, path: &str, flags: &[&str]) -> (u16, Vec<u8>) {
    let port = server.secure.expect("a TLS listener").port();
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--max-time", "120", "--write-out", "%{stderr}%{http_code}"])
        .args(flags)
        .arg(format!("https://127.0.0.1:{port}{path}"))
        .output()
        .expect("curl runs");
    let status = String::from_utf8_lossy(&output.stderr).trim().parse().unwrap_or(0);
    (status, output.stdout)
}

#[test]
fn answers_are_those_of_the_plain_listener() {
    let place = Place::new();
    check(&serve(&place));
}

/// Compares answers over HTTP/1.1 and HTTP/2 with the files.
fn check(server: &Server) {
    for version in ["--http1.1", "--http2"] {
        for size in SIZES {
            let (status, body) = curl(server, &format!("/f{size}"), &[version]);
            assert!(
                status == 200 && body == pattern(size),
                "{version} {size}: {status}, {} bytes",
                body.len()
            );
        }
        let all = pattern(3_000_001);
        for (flags, status, body) in [
            (&["-r", "1000000-2000000"][..], 206, &all[1_000_000..=2_000_000]),
            (&["-r", "-5"], 206, &all[2_999_996..]),
            (&["-r", "3000001-"], 416, &[]),
            (&["--head"], 200, &[]),
        ] {
            let (found, received) = curl(server, "/f3000001", &[flags, &[version]].concat());
            assert_eq!(found, status, "{version} {flags:?}");
            assert!(body.is_empty() || received == body, "{version} {flags:?}");
        }
        let (status, parts) = curl(server, "/f3000001", &["-r", "0-9,100-109", version]);
        assert!(status == 206 && parts.windows(10).any(|window| window == &all[100..110]), "{version}");
        assert_eq!(
            curl(server, "/a.js", &["-H", "accept-encoding: gzip", version]),
            (200, b"coded".to_vec())
        );
        assert_eq!(curl(server, "/missing", &[version]).0, 404);
        assert_eq!(curl(server, "/%2e%2e/cert.pem", &["--path-as-is", version]).0, 400);
        let (status, listing) = curl(server, "/?format=json", &[version]);
        let listing: serde_json::Value = serde_json::from_slice(&listing).expect("JSON");
        assert_eq!((status, listing.as_array().map(Vec::len)), (200, Some(SIZES.len() + 2)), "{version}");
    }
}

#[test]
fn http_3_answers_whole_files_and_ranges() {
    let place = Place::new();
    let server = serve(&place);
    h3(&server, &["check", place.root("").to_str().unwrap()]);
}

#[test]
fn a_hot_file_is_sent_from_memory_until_it_changes() {
    const HOT: &str = "/f3000001";
    let place = Place::new();
    let server = serve(&place);
    settle(&place.root("f3000001"));
    // Other files are requested too, and have no copy.
    until("it is kept", || {
        assert_eq!(statuses(&server, "--http1.1", HOT, 20), [200; 20]);
        server.metric("linerate_files_tls_copy_bytes") == 3_000_001.0
    });
    check(&server);
    h3(&server, &["check", place.root("").to_str().unwrap()]);
    // The file is changed in place: it stays the same file, with as many bytes.
    let changed = vec![7; 3_000_001];
    File::options().write(true).open(place.root("f3000001")).unwrap().write_all(&changed).unwrap();
    for version in ["--http1.1", "--http2"] {
        until("the change", || curl(&server, HOT, &[version]).1 == changed);
        assert_eq!(curl(&server, HOT, &[version, "-r", "2999999-"]), (206, vec![7, 7]));
    }
}

#[test]
fn small_files_from_memory_have_the_answers_of_the_service() {
    type Request = (&'static str, &'static [(&'static str, &'static str)]);
    const FAST: [Request; 6] = [
        ("GET", &[]),
        ("HEAD", &[]),
        ("GET", &[("range", "bytes=0-9")]),
        ("GET", &[("if-modified-since", "Thu, 31 Dec 2099 00:00:00 GMT")]),
        ("GET", &[("if-none-match", "\"other\""), ("accept-encoding", "identity")]),
        ("GET", &[("origin", "https://a.example")]),
    ];
    const DECLINED: [Request; 5] = [
        ("GET", &[("range", "bytes=0-1,9-10")]),
        ("GET", &[("range", "bytes=99999-")]),
        ("GET", &[("if-match", "\"other\"")]),
        ("OPTIONS", &[]),
        ("POST", &[]),
    ];
    let place = Place::new();
    let rules = place.beside("rules.toml");
    fs::write(&rules, "[[rule]]\npath = '*'\ncache-control = 'max-age=7'\ncors = ['https://a.example']\n")
        .unwrap();
    let paths = [1_024, 16_384, 16_385].map(|size| {
        settle(&place.file(&format!("f{size}"), pattern(size)));
        format!("/f{size}")
    });
    let rules = rules.to_str().unwrap();
    for version in VERSIONS {
        let log = place.beside(&format!("log{version}"));
        let flags = ["--rules", rules, "--workers", "1", "--no-ktls", "--revalidate", "600000"];
        let service = secure(&place, &[&flags[..], &["--tls-memory", "0"]].concat());
        let server = secure(&place, &[&flags[..], &["--access-log", log.to_str().unwrap()]].concat());
        let (mut expected, counted) = (0.0, || server.metric("linerate_files_tls_fast_answers_total"));
        // One copy is made at a time.
        until("copies", || {
            for path in &paths {
                assert_eq!(statuses(&server, "--http2", path, 20), [200; 20]);
                expected += 20.0;
            }
            server.metric("linerate_files_tls_copy_bytes") == 33_793.0
        });
        // HTTP/3's first stream is never answered at once.
        versions::get(&server, version, "/none", &[]);
        for path in &paths {
            // One that nobody asked for lately is dropped.
            if path != "/f16385" {
                until("its copy is found", || {
                    let before = counted();
                    assert_eq!(statuses(&server, "--http2", path, 20), [200; 20]);
                    expected += 20.0;
                    counted() > before
                });
            }
            for (method, fields) in FAST.iter().chain(&DECLINED) {
                if *method == "HEAD" && !versions::knows_head(version) {
                    continue;
                }
                let is_fast = FAST.contains(&(*method, *fields)) && path != "/f16385";
                until("the expected way", || {
                    let before = counted();
                    let [of_service, answer] = [&service, &server].map(|server| {
                        let mut answer = versions::ask(server, version, method, path, fields);
                        answer.fields.sort();
                        // The port, the time and ids differ, and so do bodies with an id or a boundary.
                        let differs = |name: &str| ["alt-svc", "date", "x-request-id"].contains(&name);
                        answer.fields.retain(|(name, _)| !differs(name));
                        let is_multipart = |(_, value): &(String, String)| value.starts_with("multipart/");
                        if answer.status >= 400 || answer.fields.iter().any(is_multipart) {
                            answer.fields.retain(|(name, _)| name != "content-type");
                            answer.body.clear();
                        }
                        (answer.status, answer.fields, answer.body)
                    });
                    assert!(answer == of_service, "{version} {method} {path} {fields:?}: {:?}", answer.1);
                    expected += 1.0;
                    let fast = counted() - before;
                    assert!(is_fast || fast == 0.0, "{version} {method} {path} {fields:?}");
                    fast == f64::from(is_fast)
                });
            }
        }
        server.signal(rustix::process::Signal::TERM);
        until("its lines", || fs::read_to_string(&log).unwrap().lines().count() as f64 == 1.0 + expected);
    }
}

#[test]
fn a_body_of_a_request_for_a_small_file_is_passed_over() {
    let place = Place::new();
    settle(&place.file("f", "text"));
    let server = secure(&place, &["--workers", "1", "--no-ktls"]);
    until("its copy", || {
        assert_eq!(statuses(&server, "--http2", "/f", 20), [200; 20]);
        server.metric("linerate_files_tls_fast_answers_total") > 0.0
    });
    let mut stream = handshake(&server, &place.beside("cert.pem"));
    let fields =
        ["content-length: 5\r\n\r\nGET /", "transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "\r\n"];
    for field in fields {
        stream.write_all(format!("GET /f HTTP/1.1\r\nhost: h\r\n{field}").as_bytes()).unwrap();
    }
    stream.write_all(b"GET /f HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 4, "{text}");
    assert!(text.ends_with("\r\n\r\ntext"), "{text}");
}

#[test]
fn without_memory_for_it_nothing_is_kept_for_tls() {
    let place = Place::new();
    settle(&place.file("f", "text"));
    let server = secure(&place, &["--tls-memory", "0"]);
    assert_eq!(statuses(&server, "--http2", "/f", 60), [200; 60]);
    assert_eq!(curl(&server, "/f", &[]), (200, b"text".to_vec()));
    assert_eq!(server.metric("linerate_files_tls_copy_bytes"), 0.0);
}

/// What aioquic prints in a run of `h3.py` with these arguments.
fn h3(server: &Server, arguments: &[&str]) -> String {
    let output = Command::new(tools::aioquic())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/h3.py"))
        .arg(server.secure.expect("a TLS listener").port().to_string())
        .args(arguments)
        .output()
        .expect("Python runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The statuses of several requests for a path on one connection.
fn statuses(server: &Server, version: &str, path: &str, count: usize) -> Vec<u16> {
    let text = if version == "h3" {
        h3(server, &[&["get"][..], &vec![path; count]].concat())
    } else {
        let port = server.secure.expect("a TLS listener").port();
        let output = Command::new("curl")
            .args(["--silent", "--insecure", "--max-time", "120", version, "--write-out", "%{http_code}\\n"])
            .args((0..count).flat_map(|_| ["--output", "/dev/null"]))
            .args((0..count).map(|_| format!("https://127.0.0.1:{port}{path}")))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    text.lines().map(|line| line.parse().expect("a status")).collect()
}

const VERSIONS: [&str; 3] = ["--http1.1", "--http2", "h3"];

#[test]
fn a_file_that_is_replaced_is_seen_at_once() {
    let place = Place::new();
    let path = place.file("a", "old");
    // An hour: only the kernel's notification can tell.
    let server = secure(&place, &["--revalidate", "3600000"]);
    for text in ["old", "new", "newer"] {
        fs::write(place.beside("next"), text).unwrap();
        fs::rename(place.beside("next"), &path).unwrap();
        // A few times, since there are two workers.
        for _ in 0..8 {
            until("the new text", || curl(&server, "/a", &["--http2"]).1 == text.as_bytes());
        }
    }
    fs::remove_file(&path).unwrap();
    until("its end", || curl(&server, "/a", &["--http1.1"]).0 == 404);
}

#[test]
fn rules_are_read_again() {
    let place = Place::new();
    place.file("a", "text");
    let rules = place.beside("rules.toml");
    fs::write(&rules, "").unwrap();
    let server = secure(&place, &["--rules", rules.to_str().unwrap()]);
    let has = || {
        let (_, head) = curl(&server, "/a", &["--head"]);
        String::from_utf8_lossy(&head).contains("cache-control: no-store")
    };
    assert!(!has());
    fs::write(&rules, "[[rule]]\npath = '*'\ncache-control = 'no-store'\n").unwrap();
    server.signal(rustix::process::Signal::HUP);
    until("the new rules", has);
}

#[test]
fn an_address_has_its_requests_a_second_of_all_listeners_together() {
    for version in VERSIONS {
        let place = Place::new();
        place.file("a", "text");
        let server = secure(&place, &["--address-rate", "1", "--address-burst", "40"]);
        let mut plain = server.connect();
        for _ in 0..20 {
            assert_eq!(plain.get("/a", "").status, 200);
        }
        // Only what is left of the burst is served; more only as time passes.
        let found = statuses(&server, version, "/a", 40);
        let served = found.iter().filter(|status| **status == 200).count();
        assert!((20..40).contains(&served), "{version}: {found:?}");
        assert!(found[..20].iter().all(|status| *status == 200), "{version}: {found:?}");
        assert!(found.iter().all(|status| matches!(status, 200 | 429)), "{version}: {found:?}");
        let again = (0..40).filter(|_| plain.get("/a", "").status == 200).count();
        assert!(again < 20, "{version}: {again}");
    }
}

#[test]
fn an_address_has_its_connections_of_all_listeners_together() {
    let place = Place::new();
    place.file("a", "text");
    let server = secure(&place, &["--address-connections", "3"]);
    let mut held: Vec<_> = (0..3).map(|_| server.connect()).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.get("/a", "").status, 200));
    for version in ["--http1.1", "--http2"] {
        assert_eq!(statuses(&server, version, "/a", 1), [0], "{version}");
    }
    drop(held);
    for version in VERSIONS {
        until("a place", || statuses(&server, version, "/a", 1) == [200]);
    }
}

#[test]
fn requests_are_logged_and_counted_by_what_was_spoken() {
    let place = Place::new();
    place.file("a", "text");
    let log = place.beside("access.log");
    let server = secure(&place, &["--access-log", log.to_str().unwrap()]);
    for version in VERSIONS {
        assert_eq!(statuses(&server, version, "/a", 2), [200, 200], "{version}");
        assert_eq!(statuses(&server, version, "/b", 1), [404], "{version}");
    }
    assert_eq!(server.metric("linerate_files_requests_total{listener=\"tls\",status=\"200\"}"), 6.0);
    assert_eq!(server.metric("linerate_files_requests_total{listener=\"tls\",status=\"404\"}"), 3.0);
    assert_eq!(server.metric("linerate_files_requests_total{listener=\"plain\",status=\"200\"}"), 0.0);
    until("what was sent is counted", || {
        server.metric("linerate_files_sent_bytes_total{listener=\"tls\"}") == 6.0 * 4.0
    });
    assert!(server.metric("linerate_files_listener_accepted_total{protocol=\"http2\"}") >= 1.0);
    for line in server.metrics().lines().filter(|line| !line.starts_with('#')) {
        let names = ["linerate_files_", "linerate_build_info{", "process_"];
        assert!(names.iter().any(|name| line.starts_with(name)), "{line}");
    }
    // Log lines that were not yet written are written when the server ends.
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait(Duration::from_secs(60)).success());
    let lines = logged(&log);
    for (protocol, path, status, count) in [
        ("1.1", "/a", 200, 2),
        ("2", "/a", 200, 2),
        ("3", "/a", 200, 2),
        ("1.1", "/b", 404, 1),
        ("2", "/b", 404, 1),
        ("3", "/b", 404, 1),
    ] {
        let like = |line: &&serde_json::Value| {
            (&line["http"], &line["path"], &line["status"], &line["tls"], &line["client"])
                == (&protocol.into(), &path.into(), &status.into(), &"1.3".into(), &"127.0.0.1".into())
        };
        assert_eq!(lines.iter().filter(like).count(), count, "{protocol} {path}: {lines:?}");
    }
    assert_eq!(lines.len(), 9, "{lines:?}");
}

#[test]
fn what_the_listener_refuses_is_logged_and_counted_too() {
    let place = Place::new();
    place.file("a", "text");
    let log = place.beside("access.log");
    let server = secure(&place, &["--head-timeout", "3", "--no-ktls", "--access-log", log.to_str().unwrap()]);
    let many: String = (0..200).map(|n| format!("X{n}: y\r\n")).collect();
    for (number, (request, status, path)) in [
        ("GET /malformed HTTP/1.1\r\n\r\n".to_owned(), 400, "/malformed"),
        ("GET /expect HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n".to_owned(), 417, "/expect"),
        (format!("GET /many HTTP/1.1\r\nHost: h\r\n{many}\r\n"), 431, "/many"),
        ("GET /slow HTTP/1.1\r\nHost: h\r\n".to_owned(), 408, "/slow"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stream = handshake(&server, &place.beside("cert.pem"));
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        assert!(
            text.starts_with(format!("HTTP/1.1 {status} ").as_bytes()),
            "{}",
            String::from_utf8_lossy(&text)
        );
        until("its line", || logged(&log).len() > number);
        let line = &logged(&log)[number];
        let told = (&line["method"], &line["path"], &line["status"], &line["tls"], &line["client"]);
        let wanted = (&"GET".into(), &path.into(), &status.into(), &"1.3".into(), &"127.0.0.1".into());
        assert_eq!(told, wanted);
        assert!(line["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{line}");
        until("it is counted", || {
            server.metric(&format!("linerate_files_requests_total{{listener=\"tls\",status=\"{status}\"}}"))
                == 1.0
        });
    }
    // In HTTP/2 it is an ordinary header.
    assert_eq!(curl(&server, "/a", &["--http2", "-H", "expect: more"]).0, 417);
    // A client that doesn't speak TLS.
    let mut clear = TcpStream::connect(server.secure.expect("it listens")).expect("it listens");
    clear.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").expect("the server reads");
    let _ = clear.read_to_end(&mut Vec::new());
    until("its line", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"status\":400")).count() == 2
    });
}

#[test]
fn what_is_not_in_memory_is_read_without_keeping_others_waiting() {
    const SIZE: usize = 8 << 20;
    let place = Place::new();
    let cold = File::open(place.file("cold", pattern(SIZE))).unwrap();
    let next = File::open(place.file("next", pattern(SIZE))).unwrap();
    place.file("manifest", "cold\nnext\n");
    let rules = place.beside("rules.toml");
    fs::write(&rules, "[[rule]]\npath = '/*'\nprefetch = 'manifest'\n").unwrap();
    let server = secure(&place, &["--rules", rules.to_str().unwrap()]);
    [&cold, &next].into_iter().for_each(forget);
    let (status, body) = curl(&server, "/cold", &["--http2"]);
    assert!(status == 200 && body == pattern(SIZE));
    assert!(server.metric("linerate_files_cold_reads_total") > 0.0, "the disk was waited for elsewhere");
    // Not all of it, since the kernel may drop what was read ahead.
    until("the next file of the manifest in memory", || {
        // It may also ignore advice to read; a later request repeats the advice.
        curl(&server, "/cold", &["--http2", "--range", "0-0"]);
        is_resident(&next, &(0..1 << 20))
    });
    assert!(server.metric("linerate_files_prefetches_total") >= 1.0);
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_never_passed_off_as_whole() {
    const SIZE: usize = 64 << 20;
    for version in ["--http1.1", "--http2"] {
        for truncated in [true, false] {
            let place = Place::new();
            let path = place.file("f", pattern(SIZE));
            let server = secure(&place, &[]);
            let port = server.secure.expect("a TLS listener").port();
            let mut client = Command::new("curl")
                .args(["--silent", "--insecure", "--max-time", "120", "--limit-rate", "8M", version])
                .arg(format!("https://127.0.0.1:{port}/f"))
                .stdout(Stdio::null())
                .spawn()
                .expect("curl runs");
            until("some of it", || {
                server.metric("linerate_files_sent_bytes_total{listener=\"tls\"}") > (1 << 20) as f64
            });
            let mut file = File::options().write(true).open(&path).unwrap();
            if truncated {
                file.set_len(SIZE as u64 / 2).unwrap();
            } else {
                file.write_all(&vec![0; SIZE]).unwrap();
            }
            assert!(!client.wait().unwrap().success(), "{version} {truncated}");
            assert_eq!(server.metric("linerate_files_answers_cut_total{listener=\"tls\"}"), 1.0);
        }
    }
}

/// Up to `count` clients that read nothing of a file.
fn crowd(place: &Place, server: &Server, count: usize, patience: u64) -> Vec<TcpStream> {
    let address = server.secure.expect("a TLS listener");
    gather(address, &place.beside("cert.pem"), "/large", count, Duration::from_secs(patience))
}

#[test]
fn ten_thousand_clients_that_take_nothing_keep_nobody_waiting() {
    let place = Place::new();
    place.file("large", pattern(8 << 20));
    place.file("small", "small");
    let count = 10_000;
    let Some(_alone) = crowd_of("ten thousand clients of TLS that take nothing", count) else { return };
    let server = secure(&place, &["--max-connections", "12000", "--write-timeout", "600"]);
    let before = server.anonymous();
    let crowd = crowd(&place, &server, count, 60);
    assert_eq!(crowd.len(), count);
    for version in ["--http1.1", "--http2"] {
        assert_eq!(curl(&server, "/small", &[version]), (200, b"small".to_vec()), "{version}");
    }
    let taken = server.anonymous().saturating_sub(before) / count as u64;
    eprintln!("{count} slow clients: {} KiB of memory each", taken >> 10);
    // README.md promises about 60 KiB.
    assert!(taken < 72 << 10, "{taken} bytes for each");
    drop(crowd);
    assert_eq!(curl(&server, "/small", &[]).0, 200);
}

#[test]
fn a_server_out_of_file_descriptors_recovers() {
    let place = Place::new();
    place.file("large", pattern(8 << 20));
    place.file("small", "small");
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=80:80").arg(BINARY);
    let server = secure_by(limited, &place, &[]);
    let crowd = crowd(&place, &server, 200, 5);
    assert!((1..80).contains(&crowd.len()), "{} got a connection", crowd.len());
    drop(crowd);
    until("an answer again", || curl(&server, "/small", &[]) == (200, b"small".to_vec()));
}

#[test]
fn each_host_has_its_certificate_and_operators_have_one_too() {
    let place = Place::new();
    place.file("a", "of both");
    let certify = |name: &str| {
        let files = ["cert", "key"].map(|kind| place.beside(&format!("{name}.{kind}")));
        testkit::certificate(&[name]).write(&files[0], &files[1]);
        files.map(|file| file.to_str().expect("UTF-8").to_owned())
    };
    let [cert, key] = certify("b.example");
    let more = ["--cert", &cert, "--key", &key, "--admin-cert", &cert, "--admin-key", &key];
    let server = secure(&place, &more);
    let public = server.secure.expect("a TLS listener").port();
    let admin = server.admin.expect("an admin listener").port();
    let first = place.beside("cert.pem");
    let ask = |name: &str, port: u16, trusted: &Path, path: &str| {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--http1.1",
                "--max-time",
                "120",
                "--resolve",
                &format!("{name}:{port}:127.0.0.1"),
            ])
            .arg("--cacert")
            .arg(trusted)
            .arg(format!("https://{name}:{port}{path}"))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(ask("localhost", public, &first, "/a"), "of both");
    assert_eq!(ask("b.example", public, cert.as_ref(), "/a"), "of both");
    assert_eq!(ask("c.example", public, &first, "/a"), "", "the first is for another");
    let metrics = ask("b.example", admin, cert.as_ref(), "/metrics");
    for (listener, name) in [("public", "localhost"), ("public", "b.example"), ("admin", "b.example")] {
        let series = format!(
            "linerate_files_certificate_not_after_seconds{{listener=\"{listener}\",name=\"{name}\"}} "
        );
        assert!(metrics.lines().any(|line| line.starts_with(&series)), "{series} is not in\n{metrics}");
    }
    // A new one is presented without a restart.
    let [again, _] = certify("b.example");
    server.signal(rustix::process::Signal::HUP);
    until("the new certificate", || ask("b.example", public, again.as_ref(), "/a") == "of both");
}
