//! Directories without an index.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::place::{BINARY, Place, Server, until};

#[test]
fn a_listing_is_a_page_or_json_in_the_order_asked_for() {
    let place = Place::new();
    place.file("d/b", "12");
    place.file("d/a<b>", "1");
    place.file("d/sub/x", "");
    let server = place.serve(&["--listing"]);
    let mut client = server.connect();
    let page = client.get("/d/", "");
    assert_eq!(page.field("content-type").as_deref(), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("<a href=\"a%3Cb%3E\">a&lt;b&gt;</a>"), "{}", page.text());
    for (target, fields) in [("/d/?format=json", ""), ("/d/", "Accept: application/json\r\n")] {
        let answer = client.get(target, fields);
        assert_eq!(answer.field("content-type").as_deref(), Some("application/json"), "{target}");
        let entries: serde_json::Value = serde_json::from_str(answer.text()).expect("JSON");
        let names: Vec<&str> =
            entries.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a<b>", "b", "sub"], "{target}");
        assert_eq!((&entries[1]["size"], &entries[2]["type"]), (&2.into(), &"directory".into()));
    }
    let sorted = client.get("/d/?format=json&sort=size&order=desc", "");
    assert!(sorted.text().starts_with("[\n{\"name\":\"b\""), "{}", sorted.text());
    let reversed = client.get("/d/?format=json&sort=-size", "");
    assert_eq!(reversed.body, sorted.body);
    for query in ["sort=colour", "format=csv", "page=2"] {
        let refused = client.get(&format!("/d/?{query}"), "");
        assert_eq!(refused.status, 400, "{query}");
        for known in ["sort=name", "size", "time", "order=asc", "html", "json"] {
            assert!(refused.text().contains(known), "{query}: {}", refused.text());
        }
    }
    // A file has no parameters, and accepts any.
    assert_eq!(client.get("/d/b?page=2", "").text(), "12");
    assert_eq!(client.ask("HEAD", "/d/", "").status, 200);
    assert_eq!(client.get("/d", "").status, 301);
}

#[test]
fn a_million_entries_are_listed_in_order_and_in_little_memory() {
    const ENTRIES: usize = 1_000_000;
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    // Links to one file, since a million files would use up all the inodes of a small disk: an inode has room for
    // 65,000.
    let mut of = place.root("d/0000000");
    for number in 0..ENTRIES {
        let path = place.root(&format!("d/{number:07}"));
        if number % 60_000 == 0 {
            fs::write(&path, "text").unwrap();
            of = path;
        } else {
            fs::hard_link(&of, &path).unwrap();
        }
    }
    // Memory that the allocator keeps for later is not to be counted.
    let mut command = Command::new(BINARY);
    command.env("MIMALLOC_PURGE_DELAY", "0");
    let server = place.serve_by(command, &["--listing"]);
    // The code for listings is part of the program's file, and counts as its memory once it has run: so it runs before
    // the million.
    fs::create_dir(place.root("few")).unwrap();
    place.file("few/1", "text");
    assert_eq!(server.get("/few/?format=json&order=desc", "").status, 200);
    let before = server.peak();
    let start = Instant::now();
    let mut client = server.connect();
    client.send("GET /d/?format=json&order=desc HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.receive_head().expect("a head");
    let answer = client.receive_body(head).expect("a body");
    let taken = server.peak() - before;
    let mut lines = answer.text().lines();
    assert_eq!(lines.next(), Some("["));
    for number in (0..ENTRIES).rev() {
        let line = lines.next().expect("an entry");
        let comma = if number == 0 { "}" } else { "}," };
        let found = line.starts_with(&format!("{{\"name\":\"{number:07}\",\"type\":\"file\",\"size\":4,"));
        assert!(found && line.ends_with(comma), "{number}: {line}");
    }
    assert_eq!((lines.next(), lines.next()), (Some("]"), None));
    eprintln!(
        "{} KiB of memory and {:?} for a listing of {} bytes",
        taken >> 10,
        start.elapsed(),
        answer.body.len()
    );
    assert!(taken < 10 << 20, "{taken}");
}

#[test]
fn a_listing_nobody_takes_ends_with_its_connection() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    for number in 0..20_000 {
        File::create(place.root(&format!("d/{number:0200}"))).unwrap();
    }
    let server = place.serve(&["--listing"]);
    // There are more listings than may be written at once: each client that leaves makes room.
    for _ in 0..12 {
        let mut client = server.connect();
        client.send("GET /d/ HTTP/1.1\r\nHost: h\r\n\r\n");
        until("room for a listing", || {
            let head = client.receive_head().expect("a head");
            if head.status == 503 {
                client = server.connect();
                client.send("GET /d/ HTTP/1.1\r\nHost: h\r\n\r\n");
            }
            head.status == 200
        });
    }
}

/// A directory with more names than are kept without allocating, and than buffers on the way hold.
fn large(place: &Place) {
    fs::create_dir(place.root("large")).unwrap();
    for number in 0..20_000 {
        File::create(place.root(&format!("large/{number:0200}"))).unwrap();
    }
    place.file("small/a", "a");
}

/// A client that requests a listing and reads almost none of it.
fn slow(server: &Server) -> TcpStream {
    let stream = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
    connect(&stream, &server.address()).unwrap();
    let mut stream = TcpStream::from(stream);
    stream.write_all(b"GET /large/ HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    // It has started.
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

#[test]
fn listings_that_nobody_takes_keep_no_other_waiting_and_are_cut() {
    let place = Place::new();
    large(&place);
    let server = place.serve(&["--listing", "--admin", "127.0.0.1:0", "--write-timeout", "5"]);
    let timed_out = "linerate_files_listener_timed_out_total";
    let before = server.peak();
    let crowd: Vec<TcpStream> = (0..64).map(|_| slow(&server)).collect();
    let mut client = server.connect();
    // Among so many others it gets its turn, however late.
    client.stream.set_read_timeout(Some(std::time::Duration::from_secs(120))).expect("a timeout");
    assert!(client.get("/small/?format=json", "").text().contains("\"a\""));
    let all = client.get("/large/?format=json", "");
    let entries: Vec<serde_json::Value> = serde_json::from_str(all.text()).expect("JSON");
    assert_eq!(entries.len(), 20_000);
    let taken = server.peak() - before;
    // The names of three such directories, kept as often as there are threads. All at once would be 300 MiB.
    assert!(taken < 96 << 20, "{} KiB for {} listings", taken >> 10, crowd.len());
    until("the end of all of them", || server.metric(timed_out) >= 64.0);
    for mut stream in crowd {
        // A reset: what arrived isn't complete.
        assert!(std::io::copy(&mut stream, &mut std::io::sink()).is_err());
    }
}

#[test]
fn a_directory_that_changes_while_it_is_listed_ends_well() {
    let place = Place::new();
    large(&place);
    let server = place.serve(&["--listing"]);
    let mut stream = slow(&server);
    for number in (0..20_000).step_by(2) {
        fs::remove_file(place.root(&format!("large/{number:0200}"))).unwrap();
    }
    fs::rename(place.root("large"), place.root("renamed")).unwrap();
    let mut rest = Vec::new();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_to_end(&mut rest).expect("all of it");
    let text = String::from_utf8_lossy(&rest);
    assert!(text.contains("</table>\n\r\n0\r\n\r\nHTTP/1.1 200 "), "the next answer follows the last chunk");
    assert!(text.contains(&format!("{:0200}", 19_999)), "what was there all the time is listed");
}

#[test]
fn names_of_any_bytes_are_listed_and_do_nothing() {
    let place = Place::new();
    let names: [&[u8]; 6] =
        [b"new\nline", b"\x1b[31mred", b"\xff\xfe", b"\"><script>alert(1)</script>", b"a b#?%41&", b"'\\`"];
    for name in names {
        if !name.contains(&b'/') {
            File::create(place.root("").join(std::ffi::OsStr::from_bytes(name))).unwrap();
        }
    }
    let server = place.serve(&["--listing"]);
    let page = server.get("/", "");
    assert!(!page.text().contains("<script>") && !page.text().contains("\x1b"), "{}", page.text());
    // Each link leads to its file, if a path can name it.
    let links: Vec<&str> =
        page.text().split("<a href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for link in links.iter().filter(|link| !link.starts_with('?')) {
        let control = link.contains("%0A") || link.contains("%1B");
        assert_eq!(server.get(&format!("/{link}"), "").status, if control { 400 } else { 200 }, "{link}");
    }
    let json = server.get("/?format=json", "");
    let entries: Vec<serde_json::Value> = serde_json::from_str(json.text()).expect("JSON");
    assert!(entries.iter().any(|entry| entry["name"] == "new\nline"), "{entries:?}");
    assert!(json.text().bytes().all(|byte| byte == b'\n' || byte >= b' '), "{}", json.text());
}
