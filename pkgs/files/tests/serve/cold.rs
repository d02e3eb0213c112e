//! Files that aren't in memory, read with io_uring and by threads.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::archive::unpack;
use crate::auth::hash;
use crate::client::Client;
use crate::compress::through;
use crate::crowd::gather;
use crate::place::{BINARY, Place, Server, forget, pattern, settle, taken, until};
use crate::routes::rules;
use crate::secure::secure;
use crate::versions::{self, ALL};

/// The ways of reading.
const READERS: [&str; 2] = ["uring", "threads"];

/// A block of the ring.
const BLOCK: usize = 128 * 1024;

/// More than all buffers on the way hold.
const LARGE: usize = 32 << 20;

/// Whether this kernel allows us to use io_uring; prints a message if not.
fn has_ring(test: &'static str) -> bool {
    // On a separate thread: the end of a ring interrupts whatever its thread waits for.
    let there = std::thread::spawn(|| files::disk::ring::Ring::new(0).is_ok()).join().expect("no panic");
    if !there {
        bench::skipped(test, "no io_uring here");
    }
    there
}

/// A cold file below the root.
fn cold(place: &Place, path: &str, length: usize) -> File {
    let file = File::open(place.file(path, pattern(length))).expect("the file");
    forget(&file);
    file
}

fn by_ring(server: &Server) -> f64 {
    server.metric("linerate_files_uring_reads_total")
}

#[test]
fn a_cold_file_is_sent_whole_and_in_parts_whatever_its_size() {
    if !has_ring("a_cold_file_is_sent_whole_and_in_parts_whatever_its_size") {
        return;
    }
    for reader in READERS {
        let place = Place::new();
        let server = place.serve(&["--disk", reader, "--admin", "127.0.0.1:0"]);
        for length in [1, 511, 4095, 4096, 4097, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7, 5_000_001] {
            let path = format!("f{length}");
            let file = cold(&place, &path, length);
            let all = pattern(length);
            // Again and again: what is requested twice is let into memory, and then forgotten once more.
            for _ in 0..3 {
                assert!(server.get(&format!("/{path}"), "").body == all, "{reader}: {length}");
                forget(&file);
            }
            for (first, last) in [(0, 0), (1, 4096), (length / 2, length - 1), (4095, BLOCK + 4097)] {
                let last = last.min(length - 1);
                if first > last {
                    continue;
                }
                forget(&file);
                let answer = server.get(&format!("/{path}"), &format!("Range: bytes={first}-{last}\r\n"));
                assert_eq!(answer.status, 206);
                assert!(answer.body == all[first..=last], "{reader}: {first}-{last} of {length}");
            }
        }
        // Workers report now and then.
        if reader == "uring" {
            until("it has read by the ring", || by_ring(&server) > 50.0);
        } else {
            assert_eq!(by_ring(&server), 0.0);
        }
        let ranges = format!("Range: bytes=1-10,{BLOCK}-{},-1\r\n", 3 * BLOCK);
        let warm = server.get("/f5000001", &ranges);
        forget(&File::open(place.root("f5000001")).unwrap());
        let answer = server.get("/f5000001", &ranges);
        let boundary = |body: &[u8]| body.windows(2).position(|two| two == b"\r\n").unwrap_or(0);
        assert_eq!((answer.status, answer.body.len()), (206, warm.body.len()), "{}", boundary(&warm.body));
    }
}

#[test]
fn what_sends_and_what_reads_is_said_at_start() {
    let place = Place::new();
    for (flags, engine, disk) in [
        (&["--disk", "threads"][..], "auto", "threads"),
        (&["--engine", "sendfile", "--disk", "threads"], "sendfile", "threads"),
        (&[], "auto", "uring"),
    ] {
        if disk == "uring" && !has_ring("what_sends_and_what_reads_is_said_at_start") {
            continue;
        }
        let server = place.serve(&[flags, &["--admin", "127.0.0.1:0"]].concat());
        assert!(server.log().contains(&format!("engine={engine} disk={disk}")), "{}", server.log());
        let metric = format!("linerate_files_io_info{{engine=\"{engine}\",disk=\"{disk}\"}}");
        assert_eq!(server.metric(&metric), 1.0);
    }
}

#[test]
fn what_is_asked_for_again_is_let_into_memory_and_what_is_asked_for_once_is_not() {
    if !has_ring("what_is_asked_for_again_is_let_into_memory_and_what_is_asked_for_once_is_not") {
        return;
    }
    let place = Place::new();
    let file = cold(&place, "f", 1 << 20);
    let server = place.serve(&["--disk", "uring", "--workers", "1"]);
    let resident = || files::disk::resident::is_resident(&file, &(0..4096));
    server.get("/f", "");
    assert!(!resident(), "once");
    server.get("/f", "");
    until("it is in memory", resident);
    assert!(server.get("/f", "").body == pattern(1 << 20), "out of memory");
}

#[test]
fn a_file_with_holes_in_memory_is_sent_to_many_at_once() {
    const LARGE: usize = 256 << 20;
    const LOOKED_AT: usize = 1 << 20;
    let place = Place::new();
    let file = cold(&place, "f", LARGE);
    let server = place.serve(&["--workers", "1"]);
    // What is checked before a turn is in memory, and what is in between isn't.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("advice is taken");
    for start in (0..LARGE).step_by(LOOKED_AT) {
        for at in [start, start + LOOKED_AT - 1] {
            file.read_exact_at(&mut [0], at as u64).expect("a byte");
        }
    }
    let address = server.address();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let bytes = taken(address, "/f");
                assert!(bytes > LARGE as u64, "{bytes}");
            });
        }
    });
}

#[test]
fn clients_that_take_nothing_keep_no_blocks_from_others() {
    if !has_ring("clients_that_take_nothing_keep_no_blocks_from_others") {
        return;
    }
    let place = Place::new();
    let file = cold(&place, "f", LARGE);
    // Eight blocks.
    let few = ["--disk", "uring", "--workers", "1", "--disk-memory", "1", "--write-timeout", "600"];
    let server = place.serve(&few);
    let mut slow: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    for client in &mut slow {
        client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for number in 0..20 {
        let other = format!("other{number}");
        cold(&place, &other, 500_001);
        assert!(server.get(&format!("/{other}"), "").body == pattern(500_001));
    }
    forget(&file);
    // Those that continue get all of it nevertheless.
    for client in &mut slow[..4] {
        assert!(client.receive(true).expect("an answer").body == pattern(LARGE));
    }
}

#[test]
fn clients_that_leave_while_the_disk_is_read_take_nothing_with_them() {
    if !has_ring("clients_that_leave_while_the_disk_is_read_take_nothing_with_them") {
        return;
    }
    let place = Place::new();
    let files: Vec<File> = (0..20).map(|number| cold(&place, &format!("f{number}"), 2_400_000)).collect();
    let server = place.serve(&["--disk", "uring", "--workers", "1", "--disk-memory", "1"]);
    for round in 0..10 {
        for number in 0..files.len() {
            let mut client = server.connect();
            client.send(format!("GET /f{number} HTTP/1.1\r\nHost: h\r\n\r\n"));
            if (round + number) % 2 == 0 {
                let _ = client.stream.read(&mut [0; 1000]);
            }
        }
        files.iter().for_each(forget);
        assert!(server.get(&format!("/f{round}"), "").body == pattern(2_400_000));
    }
}

#[test]
fn answers_under_way_are_finished_at_shutdown() {
    if !has_ring("answers_under_way_are_finished_at_shutdown") {
        return;
    }
    let place = Place::new();
    let files: Vec<File> = (0..8).map(|number| cold(&place, &format!("f{number}"), LARGE / 4)).collect();
    let server = place.serve(&["--disk", "uring", "--drain-timeout", "60"]);
    let mut clients: Vec<(Client, _)> = (0..files.len())
        .map(|number| {
            let mut client = server.connect();
            client.send(format!("GET /f{number} HTTP/1.1\r\nHost: h\r\n\r\n"));
            let head = client.receive_head().expect("a head");
            (client, head)
        })
        .collect();
    server.signal(Signal::TERM);
    for (client, head) in &mut clients {
        let answer = client.receive_body(head.clone()).expect("an answer");
        assert!(answer.body == pattern(LARGE / 4));
    }
    drop(clients);
    assert!(server.wait(Duration::from_secs(60)).success());
}

#[test]
fn a_cold_file_that_changes_while_it_is_sent_is_cut() {
    if !has_ring("a_cold_file_that_changes_while_it_is_sent_is_cut") {
        return;
    }
    type Change = fn(&Place);
    let changes: [(&str, Change); 2] = [
        ("truncated", |place| {
            File::options().write(true).open(place.root("f")).unwrap().set_len(LARGE as u64 / 2).unwrap();
        }),
        ("written to", |place| {
            let mut file = File::options().write(true).open(place.root("f")).unwrap();
            std::io::Write::write_all(&mut file, &vec![0; LARGE]).unwrap();
        }),
    ];
    for (what, change) in changes {
        let place = Place::new();
        cold(&place, "f", LARGE);
        let server = place.serve(&["--disk", "uring"]);
        let mut client = server.connect();
        client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
        let head = client.receive_head().expect("a head");
        assert_eq!(head.field("content-length"), Some(LARGE.to_string()));
        change(&place);
        let (all, well) = client.rest();
        assert!(!well && all.len() < LARGE, "{what}: {} bytes", all.len());
        assert!(all == pattern(LARGE)[..all.len()], "{what}: it is what was there before");
        place.file("alive", "alive");
        server.assert_alive("/alive");
    }
}

#[test]
fn a_cold_file_that_is_replaced_while_it_is_sent_is_sent_as_it_was() {
    if !has_ring("a_cold_file_that_is_replaced_while_it_is_sent_is_sent_as_it_was") {
        return;
    }
    let place = Place::new();
    cold(&place, "f", LARGE);
    let server = place.serve(&["--disk", "uring"]);
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.receive_head().expect("a head");
    fs::write(place.beside("new"), "new").unwrap();
    fs::rename(place.beside("new"), place.root("f")).unwrap();
    assert!(client.receive_body(head).expect("an answer").body == pattern(LARGE));
    until("the other file", || client.get("/f", "").body == b"new");
}

#[test]
fn a_cold_file_is_encrypted_whole_and_in_parts_whatever_its_size() {
    if !has_ring("a_cold_file_is_encrypted_whole_and_in_parts_whatever_its_size") {
        return;
    }
    for reader in READERS {
        let place = Place::new();
        let server = secure(&place, &["--disk", reader, "--no-ktls", "--tls-memory", "0"]);
        for length in [1, 4097, BLOCK - 1, BLOCK + 1, 3 * BLOCK + 7, 5_000_001] {
            let path = format!("f{length}");
            let file = cold(&place, &path, length);
            let all = pattern(length);
            for version in &ALL[1..] {
                // What is requested twice is let into memory, and then forgotten once more.
                for _ in 0..2 {
                    forget(&file);
                    let answer = versions::get(&server, version, &format!("/{path}"), &[]);
                    assert!(answer.body == all, "{reader} {version}: {} of {length}", answer.body.len());
                }
                for (first, last) in [(0, 0), (length / 2, length - 1), (4095, BLOCK + 4097)] {
                    let last = last.min(length - 1);
                    if first > last {
                        continue;
                    }
                    forget(&file);
                    let range = format!("bytes={first}-{last}");
                    let answer = versions::get(&server, version, &format!("/{path}"), &[("range", &range)]);
                    assert_eq!(answer.status, 206);
                    assert!(answer.body == all[first..=last], "{reader} {version}: {range} of {length}");
                }
            }
        }
        let ranges = format!("bytes=1-10,{BLOCK}-{},-1", 3 * BLOCK);
        for version in &ALL[1..] {
            forget(&File::open(place.root("f5000001")).unwrap());
            let answer = versions::get(&server, version, "/f5000001", &[("range", &ranges)]);
            let has = |part: &[u8]| answer.body.windows(part.len()).any(|window| window == part);
            assert!(
                answer.status == 206 && has(&pattern(5_000_001)[BLOCK..=3 * BLOCK]),
                "{reader} {version}"
            );
        }
        assert!(server.metric("linerate_files_cold_reads_total") > 50.0, "{reader}");
        if reader == "uring" {
            until("it has read by the ring", || by_ring(&server) > 50.0);
        } else {
            assert_eq!(by_ring(&server), 0.0);
        }
    }
}

#[test]
fn clients_of_tls_that_take_nothing_keep_no_blocks_from_others() {
    if !has_ring("clients_of_tls_that_take_nothing_keep_no_blocks_from_others") {
        return;
    }
    let place = Place::new();
    let file = cold(&place, "large", LARGE);
    // Eight blocks.
    let few =
        ["--disk", "uring", "--workers", "1", "--disk-memory", "1", "--write-timeout", "600", "--no-ktls"];
    let server = secure(&place, &few);
    let before = server.anonymous();
    let address = server.secure.expect("a TLS listener");
    let crowd = gather(address, &place.beside("cert.pem"), "/large", 100, Duration::from_secs(60));
    assert_eq!(crowd.len(), 100);
    for number in 0..8 {
        for version in &ALL[1..] {
            let other = format!("other{number}{version}");
            cold(&place, &other, 500_001);
            let answer = versions::get(&server, version, &format!("/{other}"), &[]);
            assert!(answer.body == pattern(500_001), "{version} {number}");
        }
    }
    // A block or more for each would be 12 MiB, in addition to the buffers that each client has anyway.
    let taken = server.anonymous().saturating_sub(before);
    assert!(taken < 24 << 20, "{taken} bytes");
    drop(crowd);
    forget(&file);
    assert!(versions::get(&server, "--http2", "/large", &[]).body == pattern(LARGE));
}

#[test]
fn clients_of_tls_that_leave_while_the_disk_is_read_take_nothing_with_them() {
    if !has_ring("clients_of_tls_that_leave_while_the_disk_is_read_take_nothing_with_them") {
        return;
    }
    let place = Place::new();
    let files: Vec<File> = (0..4).map(|number| cold(&place, &format!("f{number}"), 8 << 20)).collect();
    let few = ["--disk", "uring", "--workers", "1", "--disk-memory", "1", "--no-ktls"];
    let server = secure(&place, &few);
    let port = server.secure.expect("a TLS listener").port();
    for round in 0..5 {
        for version in ["--http1.1", "--http2"] {
            let urls = (0..files.len()).map(|number| format!("https://127.0.0.1:{port}/f{number}"));
            let mut leaving = Command::new("curl")
                .args(["--silent", "--insecure", "--parallel", "--limit-rate", "1M", version])
                .args(urls.flat_map(|url| ["--output".to_owned(), "/dev/null".to_owned(), url]))
                .stderr(Stdio::null())
                .spawn()
                .expect("curl runs");
            std::thread::sleep(Duration::from_millis(20 * (round + 1)));
            leaving.kill().and_then(|()| leaving.wait()).expect("it ends");
            files.iter().for_each(forget);
            assert!(versions::get(&server, version, "/f0", &[]).body == pattern(8 << 20), "{version}");
        }
    }
    server.signal(Signal::TERM);
    assert!(server.wait(Duration::from_secs(60)).success());
}

#[test]
fn a_cold_file_that_changes_while_it_is_encrypted_is_cut() {
    if !has_ring("a_cold_file_that_changes_while_it_is_encrypted_is_cut") {
        return;
    }
    for version in ["--http1.1", "--http2"] {
        let place = Place::new();
        let path = place.root("f");
        cold(&place, "f", LARGE);
        let server = secure(&place, &["--disk", "uring", "--no-ktls"]);
        let port = server.secure.expect("a TLS listener").port();
        let mut client = Command::new("curl")
            .args(["--silent", "--insecure", "--max-time", "120", "--limit-rate", "8M", version])
            .args(["--output", "/dev/null", &format!("https://127.0.0.1:{port}/f")])
            .spawn()
            .expect("curl runs");
        until("some of it", || server.metric("linerate_files_sent_bytes_total{listener=\"tls\"}") > 1e6);
        File::options().write(true).open(&path).unwrap().set_len(LARGE as u64 / 2).unwrap();
        assert!(!client.wait().unwrap().success(), "{version}");
        assert_eq!(server.metric("linerate_files_answers_cut_total{listener=\"tls\"}"), 1.0);
        until("it has read by the ring", || by_ring(&server) > 0.0);
    }
}

#[test]
fn what_rules_say_holds_for_cold_files() {
    let place = Place::new();
    let text: String = (0..4000).map(|line| format!("line {line} of a text\n")).collect();
    let large = pattern(3 * BLOCK + 7);
    let mut files = Vec::new();
    let mut add = |path: std::path::PathBuf, bytes: &[u8]| {
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, bytes).expect("a file");
        settle(&path);
        files.push(File::open(path).expect("the file"));
    };
    add(place.root("private/f"), &large);
    add(place.root("coded/a.js"), text.as_bytes());
    add(place.root("d/f"), &large);
    add(place.root("page.html"), &large);
    add(place.beside("site-a/f"), &pattern(BLOCK + 1));
    let flags = rules(
        &place,
        &format!(
            "[realm.staff]\nusers = {{ a = '{}' }}\n[[rule]]\npath = '/private/*'\nauth = 'staff'\n\
             [[rule]]\npath = '/coded/*'\ncompress = true\n\
             [[rule]]\npath = '/d*'\narchive = ['zip', 'tar.zst']\nlisting = true\n\
             [[rule]]\npath = '/page.html'\nearly-hints = ['</a.css>; rel=preload; as=style']\n\
             [[site]]\nhosts = ['a.example']\nroot = 'site-a'\n",
            hash("one")
        ),
    );
    let server = secure(&place, &[&flags.each_ref().map(String::as_str)[..], &["--no-ktls"]].concat());
    for version in ALL {
        let get = |target: &str, fields: &[(&str, &str)]| {
            files.iter().for_each(forget);
            versions::get(&server, version, target, fields)
        };
        assert_eq!(get("/private/f", &[]).status, 401, "{version}");
        let known = get("/private/f", &[("authorization", "Basic YTpvbmU=")]);
        assert!(known.status == 200 && known.body == large, "{version}");
        let coded = get("/coded/a.js", &[("accept-encoding", "gzip")]);
        assert_eq!(coded.field("content-encoding").as_deref(), Some("gzip"), "{version}");
        assert!(through("gzip", &coded.body) == text.as_bytes(), "{version}");
        for format in ["zip", "tar.zst"] {
            let archive = unpack(format, &get(&format!("/d/?archive={format}"), &[]).body);
            assert!(archive.values().any(|bytes| bytes.as_ref() == Some(&large)), "{version} {format}");
        }
        // After the hints, if there are any: curl shows both as they arrive, and aioquic takes them for one answer.
        let navigates = [("sec-fetch-mode", "navigate")];
        let page = get("/page.html", if version == "h3" { &[] } else { &navigates });
        assert!(matches!(page.status, 103 | 200) && page.body.ends_with(&large), "{version}");
        assert!(get("/f", &[("host", "a.example")]).body == pattern(BLOCK + 1), "{version}");
    }
    assert!(server.metric("linerate_files_cold_reads_total") > 0.0);
}

#[test]
fn codings_that_come_to_a_directory_that_had_none_are_seen() {
    let place = Place::new();
    for number in 0..40 {
        place.file(&format!("d/f{number}.js"), "plain");
    }
    // An hour: only the kernel's notification can tell.
    let server = place.serve(&["--revalidate", "3600000", "--workers", "1"]);
    let mut client = server.connect();
    let mut get = |number: usize| {
        client.get(&format!("/d/f{number}.js"), "Accept-Encoding: gzip\r\n").text().to_owned()
    };
    // Enough requests for the directory's names to be read, and some more afterwards.
    for number in 0..20 {
        assert_eq!(get(number), "plain");
        std::thread::sleep(Duration::from_millis(5));
    }
    // For a file that was requested, and for one that wasn't.
    for number in [3, 30] {
        place.file(&format!("d/f{number}.js.gz"), "coded");
        until("the coding", || get(number) == "coded");
    }
    assert_eq!(get(31), "plain");
    // Another directory gets that name.
    fs::create_dir(place.root("e")).unwrap();
    for number in 0..40 {
        fs::write(place.root(&format!("e/f{number}.js")), "other").unwrap();
        fs::write(place.root(&format!("e/f{number}.js.gz")), "coded other").unwrap();
    }
    fs::rename(place.root("d"), place.root("gone")).unwrap();
    fs::rename(place.root("e"), place.root("d")).unwrap();
    for number in [3, 35] {
        until("that of the other", || get(number) == "coded other");
    }
}

/// A command that starts with this runs the rest without io_uring: seccomp(2) answers EPERM, as containers' filters do.
/// It needs no privilege.
const REFUSING: &str = r#"
import ctypes, os, struct, sys
SETUP, ALLOW, REFUSE = 425, 0x7fff0000, 0x00050000 | 1
program = b"".join(struct.pack("HBBI", *line) for line in [
    (0x20, 0, 0, 0),          # the call's number
    (0x15, 0, 1, SETUP),      # io_uring_setup, on all architectures
    (0x06, 0, 0, REFUSE),
    (0x06, 0, 0, ALLOW),
])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0                                              # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(Program(4, program)), 0, 0) == 0              # PR_SET_SECCOMP
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn without_io_uring_threads_read_and_that_is_said() {
    let refusing = || {
        let mut command = Command::new("python3");
        command.args(["-c", REFUSING, BINARY]);
        command
    };
    if !refusing().arg("--version").output().is_ok_and(|output| output.status.success()) {
        bench::skipped("without_io_uring_threads_read_and_that_is_said", "it takes python3 and seccomp");
        return;
    }
    let place = Place::new();
    cold(&place, "f", 3_000_001);
    let server = place.serve_by(refusing(), &["--admin", "127.0.0.1:0"]);
    assert!(server.get("/f", "").body == pattern(3_000_001));
    assert_eq!(by_ring(&server), 0.0);
    assert!(
        server.log().contains("no io_uring: files that are not in memory are read by threads"),
        "{}",
        server.log()
    );
    assert!(server.log().contains("engine=auto disk=threads"), "{}", server.log());
    assert_eq!(server.metric("linerate_files_io_info{engine=\"auto\",disk=\"threads\"}"), 1.0);
    let mut command = refusing();
    let refused =
        command.args(["serve", "--listen", "127.0.0.1:0", "--disk", "uring", "--root"]).arg(place.root(""));
    let refused = refused.output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.lines().count() == 1 && said.contains("io_uring"), "{said}");
}
