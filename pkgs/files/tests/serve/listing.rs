//! Directories without an index.

use std::fs::{self, File};
use std::time::Instant;

use crate::place::Place;

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
    assert_eq!(client.get("/d/?sort=colour", "").status, 400);
    assert_eq!(client.ask("HEAD", "/d/", "").status, 200);
    assert_eq!(client.get("/d", "").status, 301);
}

#[test]
fn a_million_entries_are_listed_in_order_and_in_little_memory() {
    const ENTRIES: usize = 1_000_000;
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    // Links to one file, for a million of those take all the inodes of a small disk: an inode has room for 65,000.
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
    let server = place.serve(&["--listing"]);
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
    assert!(taken < 16 << 20, "{taken}");
}

#[test]
fn a_listing_nobody_takes_ends_with_its_connection() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    for number in 0..20_000 {
        File::create(place.root(&format!("d/{number:0200}"))).unwrap();
    }
    let server = place.serve(&["--listing"]);
    // More than may be written at once: each that leaves makes room.
    for _ in 0..12 {
        let mut client = server.connect();
        client.send("GET /d/ HTTP/1.1\r\nHost: h\r\n\r\n");
        crate::place::until("room for a listing", || {
            let head = client.receive_head().expect("a head");
            if head.status == 503 {
                client = server.connect();
                client.send("GET /d/ HTTP/1.1\r\nHost: h\r\n\r\n");
            }
            head.status == 200
        });
    }
}
