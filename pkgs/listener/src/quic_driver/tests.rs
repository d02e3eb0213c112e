//! The driver, with a client of quinn and a socket that does as told.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Runtime as _, TokioRuntime};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{EndpointConfig, ServerConfig, VarInt};

use super::*;

const MUCH: usize = 2 << 20;

/// A socket on loopback.
#[derive(Debug)]
struct Wire {
    socket: Arc<dyn AsyncUdpSocket>,
    /// Calls so far.
    calls: AtomicUsize,
    /// The most datagrams of one.
    most: AtomicUsize,
    /// Whether every second call is refused at first.
    narrow: AtomicBool,
    /// Whether it receives nothing but an error.
    broken: AtomicBool,
}

/// Writable when it is asked again.
struct Poller(bool);

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poller")
    }
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0 = !self.0;
        if self.0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for Wire {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller(false))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let calls = self.calls.fetch_add(1, Relaxed);
        if self.narrow.load(Relaxed) && calls.is_multiple_of(2) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let size = transmit.segment_size.unwrap_or(transmit.contents.len());
        assert!(transmit.contents.len() <= MOST_BYTES);
        self.most.fetch_max(transmit.contents.len().div_ceil(size), Relaxed);
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = ready!(self.socket.poll_recv(cx, bufs, metas));
        Poll::Ready(if self.broken.load(Relaxed) { Err(io::Error::other("broken")) } else { received })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

/// A server, and a client that trusts it.
struct Pair {
    wire: Arc<Wire>,
    endpoint: Endpoint,
    driver: Driver,
    client: quinn::Endpoint,
    /// The client's.
    config: quinn::ClientConfig,
}

impl Pair {
    fn new() -> Self {
        let bound = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let wire = Arc::new(Wire {
            socket: TokioRuntime.wrap_udp_socket(bound).expect("a runtime"),
            calls: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            narrow: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        });
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let certificate = made.cert.der().clone();
        let key = made.signing_key.serialize_der().try_into().expect("a key");
        let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("they match");
        let crypto = QuicServerConfig::try_from(server).expect("TLS 1.3");
        let config = ServerConfig::with_crypto(Arc::new(crypto));
        let (endpoint, driver) = Endpoint::new(EndpointConfig::default(), config, wire.clone());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let client = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port");
        let config = quinn::ClientConfig::new(Arc::new(tls));
        Self { wire, endpoint, driver, client, config }
    }

    fn connect(&self) -> quinn::Connecting {
        let server = self.endpoint.local_addr().expect("bound");
        self.client.connect_with(self.config.clone(), server, "localhost").expect("a name")
    }

    /// Runs the driver beside this, which gets the endpoint and the client's connection. Returns the driver.
    async fn run<F: Future>(self, with: impl FnOnce(Arc<Wire>, Endpoint, quinn::Connecting) -> F) -> Driver {
        let connecting = self.connect();
        let Self { wire, endpoint, mut driver, .. } = self;
        let mut scenario =
            Box::pin(tokio::time::timeout(Duration::from_secs(60), with(wire, endpoint, connecting)));
        poll_fn(|cx| {
            if scenario.as_mut().poll(cx).map(|ended| ended.expect("it ends")).is_ready() {
                return Poll::Ready(());
            }
            assert!(driver.poll_round(cx).is_pending(), "the socket works");
            Poll::Pending
        })
        .await;
        driver
    }
}

/// Accepts a connection, and its first stream.
async fn accepted(endpoint: &Endpoint) -> (Connection, SendStream, RecvStream) {
    let incoming = endpoint.accept().await.expect("a client");
    let connection = incoming.accept().expect("it may").await.expect("a handshake");
    let (send, receive) = poll_fn(|cx| connection.poll_accept_bi(cx)).await.expect("a stream");
    (connection, send, receive)
}

/// Returns what it receives.
async fn echo(endpoint: &Endpoint) -> Connection {
    let (connection, mut send, mut receive) = accepted(endpoint).await;
    let mut pieces = [const { Bytes::new() }; 4];
    while poll_fn(|cx| receive.poll_read(cx, &mut pieces)).await.expect("received") > 0 {
        poll_fn(|cx| send.poll_write(cx, &mut pieces)).await.expect("sent");
    }
    connection
}

/// Sends much, and checks what comes back.
async fn ask(connecting: quinn::Connecting) -> quinn::Connection {
    let connection = connecting.await.expect("a handshake");
    let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
    let much: Vec<u8> = (0..MUCH).map(|at| (at / 7) as u8).collect();
    let sending = async {
        send.write_all(&much).await.expect("sent");
        send.finish().expect("open");
    };
    let ((), received) = tokio::join!(sending, receive.read_to_end(MUCH));
    assert!(received.expect("received") == much);
    connection
}

#[test]
fn few_datagrams_share_an_allocation() {
    for (datagrams, stride, expected) in [
        (65_000, 1_452, 5 * 1_452),
        (1_452, 1_452, 1_452),
        (1_000, 1_452, 1_000),
        (4_000, 40, 4_000),
        (18_000, 9_000, 9_000),
        (3, 0, 3),
    ] {
        let received = vec![7; datagrams];
        let lengths: Vec<_> = allocations(&received, stride).map(<[u8]>::len).collect();
        assert_eq!((lengths[0], lengths.iter().sum::<usize>()), (expected, datagrams), "{stride}");
        let others = &lengths[..lengths.len() - 1];
        assert!(others.iter().all(|length| length.is_multiple_of(stride.max(1))), "{lengths:?} of {stride}");
    }
    assert_eq!(allocations(&[], 1_452).count(), 0);
}

#[tokio::test]
async fn much_leaves_in_large_calls() {
    Pair::new()
        .run(async |wire, endpoint, connecting| {
            tokio::join!(echo(&endpoint), ask(connecting));
            let (calls, most) = (wire.calls.load(Relaxed), wire.most.load(Relaxed));
            // quinn's are of ten.
            assert!(most > 10, "{most} of {calls}");
        })
        .await;
}

#[tokio::test]
async fn what_the_socket_does_not_take_is_sent_later() {
    Pair::new()
        .run(async |wire, endpoint, connecting| {
            wire.narrow.store(true, Relaxed);
            tokio::join!(echo(&endpoint), ask(connecting));
        })
        .await;
}

#[tokio::test]
async fn a_connection_without_handles_is_closed_and_forgotten() {
    let driver = Pair::new()
        .run(async |_, endpoint, connecting| {
            let (served, client) = tokio::join!(echo(&endpoint), ask(connecting));
            drop(served);
            let closed = client.closed().await;
            let code = VarInt::from_u32(0);
            assert!(
                matches!(&closed, quinn::ConnectionError::ApplicationClosed(close) if close.error_code == code),
                "{closed}"
            );
            endpoint.wait_idle().await;
        })
        .await;
    assert!(driver.timers.is_empty());
    assert!(lock(&driver.shared.state).connections.is_empty());
}

#[tokio::test]
async fn a_client_that_is_silent_is_forgotten_in_time() {
    let mut pair = Pair::new();
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(Duration::from_secs(3).try_into().expect("short")));
    pair.config.transport_config(Arc::new(transport));
    let driver = pair
        .run(async |_, endpoint, connecting| {
            let (client, (_connection, _send, mut receive)) = tokio::join!(
                async {
                    let connection = connecting.await.expect("a handshake");
                    let (mut send, receive) = connection.open_bi().await.expect("a stream");
                    send.write_all(b"x").await.expect("sent");
                    (connection, send, receive)
                },
                accepted(&endpoint)
            );
            let mut piece = [Bytes::new()];
            assert!(matches!(poll_fn(|cx| receive.poll_read(cx, &mut piece)).await, Ok(1)));
            let read = poll_fn(|cx| receive.poll_read(cx, &mut piece)).await;
            let timed_out = quinn_proto::ConnectionError::TimedOut;
            assert!(matches!(&read, Err(ReadError::Lost(error)) if *error == timed_out), "{read:?}");
            endpoint.wait_idle().await;
            drop(client);
        })
        .await;
    assert!(driver.timers.is_empty());
    assert!(lock(&driver.shared.state).connections.is_empty());
}

#[tokio::test]
async fn everybody_hears_of_a_socket_that_has_failed() {
    let pair = Pair::new();
    let connecting = pair.connect();
    let Pair { wire, endpoint, driver, client: _client, .. } = pair;
    let driving = tokio::spawn(driver.run());
    let (connection, client) = tokio::join!(echo(&endpoint), ask(connecting));
    wire.broken.store(true, Relaxed);
    client.close(VarInt::from_u32(1), b"");
    driving.await.expect("it ends");
    assert!(endpoint.accept().await.is_none());
    endpoint.wait_idle().await;
    let lost = poll_fn(|cx| connection.poll_accept_bi(cx)).await.expect_err("there is no other stream");
    assert!(matches!(lost, quinn_proto::ConnectionError::TransportError(_)), "{lost}");
}
