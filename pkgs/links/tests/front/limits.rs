//! The limits for a client: time, connections and sizes.

use std::time::{Duration, Instant};

use crate::http::Client;
use crate::server::{Server, limits};

#[test]
fn connections_beyond_the_limit_are_closed_and_taken_again_once_there_is_room() {
    let mut configured = limits();
    // This limit is for both workers together.
    configured.connections = 8;
    let server = Server::limited(&configured);
    server.link("abc", |_| ());
    let answers = |client: &mut Client| client.get("abc").is_ok_and(|answer| answer.status == 307);
    let mut clients: Vec<_> = (0..64).map(|_| server.connect()).collect();
    clients.retain_mut(answers);
    assert_eq!(clients.len(), 8);
    assert!(clients.iter_mut().all(answers), "those let in are served on");
    drop(clients);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !answers(&mut server.connect()) {
        assert!(Instant::now() < deadline, "there is room again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_head_that_drips_is_cut_off_at_its_deadline() {
    let mut configured = limits();
    configured.head_timeout = Duration::from_secs(2);
    let server = Server::limited(&configured);
    server.link("abc", |_| ());
    for start in ["GET /abc HTTP/1.1\r\nHost: h\r\nX: ", ""] {
        let mut slow = server.connect();
        slow.send(start).unwrap();
        // A byte now and then must not postpone the deadline.
        let hung = Instant::now() + Duration::from_secs(60);
        while slow.send("G").is_ok() {
            assert!(Instant::now() < hung, "it drips on: {start:?}");
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

/// A client that stalls at one of seven stages.
fn stalled(server: &Server, stage: usize) -> Client {
    let mut client = server.connect();
    let form = "POST /asks HTTP/1.1\r\nHost: h\r\n";
    let begin = match stage {
        0 => String::new(),
        1 => "GET /abc HT".to_owned(),
        2 => format!("{form}Content-Length: 15\r\n\r\npass"),
        3 => format!("{form}Transfer-Encoding: chunked\r\n\r\n4\r\npass"),
        4 => format!("{form}Content-Length: 15\r\nExpect: 100-continue\r\n\r\n"),
        // Far more answers than both socket buffers hold, none of which is read.
        5 => "GET /long HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2000),
        6 => "GET /abc HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        _ => unreachable!("there are seven"),
    };
    // Clients without a slot may be closed during this.
    let _ = client.send(begin);
    client
}

#[test]
fn whoever_stands_still_at_whatever_stage_gives_its_place_back() {
    let mut configured = limits();
    configured.connections = 4;
    configured.head_timeout = Duration::from_secs(1);
    configured.idle_timeout = Duration::from_secs(1);
    let server = Server::limited(&configured);
    server.link("abc", |_| ());
    server.link("asks", |link| link.password = Some("secret".to_owned()));
    server.link("long", |link| link.target = format!("https://t.example/{}", "x".repeat(4000)));
    for stage in 0..7 {
        let _held: Vec<_> = (0..64).map(|_| stalled(&server, stage)).collect();
        let hung = Instant::now() + Duration::from_secs(60);
        while !server.connect().get("abc").is_ok_and(|answer| answer.status == 307) {
            assert!(Instant::now() < hung, "stage {stage} holds all places");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn who_began_a_request_is_told_that_it_took_too_long() {
    let mut configured = limits();
    configured.head_timeout = Duration::from_secs(3);
    let server = Server::limited(&configured);
    server.link("asks", |link| link.password = Some("secret".to_owned()));
    for stage in 1..=3 {
        let mut client = stalled(&server, stage);
        let answer = client.receive().unwrap_or_else(|error| panic!("{error}: stage {stage}"));
        assert_eq!((answer.status, answer.closes()), (408, true), "stage {stage}");
        assert!(client.is_closed());
    }
    let mut client = server.connect();
    client.send("get").unwrap();
    assert_eq!(client.receive().expect("an answer").status, 408, "a method is whatever a client makes up");
    // Nothing is sent on a connection that only waits for its next request.
    assert!(stalled(&server, 0).is_closed());
}

#[test]
fn requests_that_overlap_reads_each_have_a_deadline_of_their_own() {
    let mut configured = limits();
    configured.head_timeout = Duration::from_secs(4);
    let deadline = Instant::now() + 2 * configured.head_timeout;
    let server = Server::limited(&configured);
    server.link("abc", |_| ());
    let mut client = server.connect();
    let (start, end) = ("GET /abc HTTP/1.1\r\nHo", "st: h\r\n\r\n");
    client.send(start).unwrap();
    // This lasts longer than the deadline, and each read ends in the middle of a head.
    let mut answers = 0;
    while Instant::now() < deadline {
        client.send(format!("{end}{start}")).unwrap();
        let answer = client.receive().unwrap_or_else(|error| panic!("{error}: answer {answers}"));
        assert_eq!(answer.status, 307);
        answers += 1;
    }
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_timeout() {
    let mut configured = limits();
    configured.idle_timeout = Duration::from_secs(1);
    let server = Server::limited(&configured);
    server.link("abc", |_| ());
    let mut client = server.connect();
    assert_eq!(client.get("abc").unwrap().status, 307);
    // The workers' own tests check the exact time, with a simulated clock.
    assert!(client.is_closed());
}
