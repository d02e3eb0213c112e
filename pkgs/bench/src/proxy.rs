//! Reverse proxies in front of a program under test, and clients with their own addresses.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use tempfile::TempDir;

use crate::error::Error;
use crate::peers::Nginx;
use crate::server::{Placement, Server, free_address};
use crate::{setup, skipped};

/// Longer than anything takes, unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running proxy; stopped when dropped.
pub struct Proxy(Running);

enum Running {
    Nginx(Nginx),
    // Dropped, and so stopped, before its directory is removed.
    Haproxy(Server, #[allow(dead_code, reason = "held")] TempDir),
}

impl Proxy {
    /// nginx in front of `upstream` (`http://…` or `https://…`), with these additional directives. None, with a message
    /// that `test` is skipped, if it is missing and can't be installed.
    ///
    /// # Panics
    /// When it doesn't start.
    pub fn nginx(test: &str, upstream: &str, directives: &str) -> Option<Self> {
        let location = format!("location / {{ proxy_pass {upstream}; {directives} }}");
        started(test, Nginx::serving(Placement { workers: 1, cpu: None }, &location).map(Running::Nginx))
    }

    /// HAProxy in front of `server`, an address and the rest of its line, with these lines for all its connections.
    /// None, with a message that `test` is skipped, if it is missing and can't be installed.
    ///
    /// # Panics
    /// When it doesn't start.
    pub fn haproxy(test: &str, server: &str, lines: &str) -> Option<Self> {
        started(test, haproxy(server, lines))
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        match &self.0 {
            Running::Nginx(nginx) => nginx.server().address(),
            Running::Haproxy(server, _) => server.address(),
        }
    }
}

fn haproxy(server: &str, lines: &str) -> Result<Running, Error> {
    let program = setup::require("haproxy", "haproxy")?;
    let (directory, address) = (tempfile::tempdir()?, free_address()?);
    let configuration = format!(
        "global\n maxconn 1000\n\
         defaults\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
         listen proxy\n bind {address}\n {lines}\n server one {server}\n"
    );
    let file = directory.path().join("haproxy.cfg");
    fs::write(&file, configuration).map_err(Error::file(&file))?;
    let mut command = Placement { workers: 1, cpu: None }.command(program);
    // In the foreground.
    command.arg("-db").arg("-f").arg(&file);
    Ok(Running::Haproxy(Server::start("haproxy", address, &mut command)?, directory))
}

fn started(test: &str, running: Result<Running, Error>) -> Option<Proxy> {
    match running {
        Ok(running) => Some(Proxy(running)),
        Err(missing @ Error::Missing { .. }) => {
            skipped(test, &missing.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Makes HAProxy send more than addresses: details of TLS, an id for each request, and a checksum. The first text ends
/// its server's line. The second one is a further line, which the ids need.
pub const EXTENDED: (&str, &str) =
    ("send-proxy-v2-ssl proxy-v2-options ssl,unique-id,crc32c", "unique-id-format %ci:%cp_%ts");

/// A header of HAProxy's PROXY protocol, version 2, for a client with this address, with more after the addresses.
#[must_use]
pub fn header(client: Ipv4Addr, more: &[u8]) -> Vec<u8> {
    let length = u16::try_from(12 + more.len()).expect("short").to_be_bytes();
    let fixed = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11"[..], &length].concat();
    [&fixed[..], &client.octets(), &[127, 0, 0, 1, 3, 232, 0, 80], more].concat()
}

/// What proxies put after the addresses (section 2.2 of `proxy-protocol.txt`): what the specification names, what
/// others have invented, unknown types, the shortest and the longest values, and truncated ones. A reader that only
/// needs addresses ignores all of it.
#[must_use]
pub fn extensions() -> Vec<Vec<u8>> {
    let extension = |kind: u8, value: &[u8]| {
        let length = u16::try_from(value.len()).expect("short").to_be_bytes();
        [&[kind][..], &length, value].concat()
    };
    // The TLS extension: TLS was used, no certificate was verified, and a nested extension has the version.
    let tls = [&[1, 0, 0, 0, 1][..], &extension(0x21, b"TLSv1.3")].concat();
    let named = [
        extension(0x01, b"h2"),
        extension(0x02, b"t.example"),
        extension(0x04, b"\0"),
        extension(0x05, b"id-1"),
        extension(0x20, &tls),
        extension(0x30, b"blue"),
    ];
    vec![
        Vec::new(),
        named.concat(),
        // From Amazon's load balancers.
        extension(0xea, b"\x01vpce-08d2bf15fac5001c9"),
        extension(0x7f, b""),
        extension(0xff, &[0xff; 4_000]),
        [extension(0xe0, b"\r\n\r\n"), extension(0xe0, b"GET / HTTP/1.1\r\n")].concat(),
        // The announced length is longer than the rest.
        vec![0x05, 0xff, 0xff, 1],
        vec![0x05],
    ]
}

/// The client that an access log file has for a path, once it has a line for it.
#[must_use]
pub fn logged_client(log: &Path, path: &str) -> Option<String> {
    let log = fs::read_to_string(log).unwrap_or_default();
    let mut lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let line = lines.find(|line| line["path"] == path)?;
    Some(line["client"].as_str().unwrap_or("none").to_owned())
}

/// A connection to `to` from this address, such as one in 127.0.0.0/8.
///
/// # Errors
/// When nobody listens there.
pub fn connect_from(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from((from, 0)))?;
    connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
