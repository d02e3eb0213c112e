//! A listener in this process, and clients that send raw bytes.

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use listener::metrics::Metrics;
use listener::{Body, BoxError, Config, Endpoint, FastPath, HttpService, Listener, Peer, WithFastPath};
use service::shutdown::Shutdown;
use service::socket::Address;

use crate::fast_path;

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running listener; drained when dropped.
pub struct Server {
    pub address: SocketAddr,
    pub metrics: Metrics,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a listener on an address that the kernel chooses, with two workers.
    pub fn start(endpoint: impl Fn(Address) -> Endpoint, config: Config) -> Self {
        let endpoints = vec![endpoint("127.0.0.1:0".parse().expect("an address"))];
        Self::run(Config { endpoints, workers: NonZero::new(2), ..config })
    }

    /// The same with a fast path beside the service.
    pub fn start_beside(fast: impl FastPath, config: Config) -> Self {
        let endpoints = vec![Endpoint::h2c("127.0.0.1:0".parse().expect("an address"))];
        let workers = NonZero::new(2);
        Self::serve(Config { endpoints, workers, ..config }, WithFastPath { service: Service, fast })
    }

    /// Starts one with this `config`.
    pub fn run(config: Config) -> Self {
        Self::serve(config, Service)
    }

    /// Starts one for HTTP/2 without TLS, behind a pointer.
    pub fn start_boxed() -> Self {
        let endpoints = vec![Endpoint::h2c("127.0.0.1:0".parse().expect("an address"))];
        Self::begin(Config { endpoints, workers: NonZero::new(2), ..Config::default() }, |listener, stop| {
            listener.start_boxed("boxed", Service, &stop).expect("a thread")
        })
    }

    fn serve(config: Config, service: impl HttpService) -> Self {
        Self::begin(config, |listener, stop| {
            std::thread::spawn(move || listener.serve(service, stop).expect("it serves"))
        })
    }

    fn begin(config: Config, serve: impl FnOnce(Listener, Shutdown) -> JoinHandle<()>) -> Self {
        let listener = Listener::new(config).expect("it listens");
        let address = match &listener.addresses()[0] {
            Address::Tcp(address) => *address,
            // TCP clients can't use it.
            _ => "127.0.0.1:0".parse().expect("an address"),
        };
        let (metrics, shutdown) = (listener.metrics().clone(), Shutdown::new());
        let thread = serve(listener, shutdown.clone());
        Self { address, metrics, shutdown, thread: Some(thread) }
    }

    /// A connection to it.
    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Tells it to stop.
    pub fn stop(&self) {
        self.shutdown.trigger();
    }

    /// Waits for its end, which somebody has requested.
    pub fn wait(mut self) {
        self.thread.take().expect("it runs").join().expect("no panic");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.trigger();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client that sends and reads bytes. It isn't testkit's, which reads ahead, while these tests continue with the
/// socket itself: with a second descriptor, without blocking, or in frames.
pub struct Client(pub TcpStream);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self(stream)
    }

    /// Sends everything; the answer shows any error.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.0.write_all(bytes.as_ref());
        self
    }

    /// The head of an answer; its body is skipped.
    pub fn head(&mut self) -> String {
        self.read().0
    }

    /// One answer: status and body.
    pub fn answer(&mut self) -> (u16, String) {
        let (head, body) = self.read();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body)
    }

    /// Head and body of an answer that has a `content-length` or no body.
    fn read(&mut self) -> (String, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("an answer");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().expect("a number"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        (head, String::from_utf8(body).expect("text"))
    }

    /// Reads until `text` has arrived, and returns everything received.
    pub fn until(&mut self, text: &[u8]) -> Vec<u8> {
        let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
        while !read.windows(text.len()).any(|part| part == text) {
            let count = self.0.read(&mut buffer).expect("more");
            assert!(count > 0, "closed: {}", read.escape_ascii());
            read.extend_from_slice(&buffer[..count]);
        }
        read
    }

    /// Everything until the server closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}: {rest:?}"),
            _ => rest,
        }
    }

    /// The same as text.
    pub fn text(&mut self) -> String {
        String::from_utf8(self.rest()).expect("text")
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The service.
#[derive(Clone)]
pub struct Service;

impl tower_service::Service<Request<Body>> for Service {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(answer(request).await) })
    }
}

async fn answer(request: Request<Body>) -> Answer {
    let text = |text: String| Full::from(text).map_err(|never| match never {}).boxed_unsync();
    match request.uri().path() {
        "/" => Response::new(text("Hello, World!".into())),
        "/who" => {
            let peer = request.extensions().get::<Peer>().expect("every request has one");
            let client = peer.client(request.headers());
            Response::new(text(format!("{:?} {:?} {client:?}", peer.remote, peer.local)))
        }
        "/echo" => Response::new(request.into_body().map_err(Into::into).boxed_unsync()),
        "/read" => match request.into_body().collect().await {
            Ok(body) => Response::new(text(format!("{} bytes", body.to_bytes().len()))),
            Err(error) => Response::new(text(error.to_string())),
        },
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(700)).await;
            Response::new(text("slow".into()))
        }
        // The same as the tests' fast path.
        path if path.starts_with("/fast") => Response::new(text(fast_path::body(&path["/fast".len()..]))),
        path if path.starts_with("/sized/") => {
            Response::new(text("x".repeat(path["/sized/".len()..].parse().expect("a size"))))
        }
        "/large" => Response::new(text("x".repeat(64 << 20))),
        _ => {
            let mut response = Response::new(text("no such thing".into()));
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}
