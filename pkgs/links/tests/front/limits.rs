//! What bounds a client: time, connections, size.

use std::time::{Duration, Instant};

use crate::http::Client;
use crate::server::{Server, settings};

#[test]
fn connections_beyond_the_limit_are_closed_and_taken_again_once_there_is_room() {
    let mut configured = settings();
    configured.connections = 4;
    let server = Server::start(configured);
    server.link("abc", |_| ());
    // Each of two workers takes four, and the kernel shares connections out by hash.
    let answers = |client: &mut Client| client.get("abc").is_ok_and(|answer| answer.status == 307);
    let mut clients: Vec<_> = (0..64).map(|_| server.connect()).collect();
    clients.retain_mut(answers);
    assert_eq!(clients.len(), 8);
    assert!(clients.iter_mut().all(answers), "those let in are served on");
    drop(clients);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !answers(&mut server.connect()) {
        assert!(Instant::now() < deadline, "there is room again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_head_that_drips_is_cut_off_at_its_deadline() {
    let server = Server::start(settings());
    server.link("abc", |_| ());
    for start in ["GET /abc HTTP/1.1\r\nHost: h\r\nX: ", ""] {
        let mut slow = server.connect();
        slow.send(start).unwrap();
        let started = Instant::now();
        // One byte now and then must not put the deadline off.
        while started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(250));
            if slow.send("G").is_err() {
                break;
            }
        }
        let lasted = started.elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(30)).contains(&lasted), "{lasted:?}");
    }
}

#[test]
fn requests_that_overlap_reads_each_have_a_deadline_of_their_own() {
    let mut configured = settings();
    configured.head_timeout = Duration::from_secs(4);
    let server = Server::start(configured);
    server.link("abc", |_| ());
    let mut client = server.connect();
    let (start, end) = ("GET /abc HTTP/1.1\r\nHo", "st: h\r\n\r\n");
    client.send(start).unwrap();
    // Longer than the deadline, and always in the middle of a head.
    for n in 0..18 {
        std::thread::sleep(Duration::from_millis(300));
        client.send(format!("{end}{start}")).unwrap();
        let answer = client.receive().unwrap_or_else(|error| panic!("{error}: answer {n}"));
        assert_eq!(answer.status, 307);
    }
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_timeout_and_not_before() {
    let mut configured = settings();
    configured.idle_timeout = Duration::from_secs(6);
    let server = Server::start(configured);
    server.link("abc", |_| ());
    let mut client = server.connect();
    assert_eq!(client.get("abc").unwrap().status, 307);
    std::thread::sleep(Duration::from_millis(3000));
    assert_eq!(client.get("abc").unwrap().status, 307, "not yet");
    let started = Instant::now();
    assert!(client.is_closed());
    assert!((Duration::from_secs(5)..Duration::from_secs(25)).contains(&started.elapsed()));
}
