//! What a client sees when an origin is slow, gone, or wrong: stored content, an error, or a broken transfer; never
//! bytes that aren't the object's.

use std::time::{Duration, Instant};

use crate::fixture::{Fixture, is};
use crate::meddler::Fault;
use crate::place::{pattern, until};

const MIB: usize = 1 << 20;

#[test]
fn while_the_origin_is_gone_what_is_stale_is_served() {
    let Some(fixture) = Fixture::new("while_the_origin_is_gone_what_is_stale_is_served") else { return };
    let all = pattern(2 * MIB + 9);
    fixture.gateway.put("f", &all, &[]);
    let server = fixture.serve(&["--origin-ttl", "0", "--revalidate", "250", "--origin-stale", "600"]);
    assert!(server.get("/f", "").body == all);
    for fault in [Fault::Gone, Fault::Unavailable, Fault::Forbidden] {
        fixture.meddler.set(fault);
        let stale = || server.metric("linerate_origin_lookups_total{from=\"stale\"}");
        let before = stale();
        until("it is served stale", || {
            let answer = server.get("/f", "");
            assert!(answer.status == 200 && answer.body == all, "{fault:?}");
            stale() > before || fault != Fault::Gone
        });
        let unknown = server.get(&format!("/unknown-{fault:?}"), "").status;
        assert_eq!(unknown, if fault == Fault::Forbidden { 403 } else { 502 }, "{fault:?}");
    }
    fixture.meddler.set(Fault::None);
    fixture.gateway.put("f", b"new", &[]);
    until("it is asked again", || is(&server, "/f", "new"));
    assert!(!server.log().contains("linerate-secret"), "{}", server.log());
}

#[test]
fn what_is_stale_for_too_long_is_not_served() {
    let Some(fixture) = Fixture::new("what_is_stale_for_too_long_is_not_served") else { return };
    fixture.gateway.put("f", b"file", &[]);
    let server = fixture.serve(&["--origin-ttl", "0", "--revalidate", "250", "--origin-stale", "0"]);
    assert_eq!(server.get("/f", "").status, 200);
    fixture.meddler.set(Fault::Gone);
    // One worker may keep the file longer than another.
    until("it is an error", || {
        let problem = server.get("/f", "");
        problem.status == 502 && problem.field("content-type").as_deref() == Some("application/problem+json")
    });
    fixture.meddler.set(Fault::None);
    until("it is served again", || server.get("/f", "").status == 200);
}

#[test]
fn a_slow_origin_keeps_only_those_waiting_who_ask_it() {
    let Some(fixture) = Fixture::new("a_slow_origin_keeps_only_those_waiting_who_ask_it") else { return };
    fixture.gateway.put("warm", b"warm", &[]);
    fixture.gateway.put("cold", b"cold", &[]);
    let server = fixture.serve(&["--workers", "1", "--origin-head-timeout", "2"]);
    until("it is stored", || {
        let answer = server.get("/warm", "");
        answer.status == 200 && answer.text() == "warm"
    });
    fixture.meddler.set(Fault::Held);
    let begun = Instant::now();
    let mut waiting: Vec<_> = (0..20)
        .map(|number| {
            let mut client = server.connect();
            let path = if number == 0 { "cold".to_owned() } else { format!("none-{number}") };
            client.send(format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n"));
            client
        })
        .collect();
    until("all are asked", || fixture.meddler.waiting() >= 20);
    for _ in 0..100 {
        assert_eq!(server.get("/warm", "").text(), "warm");
    }
    // Taking too long is a separate error.
    let answer = waiting[0].receive(true).expect("an answer");
    assert_eq!(answer.status, 504);
    assert!(begun.elapsed() >= Duration::from_secs(2));
    fixture.meddler.set(Fault::None);
    until("it is asked again", || is(&server, "/cold", "cold"));
}

#[test]
fn what_is_stale_is_served_while_the_origin_takes_its_time() {
    let Some(fixture) = Fixture::new("what_is_stale_is_served_while_the_origin_takes_its_time") else {
        return;
    };
    fixture.gateway.put("f", b"first", &[]);
    let server = fixture.serve(&["--origin-ttl", "0", "--revalidate", "250", "--origin-head-timeout", "30"]);
    assert_eq!(server.get("/f", "").text(), "first");
    fixture.gateway.put("f", b"second", &[]);
    fixture.meddler.set(Fault::Held);
    until("it is asked", || {
        assert_eq!(server.get("/f", "").text(), "first");
        fixture.meddler.waiting() > 0
    });
    let begun = Instant::now();
    assert_eq!(server.get("/f", "").text(), "first");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    fixture.meddler.set(Fault::None);
    until("the second is seen", || server.get("/f", "").text() == "second");
}

#[test]
fn lies_about_lengths_break_transfers_and_leave_nothing_behind() {
    let Some(fixture) = Fixture::new("lies_about_lengths_break_transfers_and_leave_nothing_behind") else {
        return;
    };
    let all = pattern(3 * MIB + 3);
    let flags = ["--origin-head-timeout", "5", "--origin-ttl", "0", "--revalidate", "250"];
    let faults = [
        Fault::CutAfter(1000),
        Fault::Shorter(1),
        Fault::Longer(1),
        Fault::Larger(5),
        Fault::OtherTag,
        Fault::NoTag,
        Fault::NoRanges,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let server = fixture.serve(&flags);
        // From the first request on, and in the middle.
        for begins in [true, false] {
            let key = format!("f-{number}-{begins}");
            fixture.gateway.put(&key, &all, &[]);
            if !begins {
                let part = server.get(&format!("/{key}"), "Range: bytes=0-9\r\n");
                assert_eq!(part.body, &all[..10]);
            }
            fixture.meddler.set(fault);
            let mut client = server.connect();
            client.send(format!("GET /{key} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
            let (received, _) = client.rest();
            let text = String::from_utf8_lossy(&received[..received.len().min(12)]).into_owned();
            if text == "HTTP/1.1 200" {
                let end = received.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
                let body = &received[end..];
                assert!(all.starts_with(body), "{fault:?} {begins}: other bytes");
                let head = String::from_utf8_lossy(&received[..end]).into_owned();
                let whole = format!("content-length: {}\r\n", body.len());
                // Clients may repeat requests to object stores if a connection ends early.
                assert!(
                    !head.contains(&whole) || body.len() == all.len(),
                    "{fault:?} {begins}: a part that passes for the whole: {head}"
                );
            } else {
                assert_eq!(text, "HTTP/1.1 502", "{fault:?} {begins}");
            }
            fixture.meddler.set(Fault::None);
            until("it is right again", || {
                let mut client = server.connect();
                client.send(format!("GET /{key} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
                let (received, _) = client.rest();
                received.starts_with(b"HTTP/1.1 200") && received.ends_with(&all)
            });
        }
    }
}

#[test]
fn what_is_replaced_under_way_breaks_and_is_never_mixed() {
    let Some(fixture) = Fixture::new("what_is_replaced_under_way_breaks_and_is_never_mixed") else { return };
    let old = vec![b'o'; 12 * MIB];
    let new = vec![b'n'; 12 * MIB];
    fixture.gateway.put("f", &old, &[]);
    let server = fixture.serve(&["--origin-ttl", "600"]);
    assert_eq!(server.connect().ask("HEAD", "/f", "").status, 200);
    until("the first block is there", || server.metric("linerate_origin_fetched_blocks_total") == 1.0);
    fixture.meddler.set(Fault::Held);
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.receive_head().expect("a head").status, 200);
    until("blocks are asked for", || fixture.meddler.waiting() > 0);
    fixture.gateway.put("f", &new, &[]);
    fixture.meddler.set(Fault::None);
    let (received, well) = client.rest();
    assert!(!well, "the connection ends in a reset");
    assert!(received.iter().all(|byte| *byte == b'o') && received.len() < old.len(), "{}", received.len());
    // It is asked about at once, whatever the TTL.
    until("the new one is seen", || {
        let mut client = server.connect();
        client.send("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let (received, _) = client.rest();
        let end = received.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
        let body = &received[end..];
        let mixed = body.contains(&b'o') && body.contains(&b'n') && received.starts_with(b"HTTP/1.1 200");
        assert!(!mixed, "two versions in one answer");
        body == new
    });
}

#[test]
fn a_cold_file_that_is_deleted_under_way_breaks_too() {
    let Some(fixture) = Fixture::new("a_cold_file_that_is_deleted_under_way_breaks_too") else { return };
    fixture.gateway.put("f", &pattern(12 * MIB), &[]);
    let server = fixture.serve(&["--origin-missing-ttl", "0"]);
    assert_eq!(server.connect().ask("HEAD", "/f", "").status, 200);
    fixture.gateway.delete("f");
    let mut client = server.connect();
    client.send("GET /f HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.receive_head().expect("a head").status, 200);
    let (_, well) = client.rest();
    assert!(!well, "the connection ends in a reset");
    // What workers have found is valid for a second.
    until("it is gone", || {
        let mut client = server.connect();
        client.send("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        client.rest().0.starts_with(b"HTTP/1.1 404")
    });
}
