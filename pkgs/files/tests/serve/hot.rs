//! Files that are requested again and again, which are sent from pipes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use crate::client::Client;
use crate::place::{Place, Server, pattern, settle, until};

/// Larger than a pipe, and not a multiple of anything.
const BYTES: usize = 1_300_001;

/// Not kept in memory, and no more than fits in a pipe together with a head.
const SMALL: usize = 16_385;

/// A server with a file, requested as often as `holds` takes to hold.
fn hot(place: &Place, flags: &[&str], mut holds: impl FnMut(&Server) -> bool) -> Server {
    settle(&place.file("f", pattern(BYTES)));
    let server = place.serve(&[&["--admin", "127.0.0.1:0", "--workers", "1"], flags].concat());
    let mut client = server.connect();
    until("what is asked for", || {
        assert!(client.get("/f", "").body == pattern(BYTES));
        holds(&server)
    });
    server
}

/// Whether the whole file is kept in pipes.
fn is_kept(server: &Server) -> bool {
    server.metric("linerate_files_pipe_bytes") as usize == BYTES
}

#[test]
fn a_hot_file_is_sent_out_of_pipes_whole_and_in_ranges() {
    let place = Place::new();
    let server = hot(&place, &[], is_kept);
    let mut clients: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    // All at once: each has its own pipe.
    clients.iter_mut().for_each(|client| client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n"));
    for client in &mut clients {
        assert!(client.receive(true).expect("an answer").body == pattern(BYTES));
    }
    let part = server.get("/f", "Range: bytes=600000-1200000\r\n");
    assert!((part.status, &part.body[..]) == (206, &pattern(BYTES)[600_000..=1_200_000]));
}

#[test]
fn a_hot_file_that_changes_is_seen_by_the_next_request() {
    let place = Place::new();
    let server = hot(&place, &[], is_kept);
    let mut client = server.connect();
    client.get("/f", "");
    // The file is changed in place: it stays the same file, with as many bytes.
    let written = fs::metadata(place.root("f")).and_then(|data| data.modified()).unwrap();
    let mut changed = pattern(BYTES);
    for byte in [7, 8] {
        changed[BYTES / 2..].fill(byte);
        let mut file = File::options().write(true).open(place.root("f")).unwrap();
        file.write_all(&changed).unwrap();
        // The time of the change no longer reveals it.
        file.set_modified(written).unwrap();
        until("the change", || client.get("/f", "").body == changed);
        for _ in 0..40 {
            assert!(client.get("/f", "").body == changed, "{byte}");
        }
    }
    fs::write(place.beside("new"), "new").unwrap();
    fs::rename(place.beside("new"), place.root("f")).unwrap();
    until("the other file", || client.get("/f", "").body == b"new");
}

#[test]
fn what_is_written_by_another_name_is_never_sent_for_what_was_there() {
    let place = Place::new();
    // Not kept in memory, and not requested often enough to be kept in pipes.
    let (old, new) = (pattern(10_000), vec![7_u8; 20_000]);
    let paths = ["target", "other", "later"].map(|name| place.file(&format!("elsewhere/{name}"), &old));
    symlink("elsewhere/target", place.root("led")).unwrap();
    fs::hard_link(place.root("elsewhere/other"), place.root("shared")).unwrap();
    // An hour: the kernel reports the change for a directory that nobody watches.
    let server = place.serve(&["--revalidate", "3600000", "--workers", "1"]);
    place.file("late", &old);
    for (target, path) in ["/led", "/shared", "/late"].into_iter().zip(paths) {
        let before = server.get(target, "");
        assert!(before.body == old, "{target}");
        if target == "/late" {
            // It gets its other name once the server has it open.
            fs::remove_file(&path).unwrap();
            fs::hard_link(place.root("late"), &path).unwrap();
        }
        // It stays the same file.
        fs::write(&path, &new).unwrap();
        for _ in 0..3 {
            let mut client = server.connect();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
            // The answer may be cut.
            if let Ok(after) = client.receive(true) {
                assert!(after.body == new && after.field("etag") != before.field("etag"), "{target}");
            }
        }
    }
}

#[test]
fn slow_readers_of_a_hot_file_get_it_as_it_was() {
    let place = Place::new();
    let server = hot(&place, &[], is_kept);
    // There are more clients than pipes to lend.
    let mut slow: Vec<Client> = (0..300).map(|_| server.connect()).collect();
    slow.iter_mut().for_each(|client| client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n"));
    let fast = server.get("/f", "");
    assert!(fast.body == pattern(BYTES));
    for client in &mut slow {
        assert!(client.receive(true).expect("an answer").body == pattern(BYTES));
    }
}

#[test]
fn a_hot_file_that_fits_in_one_pipe_has_the_head_of_the_second_it_is_asked_in() {
    let place = Place::new();
    settle(&place.file("f", pattern(SMALL)));
    let server = place.serve(&["--admin", "127.0.0.1:0", "--workers", "1"]);
    let mut client = server.connect();
    until("it is kept", || {
        client.get("/f", "");
        server.metric("linerate_files_pipe_bytes") as usize == SMALL
    });
    let mut dates = vec![SystemTime::UNIX_EPOCH];
    until("some seconds have passed", || {
        for method in ["GET", "GET", "GET", "GET", "GET", "HEAD", "GET"] {
            client.send(format!("{method} /f HTTP/1.1\r\nHost: h\r\n\r\n"));
            let answer = client.receive(method == "GET").expect("an answer");
            assert!(answer.status == 200 && (method == "HEAD" || answer.body == pattern(SMALL)));
            let date = httpdate::parse_http_date(&answer.field("date").expect("a date")).expect("a date");
            assert!(dates.iter().all(|before| date >= *before), "a second that was over already");
            if !dates.contains(&date) {
                dates.push(date);
            }
        }
        dates.len() > 3
    });
    // Two answers at once have other bytes than one.
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n".repeat(50));
    for _ in 0..50 {
        assert!(client.receive(true).expect("an answer").body == pattern(SMALL));
    }
}

#[test]
fn without_memory_for_it_nothing_is_kept() {
    let place = Place::new();
    let mut asked = 0;
    let server = hot(&place, &["--pipe-memory", "0"], |_| {
        asked += 1;
        asked == 40
    });
    assert_eq!(server.metric("linerate_files_pipe_bytes"), 0.0);
}
