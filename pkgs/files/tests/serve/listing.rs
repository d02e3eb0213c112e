//! Directories without an index.

use std::fs::{self, File};

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
fn a_hundred_thousand_entries_are_listed_in_order_and_in_little_memory() {
    const ENTRIES: usize = 100_000;
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    for number in 0..ENTRIES {
        File::create(place.root(&format!("d/entry-with-a-name-of-some-length-{number:06}"))).unwrap();
    }
    let server = place.serve(&["--listing"]);
    let before = server.resident();
    let answer = server.get("/d/?format=json&order=desc", "");
    let entries: Vec<serde_json::Value> = serde_json::from_str(answer.text()).expect("JSON");
    assert_eq!(entries.len(), ENTRIES);
    for (entry, number) in entries.iter().zip((0..ENTRIES).rev()) {
        assert!(entry["name"].as_str().unwrap().ends_with(&format!("{number:06}")));
    }
    let taken = server.resident().saturating_sub(before);
    eprintln!("{} KiB of memory for a listing of {} bytes", taken >> 10, answer.body.len());
    assert!(taken < 12 << 20, "{taken}");
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
