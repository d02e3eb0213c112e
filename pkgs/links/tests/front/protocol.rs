//! HTTP/1.1 itself (RFC 9112): which bytes are a request, and where one request ends and the next begins.

use std::time::Duration;

use crate::server::{Server, settings};

fn server() -> Server {
    let server = Server::start(settings());
    server.link("abc", |_| ());
    server
}

#[test]
fn requests_are_answered_or_refused_as_http_has_it() {
    let server = server();
    let many: String = (0..65).map(|n| format!("X{n}: y\r\n")).collect();
    let large = format!("X: {}\r\n", "y".repeat(9000));
    for (request, status) in [
        ("GET /abc HTTP/1.1\r\nHost: h\r\n\r\n", 307),
        ("GET /abc HTTP/1.1\r\nhOsT:h\r\n\r\n", 307),
        ("GET /abc HTTP/1.1\r\nHost:\r\n\r\n", 307),
        ("GET /%61bc HTTP/1.1\r\nHost: h\r\n\r\n", 307),
        ("GET /abc?%00 HTTP/1.1\r\nHost: h\r\n\r\n", 307),
        ("GET http://h/abc HTTP/1.1\r\nHost: h\r\n\r\n", 307),
        ("GET /abc HTTP/1.0\r\n\r\n", 307),
        ("GET /abc HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", 307),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 307),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz", 307),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\n\r\n", 307),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 307),
        ("OPTIONS /abc HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("PUT /abc HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 405),
        ("DELETE /abc HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("PATCH /abc HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("TRACE /abc HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        ("GET /abc HTTP/1.1\r\n\r\n", 400),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400),
        ("POST /abc HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400),
        ("POST /abc HTTP/1.1\r\nHost: h\r\nHost: i\r\nContent-Length: 0\r\n\r\n", 400),
        ("GET /%61bc HTTP/1.1\r\n\r\n", 400),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n\r\n", 400),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", 400),
        ("GET /abc HTTP/1.1\r\nHost : h\r\n\r\n", 400),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n", 400),
        ("GET  /abc HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET /abc HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", 417),
        ("POST /abc HTTP/1.1\r\nHost: h\r\nExpect: more\r\nContent-Length: 1\r\n\r\n", 417),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("GET abc HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET /abc\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", 400),
        (
            "GET /abc HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (&*format!("GET /abc HTTP/1.1\r\nHost: h\r\n{many}\r\n"), 431),
        (&*format!("GET /abc HTTP/1.1\r\nHost: h\r\n{large}\r\n"), 431),
        (&*format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(9000)), 414),
        (&*format!("GET /abc?{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(7000)), 307),
    ] {
        let mut client = server.connect();
        client.send(request).unwrap();
        let answer = client.receive().unwrap_or_else(|error| panic!("{error}: {request:.200?}"));
        assert_eq!(answer.status, status, "{request:.200?}");
        if status >= 400 && status != 405 {
            assert!(answer.closes(), "where a request ends is not known any more: {request:.200?}");
        }
        if answer.closes() {
            assert!(client.is_closed(), "{request:.200?}");
        }
    }
}

#[test]
fn a_body_is_not_taken_for_the_next_request() {
    let server = server();
    server.link("smuggled", |_| ());
    for framing in [
        "Content-Length: 41\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n29\r\n",
        "Content-Length: 41\r\nTransfer-Encoding: chunked\r\n\r\n29\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n",
        "Content-Length: +41\r\n\r\n",
    ] {
        let mut client = server.connect();
        let inner = "GET /smuggled HTTP/1.1\r\nHost: smuggled\r\n\r\n";
        assert_eq!(inner.len(), 42, "one more than announced, so that what is left over is no request");
        client.send(format!("GET /abc HTTP/1.1\r\nHost: h\r\n{framing}{inner}")).unwrap();
        let mut answer = client.receive().unwrap();
        assert!(matches!(answer.status, 307 | 400 | 501), "{framing:?}: {answer:?}");
        if answer.status == 307 {
            // The announced length is the body. The rest belongs to the next request, which makes that request invalid.
            client.send("GET /abc HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            answer = client.receive().unwrap();
            assert_eq!(answer.status, 400, "{framing:?}: {answer:?}");
        }
        assert!(answer.closes() && client.is_closed(), "{framing:?}");
    }
    server.assert_clicks("smuggled", 0);
}

#[test]
fn requests_in_a_pipeline_are_answered_in_order_however_they_are_cut() {
    let server = server();
    for n in 0..10 {
        server.link(&format!("p{n}"), |link| link.target = format!("https://t.example/{n}"));
    }
    let pipeline: String =
        (0..10).map(|n| format!("GET /p{n} HTTP/1.1\r\nHost: h\r\nX: {n}\r\n\r\n")).collect();
    let mut cuts: Vec<_> = (0..=pipeline.len()).map(|cut| (cut, server.connect())).collect();
    // Send all first parts, and then all second parts. By then the server has seen each first part.
    for (cut, client) in &mut cuts {
        client.send(&pipeline[..*cut]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    for (cut, client) in &mut cuts {
        client.send(&pipeline[*cut..]).unwrap();
        for n in 0..10 {
            let answer = client.receive().unwrap_or_else(|error| panic!("{error}: cut at {cut}, answer {n}"));
            assert_eq!(answer.location(), format!("https://t.example/{n}"), "cut at {cut}");
        }
    }
}

#[test]
fn a_pipeline_is_answered_byte_by_byte_and_up_to_its_close() {
    let server = server();
    let mut client = server.connect();
    let pipeline = "GET /abc HTTP/1.1\r\nHost: h\r\n\r\nHEAD /no HTTP/1.1\r\nHost: h\r\n\r\n\
        GET /abc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /no HTTP/1.1\r\nHost: h\r\n\r\n";
    for byte in pipeline.bytes() {
        let _ = client.send([byte]);
    }
    assert_eq!(client.receive().unwrap().status, 307);
    assert_eq!(client.receive_head().unwrap().status, 404);
    let last = client.receive().unwrap();
    assert_eq!((last.status, last.closes()), (307, true));
    assert!(client.is_closed());
}

#[test]
fn a_pipeline_goes_on_over_a_request_that_is_not_plain() {
    let server = server();
    let mut client = server.connect();
    client
        .send("GET /abc HTTP/1.1\r\nHost: h\r\n\r\nGET /%61bc HTTP/1.1\r\nHost: h\r\n\r\nGET /no HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    for status in [307, 307, 404] {
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, answer.closes()), (status, false));
    }
}

#[test]
fn a_connection_stays_whatever_it_was_asked_for() {
    let server = server();
    server.link("asks", |link| link.password = Some("secret".to_owned()));
    let mut client = server.connect();
    let form = "Content-Length: 15\r\n\r\npassword=secret";
    for (request, status) in [
        ("GET /%61bc HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), 307),
        ("GET /abc HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(), 307),
        ("GET http://h/abc HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), 307),
        (format!("GET /abc HTTP/1.1\r\nHost: h\r\n{form}"), 307),
        ("PUT /abc HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), 405),
        (format!("POST /abc HTTP/1.1\r\nHost: h\r\n{form}"), 405),
        (format!("POST /asks HTTP/1.1\r\nHost: h\r\n{form}"), 303),
        ("GET /abc HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), 307),
    ] {
        client.send(&request).unwrap();
        let answer = client.receive().unwrap_or_else(|error| panic!("{error}: {request:?}"));
        assert_eq!((answer.status, answer.closes()), (status, false), "{request:?}");
    }
}

#[test]
fn what_follows_a_request_that_closes_is_not_served() {
    let server = server();
    server.link("asks", |link| link.password = Some("secret".to_owned()));
    server.link("behind", |_| ());
    let form = "Content-Length: 15\r\n\r\npassword=secret";
    for (first, status) in [
        ("GET /%61bc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(), 307),
        ("GET /abc HTTP/1.0\r\n\r\n".to_owned(), 307),
        ("PUT /abc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(), 405),
        (format!("POST /abc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{form}"), 405),
        (format!("POST /asks HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{form}"), 303),
        ("GET /abc HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".to_owned(), 307),
        ("bad\r\n\r\n".to_owned(), 400),
    ] {
        // Once in one piece with the first request, and once after its answer has arrived.
        for late in [false, true] {
            let mut client = server.connect();
            let behind = "GET /behind HTTP/1.1\r\nHost: h\r\n\r\n";
            client.send(if late { first.clone() } else { format!("{first}{behind}") }).unwrap();
            let answer = client.receive().unwrap_or_else(|error| panic!("{error}: {first:?}"));
            assert_eq!((answer.status, answer.closes()), (status, true), "{first:?}");
            if late {
                let _ = client.send(behind);
            }
            assert!(client.is_closed(), "{first:?}");
        }
    }
    server.assert_clicks("behind", 0);
}

#[test]
fn a_long_pipeline_to_a_slow_reader_is_answered_whole() {
    let server = server();
    server.link("long", |link| link.target = format!("https://t.example/{}", "x".repeat(4000)));
    let mut client = server.connect();
    // 2,000 answers of 4 KB are more than both socket buffers hold.
    let request = "GET /long HTTP/1.1\r\nHost: h\r\n\r\n";
    client.send(request.repeat(2000)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    for n in 0..2000 {
        let answer = client.receive().unwrap_or_else(|error| panic!("{error}: answer {n}"));
        assert_eq!(answer.location().len(), 4018);
    }
    server.assert_clicks("long", 2000);
}

#[test]
fn a_client_that_half_closes_gets_its_answer() {
    use std::io::{Read, Write};
    let server = server();
    for path in ["abc", "%61bc"] {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 307 "), "{path}: {text:?}");
    }
}

#[test]
fn an_interim_answer_is_given_where_it_is_asked_for() {
    let server = server();
    server.link("asks", |link| link.password = Some("secret".to_owned()));
    let mut client = server.connect();
    client
        .send("POST /asks HTTP/1.1\r\nHost: h\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert_eq!(client.receive().unwrap().status, 100);
    client.send("password=secret").unwrap();
    assert_eq!(client.receive().unwrap().status, 303);
}
