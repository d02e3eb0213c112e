//! Files that change while they are sent, and disks and limits that are exhausted.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::process::Command;
use std::time::Duration;

use files::disk::resident::is_resident;
use testkit::uninterrupted;

use crate::client::Client;
use crate::place::{BINARY, Place, forget, pattern, until};
use crate::routes::rules;

/// More than all buffers on the way hold.
const LARGE: usize = 64 << 20;

/// Requests a large file and reads a part of it; then `change` happens, and the rest is read. Returns the whole body
/// that arrived.
fn interrupted(engine: &str, change: impl FnOnce(&Place)) -> Vec<u8> {
    let place = Place::new();
    place.file("f", pattern(LARGE));
    let server = place.serve(&["--engine", engine]);
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.receive_head().expect("a head");
    assert_eq!(head.field("content-length"), Some(LARGE.to_string()));
    let mut part = vec![0; 1 << 20];
    client.stream.read_exact(&mut part).expect("a part");
    std::thread::sleep(Duration::from_millis(100));
    change(&place);
    let (before, well) = client.rest();
    assert!(!well, "{engine}: it ended as if it were whole");
    // What arrived with the head comes first in `before`, but the client read it before `part`.
    let mut all = part;
    all.extend(before);
    place.file("alive", "alive");
    server.assert_alive("/alive");
    all
}

#[test]
fn a_file_that_is_truncated_while_it_is_sent_is_cut() {
    for engine in ["auto", "splice", "copy"] {
        let all = interrupted(engine, |place| {
            File::options().write(true).open(place.root("f")).unwrap().set_len(LARGE as u64 / 2).unwrap();
        });
        assert!(all.len() < LARGE, "{engine}: {} bytes", all.len());
    }
}

#[test]
fn a_file_that_is_written_to_while_it_is_sent_is_cut() {
    for engine in ["auto", "splice", "copy"] {
        let all = interrupted(engine, |place| {
            let mut file = File::options().write(true).open(place.root("f")).unwrap();
            file.write_all(&vec![0; LARGE]).unwrap();
        });
        assert!(all.len() < LARGE, "{engine}: {} bytes", all.len());
    }
}

#[test]
fn a_file_that_is_replaced_or_deleted_while_it_is_sent_is_sent_as_it_was() {
    for engine in ["auto", "splice", "copy"] {
        for replace in [true, false] {
            let place = Place::new();
            place.file("f", pattern(LARGE));
            let server = place.serve(&["--engine", engine]);
            let mut client = server.connect();
            client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
            let head = client.receive_head().expect("a head");
            if replace {
                fs::write(place.beside("new"), "new").unwrap();
                fs::rename(place.beside("new"), place.root("f")).unwrap();
            } else {
                fs::remove_file(place.root("f")).unwrap();
            }
            let answer = client.receive_body(head).expect("an answer");
            assert!(answer.body == pattern(LARGE), "{engine}");
            let next = client.get("/f", "");
            assert_eq!(next.status, if replace { 200 } else { 404 }, "{engine}");
        }
    }
}

#[test]
fn what_is_not_in_memory_is_read_without_keeping_others_waiting() {
    let place = Place::new();
    let cold = place.file("cold", pattern(8 << 20));
    place.file("warm", "warm");
    let file = File::open(&cold).unwrap();
    let server = place.serve(&["--admin", "127.0.0.1:0"]);
    for _ in 0..3 {
        forget(&file);
        let answer = server.get("/cold", "");
        assert!(answer.body == pattern(8 << 20));
        server.assert_alive("/warm");
    }
    assert!(server.metric("linerate_files_cold_reads_total") > 0.0, "the disk was waited for elsewhere");
}

#[test]
fn the_next_file_of_a_manifest_is_read_ahead() {
    let place = Place::new();
    let shards: Vec<_> = (0..3).map(|n| place.file(&format!("shard{n}"), pattern(4 << 20))).collect();
    place.file("manifest", "shard0\n/shard1\n\nshard2\n");
    let rules = place.beside("rules.toml");
    fs::write(&rules, "[[rule]]\npath = '/*'\nprefetch = 'manifest'\n").unwrap();
    let next = File::open(&shards[1]).unwrap();
    forget(&next);
    let server = place.serve(&["--rules", rules.to_str().unwrap()]);
    until("the next shard in memory", || {
        // The kernel may ignore advice to read; a later request repeats the advice.
        server.get("/shard0", "Range: bytes=0-0\r\n");
        is_resident(&next, &(0..1 << 20))
    });
}

#[test]
fn a_lookup_waits_for_a_file_descriptor_wherever_rules_lead() {
    for text in ["", "[[rule]]\npath = '*'\nfallback = '/x'\n"] {
        let place = Place::new();
        place.file("f", "f");
        let flags = rules(&place, text);
        let server = place.serve(&flags.each_ref().map(String::as_str));
        let mut client = server.connect();
        assert_eq!(client.get("/none", "").status, 404);
        let limit = |descriptors: u32| {
            let mut prlimit = Command::new("prlimit");
            prlimit.arg(format!("--pid={}", server.id())).arg(format!("--nofile={descriptors}:"));
            assert!(prlimit.status().expect("prlimit runs").success());
        };
        // None is left but those that are in use.
        limit(3);
        client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
        client.stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
        let early = uninterrupted(|| client.stream.peek(&mut [0; 1]));
        assert_eq!(early.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock), "{text:?}");
        limit(256);
        client.stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        assert_eq!(client.receive(true).expect("an answer").text(), "f", "{text:?}");
    }
}

#[test]
fn a_server_out_of_file_descriptors_recovers() {
    let place = Place::new();
    place.file("f", pattern(100_000));
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=48:48").arg(BINARY);
    let server = place.serve_by(limited, &[]);
    server.assert_alive("/f");
    // More than it can take at once: the others wait in the backlog.
    let mut crowd: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for client in &mut crowd {
        client.send("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    }
    for mut client in crowd {
        client.stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
        let answer = client.receive(true).expect("an answer, late as it may be");
        assert_eq!(answer.status, 200, "who is let in is served");
        assert!(answer.body == pattern(100_000));
    }
    server.assert_alive("/f");
}
