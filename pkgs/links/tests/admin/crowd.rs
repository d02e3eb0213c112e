//! Many idle clients do not keep other clients out.

use std::io::Write;
use std::net::TcpStream;

use ureq::SendBody;

use crate::server::Server;

/// More clients than the admin listener has connection slots.
const CROWD: usize = 300;

#[test]
fn a_crowd_at_whatever_stage_keeps_nobody_out() {
    let server = Server::start();
    let get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    for (stage, begin) in [
        ("nothing said", String::new()),
        ("half a head", "GET / HT".to_owned()),
        ("half a body", "POST /api/v1/links HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{".to_owned()),
        ("idle", get.to_owned()),
        // A page of 20 KiB, requested so often that no buffer holds all answers, and none is read.
        ("never reads", get.repeat(400)),
    ] {
        let crowd: Vec<_> = (0..CROWD)
            .map(|_| {
                let mut stream = TcpStream::connect(server.address).unwrap();
                stream.set_nonblocking(true).unwrap();
                // Send as much as the socket accepts.
                let _ = stream.write_all(begin.as_bytes());
                stream
            })
            .collect();
        for _ in 0..3 {
            // On a new connection, since connections that are kept idle are the first to be closed.
            let reply = server.send("GET", "/healthz", &[("connection", "close")], SendBody::none());
            assert_eq!(reply.status, 200, "{stage}");
        }
        drop(crowd);
    }
}
