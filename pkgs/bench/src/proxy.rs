//! Reverse proxies in front of a program under test, and clients at addresses of their own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
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
    // Dropped, and so stopped, before its directory goes.
    Haproxy(Server, #[allow(dead_code, reason = "held")] TempDir),
}

impl Proxy {
    /// nginx, which asks `upstream` (`http://…` or `https://…`), with these directives beside. Nothing, with a skip of
    /// `test` said aloud, where it is not there and cannot be installed.
    ///
    /// # Panics
    /// When it does not start.
    pub fn nginx(test: &str, upstream: &str, directives: &str) -> Option<Self> {
        let location = format!("location / {{ proxy_pass {upstream}; {directives} }}");
        started(test, Nginx::serving(Placement { workers: 1, cpu: None }, &location).map(Running::Nginx))
    }

    /// HAProxy before `server`, an address and what else stands on its line, with these lines for all its connections.
    /// Nothing, with a skip of `test` said aloud, where it is not there and cannot be installed.
    ///
    /// # Panics
    /// When it does not start.
    pub fn haproxy(test: &str, server: &str, lines: &str) -> Option<Self> {
        started(test, haproxy(server, lines))
    }

    /// Where it listens.
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

/// A connection to `to` from this address, of which 127.0.0.0/8 has many.
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
