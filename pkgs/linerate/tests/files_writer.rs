//! Tests the files writer with correct clients, other users and accidents.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use testkit::{Server, until, wait_for};

/// A writer for one test.
struct Writer {
    server: Server,
    place: tempfile::TempDir,
}

/// An answer: status, head and body.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn offset(&self) -> Option<u64> {
        self.field("upload-offset")?.parse().ok()
    }
}

fn begin(place: &Path, user: u32, flags: &[&str]) -> Server {
    let log = fs::File::options().create(true).read(true).append(true).open(place.join("log"));
    let server = Server::program(env!("CARGO_BIN_EXE_linerate"))
        .args(["files-writer", "--user", &user.to_string(), "--root"])
        .arg(place.join("root"))
        .args(["--listen", &format!("unix:{}", place.join("socket").display())])
        .args(flags)
        .log(log.expect("a file"))
        .start();
    assert!(server.line("writer").is_some(), "{} {}", server.said(), server.log());
    server
}

impl Writer {
    fn start(flags: &[&str]) -> Self {
        Self::for_user(rustix::process::geteuid().as_raw(), flags)
    }

    fn for_user(user: u32, flags: &[&str]) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        fs::create_dir(place.path().join("root")).expect("a directory");
        Self { server: begin(place.path(), user, flags), place }
    }

    fn root(&self, path: &str) -> PathBuf {
        self.place.path().join("root").join(path)
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.place.path().join("socket")).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        stream
    }

    fn ask(&self, method: &str, target: &str, fields: &str, body: &[u8]) -> Answer {
        self.ask_for("a test", method, target, fields, body)
    }

    fn ask_for(&self, by: &str, method: &str, target: &str, fields: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: localhost\r\ntus-resumable: 1.0.0\r\nconnection: close\r\n\
             linerate-by: {by}\r\ncontent-length: {length}\r\n{fields}\r\n"
        );
        // The writer may refuse before everything has arrived.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Starts an upload.
    fn post(&self, path: &str, length: usize, more: &str) -> Answer {
        let path = BASE64_STANDARD.encode(path);
        self.ask(
            "POST",
            "/uploads",
            &format!("upload-length: {length}\r\nupload-metadata: path {path}{more}\r\n"),
            b"",
        )
    }

    fn patch(&self, place: &str, offset: usize, bytes: &[u8], more: &str) -> Answer {
        let fields =
            format!("content-type: application/offset+octet-stream\r\nupload-offset: {offset}\r\n{more}");
        self.ask("PATCH", place, &fields, bytes)
    }

    /// Uploads a whole file.
    fn put(&self, path: &str, bytes: &[u8], more: &str) -> Answer {
        let begun = self.post(path, bytes.len(), more);
        match begun.field("location") {
            Some(place) if !bytes.is_empty() => self.patch(place, 0, bytes, ""),
            _ => begun,
        }
    }

    fn change(&self, action: &str, body: &str) -> u16 {
        self.ask("POST", action, "content-type: application/json\r\n", body.as_bytes()).status
    }

    /// Kills the process without warning, as a power cut does, and starts it again.
    fn kill_and_start(&mut self, flags: &[&str]) {
        self.server.kill();
        self.server = begin(self.place.path(), rustix::process::geteuid().as_raw(), flags);
    }

    fn log(&self) -> String {
        self.server.log()
    }

    /// How many files of this kind are in the hidden directory.
    fn staged(&self, kind: &str) -> usize {
        let all = fs::read_dir(self.root(".linerate-uploads")).expect("a directory");
        all.filter(|entry| entry.as_ref().expect("an entry").path().extension().is_some_and(|it| it == kind))
            .count()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_upload_goes_on_after_a_kill_at_the_offset_that_is_told() {
    let mut writer = Writer::start(&[]);
    let bytes = pattern(9 << 20);
    let metadata = format!(",sha256 {}", BASE64_STANDARD.encode(sum(&bytes)));
    let begun = writer.post("/big.bin", bytes.len(), &metadata);
    assert_eq!(begun.status, 201, "{begun:?}");
    let place = begun.field("location").expect("a place").to_owned();
    assert_eq!(writer.patch(&place, 0, &bytes[..1000], "").offset(), Some(1000));
    // Half of a piece is sent, and the process ends meanwhile.
    let mut stream = writer.connect();
    let head = format!(
        "PATCH {place} HTTP/1.1\r\nhost: localhost\r\ntus-resumable: 1.0.0\r\nupload-offset: 1000\r\n\
         content-type: application/offset+octet-stream\r\ncontent-length: {}\r\n\r\n",
        bytes.len() - 1000
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&bytes[1000..6 << 20]).expect("sent");
    let record = writer
        .root(".linerate-uploads")
        .join(place.rsplit('/').next().expect("an id"))
        .with_extension("json");
    let begun = Instant::now();
    while !fs::read_to_string(&record).is_ok_and(|text| !text.contains("\"offset\":1000,")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing of it is committed");
        std::thread::yield_now();
    }
    writer.kill_and_start(&[]);
    assert!(!writer.root("big.bin").exists());
    let told = writer.ask("HEAD", &place, "", b"");
    let offset = told.offset().expect("an offset") as usize;
    assert!((1001..=6 << 20).contains(&offset), "{offset}");
    assert_eq!(told.field("upload-length"), Some(&*bytes.len().to_string()));
    let wrong = writer.patch(&place, offset - 1, &bytes[offset - 1..], "");
    assert_eq!((wrong.status, wrong.offset()), (409, Some(offset as u64)));
    let done = writer.patch(&place, offset, &bytes[offset..], "");
    assert_eq!((done.status, done.field("linerate-sha256")), (204, Some(&*sum(&bytes))), "{done:?}");
    assert_eq!(fs::read(writer.root("big.bin")).expect("a file"), bytes);
    // Acknowledged bytes are kept. A client that didn't receive the acknowledgement can ask for the offset.
    writer.kill_and_start(&[]);
    assert_eq!(fs::read(writer.root("big.bin")).expect("a file"), bytes);
    assert_eq!(writer.ask("HEAD", &place, "", b"").offset(), Some(bytes.len() as u64));
    assert!(writer.log().contains(&format!(
        "\"action\":\"upload\",\"target\":\"/big.bin\",\"bytes\":{},\"sha256\":\"{}\"",
        bytes.len(),
        sum(&bytes)
    )));
}

#[test]
fn a_file_is_for_everybody_to_read_and_for_nobody_to_run() {
    let writer = Writer::start(&[]);
    for bytes in [&b"#!/bin/sh\n"[..], b""] {
        let path = format!("/script-{}", bytes.len());
        let done = writer.put(&path, bytes, "");
        assert_eq!(done.field("linerate-sha256"), Some(&*sum(bytes)), "{done:?}");
        assert_eq!(fs::metadata(writer.root(&path[1..])).expect("a file").permissions().mode(), 0o100_644);
    }
    assert_eq!(writer.change("/directory", r#"{"path":"/sub"}"#), 204);
    assert_eq!(fs::metadata(writer.root("sub")).expect("a directory").permissions().mode() & 0o7777, 0o755);
    assert_eq!(
        fs::metadata(writer.root(".linerate-uploads")).expect("a directory").permissions().mode() & 0o7777,
        0o700
    );
    assert_eq!(writer.staged("data"), 0);
}

#[test]
fn of_two_uploads_to_one_name_one_is_there_and_the_other_is_told() {
    let writer = Writer::start(&[]);
    let places: Vec<String> =
        (0..2).map(|_| writer.post("/one", 3, "").field("location").expect("a place").to_owned()).collect();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = [b"aaa", b"bbb"]
            .into_iter()
            .zip(&places)
            .map(|(bytes, place)| scope.spawn(|| writer.patch(place, 0, bytes, "").status))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("ended")).collect()
    });
    let winner = statuses.iter().position(|status| *status == 204).expect("one of them");
    assert_eq!(statuses[1 - winner], 409);
    let expected = [b"aaa", b"bbb"][winner];
    assert_eq!(fs::read(writer.root("one")).expect("a file"), expected);
    // With `replace`, an upload replaces an existing file.
    assert_eq!(writer.post("/one", 3, "").status, 409);
    assert_eq!(writer.put("/one", b"new", ",replace").status, 204);
    assert_eq!(fs::read(writer.root("one")).expect("a file"), b"new");
    // The other upload can be cancelled, and then it is gone.
    assert_eq!(writer.ask("DELETE", &places[1 - winner], "", b"").status, 204);
    assert_eq!(writer.ask("HEAD", &places[1 - winner], "", b"").status, 404);
    assert_eq!(writer.staged("data"), 0);
}

#[test]
fn there_is_no_more_than_there_may_be() {
    let writer =
        Writer::start(&["--max-file", "100", "--max-bytes", "150", "--max-files", "3", "--max-uploads", "2"]);
    assert_eq!(writer.post("/a", 101, "").status, 413);
    let first = writer.post("/a", 100, "");
    assert_eq!(first.status, 201);
    assert_eq!(writer.post("/b", 51, "").status, 507, "what is under way is promised");
    assert_eq!(writer.post("/b", 50, "").status, 201);
    assert_eq!(writer.post("/c", 0, "").status, 503, "two are under way");
    let place = first.field("location").expect("a place");
    assert_eq!(writer.patch(place, 0, &[0; 101], "").status, 413);
    assert_eq!(writer.patch(place, 0, &[0; 100], "").status, 204);
    assert_eq!(writer.put("/c", b"", "").status, 201);
    assert_eq!(writer.post("/d", 0, "").status, 507, "three files, one of them on its way");
    assert_eq!(writer.change("/delete", r#"{"path":"/a"}"#), 204);
    assert_eq!(writer.post("/d", 100, "").status, 201, "there is room again");
}

#[test]
fn who_does_not_go_on_is_not_waited_for() {
    let writer = Writer::start(&["--expire", "1"]);
    // On a slow machine, an upload may expire before it is used, so try until one doesn't.
    let place = wait_for("when it ends", || {
        let begun = writer.post("/a", 10, "");
        assert_eq!(begun.status, 201);
        let place = begun.field("location").expect("a place").to_owned();
        writer.ask("HEAD", &place, "", b"").field("upload-expires").is_some().then_some(place)
    });
    until("it is gone", || writer.ask("HEAD", &place, "", b"").status == 404);
    assert_eq!(writer.post("/b", 10, "").status, 201);
    assert_eq!(writer.staged("data"), 1, "its bytes are gone");
}

#[test]
fn a_piece_that_is_not_what_its_sum_says_is_as_if_it_had_not_come() {
    let writer = Writer::start(&[]);
    let begun = writer.post("/a", 6, "");
    let place = begun.field("location").expect("a place");
    let of = |bytes: &[u8]| {
        format!("upload-checksum: sha256 {}\r\n", BASE64_STANDARD.encode(Sha256::digest(bytes)))
    };
    assert_eq!(writer.patch(place, 0, b"abc", &of(b"abd")).status, 460);
    assert_eq!(writer.ask("HEAD", place, "", b"").offset(), Some(0));
    assert_eq!(writer.patch(place, 0, b"abc", &of(b"abc")).offset(), Some(3));
    assert_eq!(writer.patch(place, 3, b"def", "upload-checksum: md5 AAAA\r\n").status, 400);
    assert_eq!(writer.patch(place, 3, b"xyz", &of(b"def")).status, 460);
    assert_eq!(writer.patch(place, 3, b"def", &of(b"def")).status, 204);
    assert_eq!(fs::read(writer.root("a")).expect("a file"), b"abcdef");
    let wrong = format!(",sha256 {}", BASE64_STANDARD.encode(sum(b"other")));
    assert_eq!(writer.put("/b", b"bytes", &wrong).status, 422);
    assert!(!writer.root("b").exists() && writer.staged("data") == 0);
}

#[test]
fn hostile_names_are_refused_and_odd_ones_are_names() {
    let writer = Writer::start(&[]);
    fs::write(writer.place.path().join("secret"), "secret").expect("a file");
    for name in [
        "",
        "/",
        "a",
        "/..",
        "/../secret",
        "/a/../../secret",
        "/%2e%2e/secret",
        "/.hidden",
        "/.linerate-uploads/x",
        "/a%00b",
        "/a%0Ab",
        "/%FF",
        "/%E2%80%AEgpj.exe",
        &format!("/{}", "a".repeat(256)),
    ] {
        assert_eq!(writer.post(name, 1, "").status, 422, "{name}");
        for action in ["/directory", "/delete"] {
            let status = writer.change(action, &format!("{{\"path\":\"{name}\"}}"));
            assert!(status == 422 || (action == "/delete" && status == 404), "{action} {name}: {status}");
        }
    }
    assert_eq!(writer.post("/none/a", 1, "").status, 404, "its directory is not there");
    let long = "l".repeat(255);
    for (name, file) in
        [("/%3Cscript%3E", "<script>"), ("/%D7%A9%D7%9C", "של"), (&*format!("/{long}"), &*long)]
    {
        assert_eq!(writer.put(name, b"x", "").status, 204, "{name}");
        assert!(writer.root(file).is_file(), "{name}");
    }
    for body in [
        "",
        "{",
        "{\"path\":1}",
        r#"{"path":"/a","command":"id"}"#,
        &format!("{{\"path\":\"{}\"}}", "a".repeat(20_000)),
    ] {
        assert_eq!(writer.change("/delete", body), 400, "{body:.40}");
    }
    assert_eq!(fs::read(writer.place.path().join("secret")).expect("a file"), b"secret");
}

#[test]
fn a_link_that_is_swapped_in_leads_nowhere() {
    let writer = Writer::start(&[]);
    let outside = writer.place.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    assert_eq!(writer.change("/directory", r#"{"path":"/sub"}"#), 204);
    let begun = writer.post("/sub/file", 3, "");
    let place = begun.field("location").expect("a place");
    fs::remove_dir(writer.root("sub")).expect("removed");
    symlink(&outside, writer.root("sub")).expect("a link");
    assert_eq!(writer.patch(place, 0, b"abc", "").status, 409);
    assert_eq!(writer.post("/sub/other", 3, "").status, 409);
    assert_eq!(writer.change("/directory", r#"{"path":"/sub/dir"}"#), 409);
    assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 0);
    // Deleting or replacing affects the link itself, never its target.
    fs::write(outside.join("kept"), "kept").expect("a file");
    symlink(outside.join("kept"), writer.root("link")).expect("a link");
    assert_eq!(writer.put("/link", b"new", ",replace").status, 204);
    assert!(fs::symlink_metadata(writer.root("link")).expect("a file").is_file());
    assert_eq!(writer.change("/delete", r#"{"path":"/sub"}"#), 204);
    assert_eq!(fs::read(outside.join("kept")).expect("a file"), b"kept");
    // Once the directory is there again, the last piece is accepted.
    fs::create_dir(writer.root("sub")).expect("a directory");
    assert_eq!(writer.patch(place, 0, b"abc", "").status, 204);
    assert_eq!(fs::read(writer.root("sub/file")).expect("a file"), b"abc");
}

#[test]
fn what_is_there_is_renamed_and_deleted_and_nothing_is_lost_over_it() {
    let writer = Writer::start(&[]);
    for path in ["/a", "/b"] {
        assert_eq!(writer.put(path, path.as_bytes(), "").status, 204);
    }
    assert_eq!(writer.change("/directory", r#"{"path":"/sub"}"#), 204);
    for (action, body, status) in [
        ("/directory", r#"{"path":"/sub"}"#, 409),
        ("/rename", r#"{"from":"/a","to":"/b"}"#, 409),
        ("/rename", r#"{"from":"/none","to":"/c"}"#, 404),
        ("/rename", r#"{"from":"/a"}"#, 422),
        ("/rename", r#"{"from":"/a","to":"/sub","replace":true}"#, 409),
        ("/rename", r#"{"from":"/sub","to":"/sub/in-itself"}"#, 409),
        ("/rename", r#"{"from":"/a","to":"/sub/a%20b"}"#, 204),
        ("/delete", r#"{"path":"/sub"}"#, 409),
        ("/rename", r#"{"from":"/sub/a%20b","to":"/b","replace":true}"#, 204),
        ("/delete", r#"{"path":"/sub/"}"#, 204),
        ("/delete", r#"{"path":"/none"}"#, 404),
    ] {
        assert_eq!(writer.change(action, body), status, "{action} {body}");
    }
    assert_eq!(fs::read(writer.root("b")).expect("a file"), b"/a");
    let log = writer.log();
    for line in [
        r#""by":"a test","action":"rename","target":"/sub/a%20b","to":"/b","error":null"#,
        r#""action":"delete","target":"/sub","error":"the directory is not empty""#,
    ] {
        assert!(log.contains(line), "{line} in {log}");
    }
}

#[test]
fn strangers_write_nothing_and_are_logged() {
    let writer = Writer::for_user(rustix::process::geteuid().as_raw().wrapping_add(4711), &[]);
    for answer in [
        writer.post("/a", 0, ""),
        writer.ask("GET", "/uploads", "", b""),
        writer.ask("OPTIONS", "/uploads", "", b""),
    ] {
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    assert_eq!(writer.change("/delete", r#"{"path":"/a"}"#), 403);
    assert!(!writer.root("a").exists());
    assert_eq!(writer.log().matches("not a user who may ask").count(), 4);
}

#[test]
fn a_name_that_is_not_ascii_is_kept() {
    let writer = Writer::start(&[]);
    let fields = "upload-length: 1\r\nupload-metadata: path L2E=\r\n";
    let begun = writer.ask_for("user Jürgen from ::1", "POST", "/uploads", fields, b"");
    assert_eq!(begun.status, 201, "{begun:?}");
    let listed = writer.ask("GET", "/uploads", "", b"");
    assert!(listed.body.contains("\"by\":\"user Jürgen from ::1\""), "{listed:?}");
}

#[test]
fn the_protocol_is_told_and_kept_to() {
    let writer = Writer::start(&["--max-file", "1000"]);
    let offered = writer.ask("OPTIONS", "/uploads", "", b"");
    assert_eq!(
        (offered.status, offered.field("tus-version"), offered.field("tus-max-size")),
        (204, Some("1.0.0"), Some("1000"))
    );
    assert_eq!(offered.field("tus-extension"), Some("creation,checksum,expiration,termination"));
    let mut stream = writer.connect();
    stream.write_all(b"POST /uploads HTTP/1.1\r\nhost: a\r\nconnection: close\r\nupload-length: 1\r\ncontent-length: 0\r\n\r\n").expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    assert!(said.starts_with("HTTP/1.1 412 "), "{said}");
    assert_eq!(writer.ask("POST", "/uploads", "upload-metadata: path L2E=\r\n", b"").status, 400);
    assert_eq!(writer.ask("POST", "/uploads", "upload-length: -1\r\n", b"").status, 400);
    let begun = writer.post("/a", 10, "");
    let place = begun.field("location").expect("a place");
    assert_eq!(writer.ask("PATCH", place, "upload-offset: 0\r\n", b"a").status, 415);
    assert_eq!(
        writer.ask("PATCH", place, "content-type: application/offset+octet-stream\r\n", b"a").status,
        400
    );
    assert_eq!(writer.patch("/uploads/..%2f..%2fetc", 0, b"a", "").status, 404);
    let listed = writer.ask("GET", "/uploads", "", b"");
    assert!(
        listed.body.contains("\"path\":\"/a\"") && listed.body.contains("\"file_bytes\":1000"),
        "{listed:?}"
    );
    assert!(fs::metadata(writer.root(".linerate-uploads")).expect("a directory").nlink() > 0);
    // A root can have only one writer.
    let second = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["files-writer", "--user", "0", "--root"])
        .arg(writer.root(""))
        .args(["--listen", &format!("unix:{}", writer.place.path().join("other").display())])
        .output()
        .expect("the binary");
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another writer has this root"), "{second:?}");
}
