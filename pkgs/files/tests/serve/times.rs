//! Files whose times no date can express, that are in the future, or that say nothing.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::place::{Place, until};

#[test]
fn a_file_is_served_and_listed_whatever_its_time_of_change() {
    // A memory file system, since those on disks have no such times.
    let place = Place::in_memory();
    let times = [-1, i64::MIN, 1 << 33, 253_402_300_800, 1 << 62, i64::MAX];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_secs();
    for seconds in times {
        let path = place.file(&format!("d/{seconds}"), "text");
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::empty()).expect("a time");
    }
    let server = place.serve(&["--listing", "--workers", "1"]);
    let mut client = server.connect();
    for seconds in times {
        let target = format!("/d/{seconds}");
        let answer = client.get(&target, "");
        assert_eq!((answer.status, answer.text()), (200, "text"), "{seconds}");
        let [modified, date] = ["last-modified", "date"].map(|name| {
            let time = httpdate::parse_http_date(&answer.field(name)?).expect(name);
            Some(time.duration_since(SystemTime::UNIX_EPOCH).expect(name).as_secs())
        });
        assert_eq!(modified.is_none(), seconds < 0, "{seconds}: {answer:?}");
        if let Some(modified) = modified {
            let date = date.expect("a date");
            assert!(modified <= date && modified + 60 >= now, "{seconds}: {answer:?}");
            // Its date works in conditions.
            let since = format!("If-Modified-Since: {}\r\n", answer.field("last-modified").expect("a time"));
            assert_eq!(client.get(&target, &since).status, 304, "{seconds}");
        }
        let tag = format!("If-Range: {}\r\nRange: bytes=0-1\r\n", answer.field("etag").expect("a tag"));
        assert_eq!(client.get(&target, &tag).status, 206, "{seconds}");
        assert_eq!(client.get(&target, "Range: bytes=0-0,2-2\r\n").status, 206, "{seconds}");
    }
    for query in ["", "?sort=time", "?sort=time&format=json"] {
        assert_eq!(client.get(&format!("/d/{query}"), "").status, 200, "{query}");
    }
    let listed = client.get("/d/?sort=time&format=json", "");
    let listed: serde_json::Value = serde_json::from_slice(&listed.body).expect("JSON");
    let mut sorted = times;
    sorted.sort_unstable();
    let found: Vec<i64> =
        listed.as_array().expect("a list").iter().flat_map(|e| e["modified"].as_i64()).collect();
    assert_eq!(found, sorted);
}

#[test]
fn a_file_whose_time_says_nothing_is_told_from_the_one_before_it() {
    let place = Place::new();
    // As in the Nix store, with as many bytes.
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).expect("a file");
        let file = File::options().write(true).open(&path).expect("the file");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).expect("a time");
    };
    write(place.root("a"), "old");
    write(place.beside("new"), "new");
    let server = place.serve(&["--workers", "1"]);
    let mut client = server.connect();
    let first = client.get("/a", "");
    assert_eq!((first.text(), first.field("last-modified")), ("old", None));
    let none_match = format!("If-None-Match: {}\r\n", first.field("etag").expect("a tag"));
    assert_eq!(client.get("/a", &none_match).status, 304);
    fs::rename(place.beside("new"), place.root("a")).expect("renamed");
    until("the new file", || client.get("/a", "").text() == "new");
    let time = "Thu, 01 Jan 1970 00:00:01 GMT";
    for fields in [
        none_match,
        format!("If-Modified-Since: {time}\r\n"),
        format!("If-Modified-Since: {}\r\n", first.field("date").expect("a date")),
        "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n".to_owned(),
        format!("Range: bytes=0-0\r\nIf-Range: {time}\r\n"),
    ] {
        let answer = client.get("/a", &fields);
        assert_eq!((answer.status, answer.text()), (200, "new"), "{fields}");
        assert_eq!(answer.field("last-modified"), None, "{fields}");
    }
}
