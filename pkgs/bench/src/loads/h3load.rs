//! A bounded load over HTTP/3, which Debian's h2load doesn't speak.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::{Method, Request};
use quinn::crypto::rustls::QuicClientConfig;
use tokio::task::JoinSet;

use crate::anybody::Anybody;
use crate::wrk;

/// How many bytes of a request's body h3 gets at a time.
const PIECE: usize = 64 * 1024;
/// Longer than any request takes, so that a hanging server ends the bench.
const LATEST: Duration = Duration::from_secs(30);

/// What is requested again and again.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    method: Method,
    path: String,
    /// The size of the request's body, in bytes.
    sent: u64,
    /// The size of the response's body in bytes, if it is given.
    expected: Option<u64>,
    status: u16,
}

impl LoadRequest {
    /// A `GET` whose answer has this many bytes.
    pub fn get(path: &str, expected: u64) -> Self {
        Self { method: Method::GET, path: path.into(), sent: 0, expected: Some(expected), status: 200 }
    }

    /// A `POST` with this many bytes.
    pub fn post(path: &str, sent: u64) -> Self {
        Self { method: Method::POST, path: path.into(), sent, expected: None, status: 200 }
    }

    /// The same, answered with a status other than 200.
    #[must_use]
    pub fn answered(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

/// How it is requested.
#[derive(Clone, Debug)]
pub struct Load {
    /// Connections.
    pub connections: usize,
    /// Requests in flight at once on each.
    pub streams: usize,
    /// What they request.
    pub request: LoadRequest,
}

/// The result of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Requests answered as expected; others end the load.
    pub requests: u64,
    /// From the first to the last.
    pub elapsed: Duration,
    latencies: Vec<Duration>,
}

impl Outcome {
    /// A latency, in microseconds.
    pub fn percentile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * part) as usize).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }

    /// The summary that every load has.
    pub fn summary(&self) -> wrk::Outcome {
        let at =
            |part: usize| self.latencies.get(self.latencies.len().saturating_sub(1) * part / 100).copied();
        wrk::Outcome { requests: self.requests, elapsed: self.elapsed, p50: at(50), p99: at(99) }
    }
}

impl Load {
    /// Sends requests for `time`.
    ///
    /// # Errors
    /// When a connection fails, or an answer isn't the expected one.
    pub fn run(&self, address: SocketAddr, time: Duration) -> Result<Outcome, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(told)?;
        runtime
            .block_on(async { tokio::time::timeout(time + LATEST, self.ask(address, time)).await })
            .map_err(told)?
    }

    async fn ask(&self, address: SocketAddr, time: Duration) -> Result<Outcome, String> {
        let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).map_err(told)?;
        let mut senders = Vec::new();
        for _ in 0..self.connections {
            let connecting = endpoint.connect_with(config(), address, "localhost").map_err(told)?;
            let connection = h3_quinn::Connection::new(connecting.await.map_err(told)?);
            let (mut driver, sender) = h3::client::new(connection).await.map_err(told)?;
            tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
            senders.push(sender);
        }
        let begun = Instant::now();
        let until = begun + time;
        let mut asking = JoinSet::new();
        for sender in &senders {
            for _ in 0..self.streams {
                asking.spawn(again(sender.clone(), self.request.clone(), until));
            }
        }
        let mut outcome = Outcome::default();
        while let Some(ended) = asking.join_next().await {
            outcome.latencies.extend(ended.map_err(told)??);
        }
        outcome.elapsed = begun.elapsed();
        outcome.requests = outcome.latencies.len() as u64;
        outcome.latencies.sort_unstable();
        Ok(outcome)
    }
}

type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

async fn again(mut sender: Sender, wanted: LoadRequest, until: Instant) -> Result<Vec<Duration>, String> {
    static BODY: [u8; PIECE] = [b'0'; PIECE];
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        let request = Request::builder()
            .method(wanted.method.clone())
            .uri(format!("https://localhost{}", wanted.path))
            .body(())
            .map_err(told)?;
        let mut stream = sender.send_request(request).await.map_err(told)?;
        let mut left = wanted.sent;
        while left > 0 {
            let count = left.min(PIECE as u64);
            stream.send_data(Bytes::from_static(&BODY[..count as usize])).await.map_err(told)?;
            left -= count;
        }
        stream.finish().await.map_err(told)?;
        let response = stream.recv_response().await.map_err(told)?;
        let mut received = 0;
        while let Some(data) = stream.recv_data().await.map_err(told)? {
            received += data.remaining() as u64;
        }
        if response.status() != wanted.status || wanted.expected.is_some_and(|expected| expected != received)
        {
            return Err(format!("{} with {received} bytes", response.status()));
        }
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn config() -> quinn::ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS 1.3")));
    let mut transport = quinn::TransportConfig::default();
    transport.stream_receive_window((4_u32 << 20).into()).receive_window((16_u32 << 20).into());
    config.transport_config(Arc::new(transport));
    config
}
