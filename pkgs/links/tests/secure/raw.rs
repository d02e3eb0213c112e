//! Connections to the real binary, byte by byte, and its metrics about them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bench::anybody::Anybody;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::json;

use crate::client::{Secure, Version, address, metric};
use crate::server::Server;

/// Longer than any step of these tests takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A TCP connection, with or without TLS.
pub trait Stream: Read + Write {
    fn tcp(&self) -> &TcpStream;

    /// Whether the server has closed the connection, whatever it sent before.
    fn has_ended(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Everything received until the end.
    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = self.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref()
    }
}

pub fn tcp(server: &Server, version: Version) -> TcpStream {
    let stream = TcpStream::connect(address(server, version)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// A connection. If it uses TLS, it offers the version's protocol with ALPN.
pub fn connect(server: &Server, version: Version) -> Box<dyn Stream> {
    let stream = tcp(server, version);
    if version == Version::Plain {
        return Box::new(stream);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().expect("versions").dangerous();
    let mut config =
        config.with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth();
    config.alpn_protocols =
        vec![if version == Version::Http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    Box::new(StreamOwned::new(connection, stream))
}

pub fn send(stream: &mut dyn Stream, bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).and_then(|()| stream.flush()).expect("it reads");
}

/// How many connections were closed because they were slow or idle.
pub fn timed_out(server: &Server) -> f64 {
    metric(server, &["linerate_links_listener_timed_out_total"])
}

/// How many requests were answered 408.
pub fn told_408(server: &Server) -> f64 {
    metric(server, &["linerate_links_requests_total", "\"408\""])
}

/// How often there was no room, for this reason.
pub fn shed(server: &Server, reason: &str) -> f64 {
    metric(server, &["linerate_links_listener_shed_total", &format!("reason=\"{reason}\"")])
}

/// A server with a link that asks for a password, and one with a long target.
pub fn serve(secure: &Secure, flags: &[&str]) -> Server {
    let server = secure.serve(flags);
    let mut api = server.api();
    let locked = json!({ "code": "lock", "target": "https://t.example/", "password": "p" });
    assert_eq!(api.add(&locked).expect("an answer"), 201);
    let long = json!({ "code": "long", "target": format!("https://t.example/{}", "x".repeat(4000)) });
    assert_eq!(api.add(&long).expect("an answer"), 201);
    server
}

// RFC 9113, section 6.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The next frame: its type, its stream, and its payload.
pub fn next(stream: &mut dyn Stream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    let [a, b, c, kind, _, id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).expect("a whole frame");
    (kind, u32::from_be_bytes(id), payload)
}
