//! Where a request ends and the next begins (RFC 9112), however it is split.

use std::time::Duration;

use listener::Refusal;

use crate::place::Place;

#[test]
fn a_body_is_not_taken_for_the_next_request() {
    let place = Place::new();
    place.file("a", "text");
    place.file("smuggled", "loot");
    let server = place.serve(&[]);
    let inner = "GET /smuggled HTTP/1.1\r\nHost: smuggled\r\n\r\n";
    for framing in [
        "Content-Length: 41\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n29\r\n",
        "Content-Length: 41\r\nTransfer-Encoding: chunked\r\n\r\n29\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 41\r\n\r\n29\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n",
        "Content-Length: +41\r\n\r\n",
        "Content-Length: 41, 41\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 41\r\n\r\n",
        "Content-Length: 41\r\nContent-Length: 41\r\n\r\n",
        "X: y\r\n Content-Length: 41\r\n\r\n",
        "X: y\nContent-Length: 41\r\n\r\n",
        "X: y\n\n",
        "\n",
    ] {
        let mut client = server.connect();
        client.send(format!("GET /a HTTP/1.1\r\nHost: h\r\n{framing}{inner}"));
        let (all, _) = client.rest();
        let text = String::from_utf8_lossy(&all);
        assert!(text.starts_with("HTTP/1.1 "), "{framing:?}: {text}");
        assert!(!text.contains("loot"), "{framing:?}: {text}");
        assert_eq!(text.matches("\r\ndate: ").count(), 1, "{framing:?}: {text}");
    }
    server.assert_alive("/a");
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_connection() {
    let place = Place::new();
    place.file("a", "text");
    let server = place.serve(&[]);
    let many: String = (0..65).map(|n| format!("X{n}: y\r\n")).collect();
    let long = format!("X: {}\r\n", "y".repeat(9000));
    let malformed = Refusal::Malformed;
    for (request, refusal) in [
        ("GET /a HTTP/1.1\r\n\r\n".to_owned(), malformed("Host is missing")),
        ("GET /a HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n".to_owned(), malformed("there are two of Host")),
        ("GET /a HTTP/2.0\r\nHost: h\r\n\r\n".to_owned(), Refusal::Version),
        ("GET a HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), malformed("the request target is malformed")),
        ("\x16\x03\x01\x02\x00\x01\x00\x01".to_owned(), malformed("the method is malformed")),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), Refusal::Version),
        (
            "GET /a HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n".to_owned(),
            malformed("a field's value is malformed"),
        ),
        ("GET /a HTTP/1.1\r\nHost: h@i\r\n\r\n".to_owned(), malformed("Host names no host")),
        ("GET /a HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n".to_owned(), Refusal::Expectation),
        ("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), Refusal::Coding),
        (format!("GET /a HTTP/1.1\r\nHost: h\r\n{many}\r\n"), Refusal::HeadTooLarge),
        (format!("GET /a HTTP/1.1\r\nHost: h\r\n{long}\r\n"), Refusal::HeadTooLarge),
        (format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(9000)), Refusal::TargetTooLong),
    ] {
        let mut client = server.connect();
        client.send(&request);
        let answer = client.receive(true).unwrap_or_else(|error| panic!("{error}: {request:.200?}"));
        // The refusal has the words of the listener, which answers with TLS.
        let (status, detail) = refusal.text();
        assert_eq!((answer.status, answer.closes()), (status, true), "{request:.200?}");
        assert!(answer.text().contains(&format!("{detail:?}")), "{request:.200?}: {}", answer.text());
        assert!(client.is_closed(), "{request:.200?}");
    }
    server.assert_alive("/a");
}

#[test]
fn requests_in_a_pipeline_are_answered_in_order_however_they_are_cut() {
    let place = Place::new();
    for n in 0..6 {
        place.file(&format!("p{n}"), n.to_string().repeat(1 + 3000 * n));
    }
    let server = place.serve(&[]);
    let pipeline: String = (0..6).map(|n| format!("GET /p{n} HTTP/1.1\r\nHost: h\r\n\r\n")).collect();
    let mut cuts: Vec<_> = (0..=pipeline.len()).map(|cut| (cut, server.connect())).collect();
    for (cut, client) in &mut cuts {
        client.send(&pipeline[..*cut]);
    }
    std::thread::sleep(Duration::from_millis(50));
    for (cut, client) in &mut cuts {
        client.send(&pipeline[*cut..]);
        for n in 0..6 {
            let answer =
                client.receive(true).unwrap_or_else(|error| panic!("{error}: cut at {cut}, answer {n}"));
            assert_eq!(answer.text(), n.to_string().repeat(1 + 3000 * n), "cut at {cut}");
        }
    }
}

#[test]
fn a_client_that_half_closes_gets_its_answer() {
    use std::io::{Read, Write};
    let place = Place::new();
    place.file("a", "x".repeat(3_000_000));
    let server = place.serve(&[]);
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.ends_with(b"xxx") && all.len() > 3_000_000);
}
