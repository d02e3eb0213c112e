//! TLS 1.3 connections with one request each: opened and closed again and again, or opened and kept.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::anybody::Anybody;
use crate::wrk::Outcome;

/// Longer than any handshake takes, so that a hanging server ends the bench.
const LATEST: Duration = Duration::from_secs(30);
/// More than the head of a redirect.
const HEAD: usize = 4096;

/// The key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Only P-256 (RFC 8446).
    P256,
    /// Only X25519 (RFC 8446).
    X25519,
    /// X25519 and ML-KEM-768, as in current browsers (draft-ietf-tls-ecdhe-mlkem).
    X25519MlKem768,
}

/// What each connection is for.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The only group it offers.
    pub group: Group,
    /// Whether it resumes an earlier session, with a fresh key exchange (`psk_dhe_ke`).
    pub resumed: bool,
    /// What it requests, with HTTP/1.1.
    pub path: String,
    /// The status of the answer, which has no body.
    pub status: u16,
}

/// Open connections.
pub struct Held(
    #[expect(dead_code, reason = "held, not used")] Vec<StreamOwned<ClientConnection, TcpStream>>,
);

impl Visit {
    /// Connects, sends a request and closes for `time`, with this many `clients` at once, each on its own thread.
    ///
    /// # Errors
    /// When a connection fails, is resumed when it shouldn't be or the other way round, or gets another answer.
    pub fn again(&self, address: SocketAddr, clients: usize, time: Duration) -> Result<Outcome, String> {
        let begun = Instant::now();
        let latencies: Result<Vec<Vec<Duration>>, String> = thread::scope(|scope| {
            let clients: Vec<_> = (0..clients)
                .map(|_| {
                    scope.spawn(|| {
                        let config = self.config();
                        let mut latencies = Vec::new();
                        // The first connection is only for the ticket of the next one.
                        if self.resumed {
                            self.once(address, &config, HandshakeKind::Full)?;
                        }
                        let kind = if self.resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
                        while begun.elapsed() < time {
                            let begun = Instant::now();
                            self.once(address, &config, kind)?;
                            latencies.push(begun.elapsed());
                        }
                        Ok(latencies)
                    })
                })
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().map_err(|_| "a client panicked".to_owned())?)
                .collect()
        });
        let mut latencies: Vec<Duration> = latencies?.into_iter().flatten().collect();
        if latencies.is_empty() {
            return Err("no connection came about".into());
        }
        latencies.sort_unstable();
        let at = |part: usize| latencies.get((latencies.len() - 1) * part / 100).copied();
        Ok(Outcome { requests: latencies.len() as u64, elapsed: begun.elapsed(), p50: at(50), p99: at(99) })
    }

    /// Opens this many connections, sends one request on each, and keeps them all.
    ///
    /// # Errors
    /// As of [`again`](Self::again).
    pub fn hold(&self, address: SocketAddr, connections: usize) -> Result<Held, String> {
        let config = self.config();
        let hold = |_| {
            let mut stream = connect(address, &config)?;
            self.ask(&mut stream, "")?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut buffer = [0; HEAD];
                let count = stream.read(&mut buffer).map_err(told)?;
                if count == 0 {
                    return Err(format!("closed after {:?}", String::from_utf8_lossy(&head)));
                }
                head.extend_from_slice(&buffer[..count]);
            }
            self.judge(&head)?;
            Ok(stream)
        };
        (0..connections).map(hold).collect::<Result<_, _>>().map(Held)
    }

    /// One connection from start to end.
    fn once(
        &self,
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        kind: HandshakeKind,
    ) -> Result<(), String> {
        let mut stream = connect(address, config)?;
        self.ask(&mut stream, "Connection: close\r\n")?;
        let mut head = Vec::with_capacity(HEAD);
        stream.read_to_end(&mut head).map_err(told)?;
        match stream.conn.handshake_kind() {
            Some(found) if found == kind => self.judge(&head),
            found => Err(format!("the handshake was {found:?}, not {kind:?}")),
        }
    }

    fn ask(&self, to: &mut impl Write, field: &str) -> Result<(), String> {
        let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n{field}\r\n", self.path);
        to.write_all(request.as_bytes()).map_err(told)
    }

    fn judge(&self, head: &[u8]) -> Result<(), String> {
        let expected = format!("HTTP/1.1 {} ", self.status);
        if head.starts_with(expected.as_bytes()) {
            return Ok(());
        }
        Err(format!("answered {:?}", String::from_utf8_lossy(head)))
    }

    fn config(&self) -> Arc<ClientConfig> {
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups = vec![match self.group {
            Group::P256 => kx_group::SECP256R1,
            Group::X25519 => kx_group::X25519,
            Group::X25519MlKem768 => kx_group::X25519MLKEM768,
        }];
        let provider = Arc::new(provider);
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if !self.resumed {
            config.resumption = Resumption::disabled();
        }
        Arc::new(config)
    }
}

fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let name = ServerName::try_from("localhost").map_err(told)?;
    let session = ClientConnection::new(Arc::clone(config), name).map_err(told)?;
    let socket = TcpStream::connect_timeout(&address, LATEST).map_err(told)?;
    socket.set_nodelay(true).map_err(told)?;
    socket.set_read_timeout(Some(LATEST)).map_err(told)?;
    Ok(StreamOwned::new(session, socket))
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
