//! A running service, and its loads.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bench::Error;
use bench::h2load::Streams;
use bench::h3load::{self, LoadRequest};
use bench::server::{Placement, Server};
use bench::wrk::{Load, Requests};

/// Connections of each load, and the requests at once on each of those that allow several.
const CONNECTIONS: usize = 8;
const STREAMS: usize = 8;

/// How long a single answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Any CPU: nothing is measured.
const ANYWHERE: Placement = Placement { workers: 1, cpu: None };

/// A service that listens with and without TLS, and for operators. It ends when this is dropped.
pub struct Service {
    pub server: Server,
    pub secure: SocketAddr,
    pub admin: SocketAddr,
    pub seconds: u64,
}

impl Service {
    /// These requests by HTTP/1.1 without TLS.
    ///
    /// # Errors
    /// When a request fails.
    pub fn load(&self, requests: &Requests) -> Result<(), Error> {
        self.load_at(&self.server, requests)
    }

    /// The same on the listener for operators.
    ///
    /// # Errors
    /// When a request fails.
    pub fn load_admin(&self, requests: &Requests) -> Result<(), Error> {
        let admin = Server::running(self.server.name(), self.admin, self.server.process_id());
        self.load_at(&admin, requests)
    }

    fn load_at(&self, server: &Server, requests: &Requests) -> Result<(), Error> {
        let load = Load { threads: 1, connections: CONNECTIONS, seconds: self.seconds };
        load.run(server, ANYWHERE, &requests.path, requests).map(drop)
    }

    /// A path by TLS: HTTP/1.1, HTTP/2, HTTP/3, and a handshake for each request. Its answer has this status, and a
    /// body of this many bytes.
    ///
    /// # Errors
    /// When a request fails.
    pub fn load_by_tls(&self, path: &str, status: u16, bytes: u64) -> Result<(), Error> {
        let streams = Streams { count: STREAMS, address: Some(self.secure), tls: true, http1: false };
        self.load(&Requests::same(path, status).by_tls(self.secure))?;
        self.load(&Requests::closing(path, status).by_tls(self.secure))?;
        self.load(&Requests::http2(path, streams, status))?;
        let request = LoadRequest::get(path, bytes).answered(status);
        let load = h3load::Load { connections: CONNECTIONS, streams: STREAMS, request };
        let loaded = load.run(self.secure, Duration::from_secs(self.seconds));
        loaded.map(drop).map_err(|what| Error::Load {
            server: self.server.name().into(),
            case: format!("HTTP/3: {path}"),
            what,
        })
    }

    /// What a path answers, with its head.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub fn get(&self, path: &str) -> Result<String, Error> {
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect(self.server.address())?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().map_err(|source| Error::Request { server: self.server.name().into(), source })
    }
}

/// Requests for these paths in turn, with further lines of a head.
pub fn in_turn(method: &str, paths: &[String], fields: &[(&str, &str)], body: &str, status: u16) -> Requests {
    let listed: String = paths.iter().map(|path| format!("'{path}',")).collect();
    let fields: String =
        fields.iter().map(|(name, value)| format!("wrk.headers['{name}'] = '{value}'\n")).collect();
    let body = if body.is_empty() { "nil".to_owned() } else { format!("[==[{body}]==]") };
    let script = format!(
        "{fields}local paths, ready, at = {{{listed}}}, {{}}, 0\n\
         function init()\n\
           for each, path in ipairs(paths) do ready[each] = wrk.format('{method}', path, nil, {body}) end\n\
         end\n\
         function request() at = at % #ready + 1; return ready[at] end\n"
    );
    Requests::scripted(paths[0].clone(), script, status)
}
