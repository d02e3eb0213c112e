//! The server for interoperability tests: whatever answers clients may need, with limits that the tests choose.
//!
//! - `/`: `Hello, World!`
//! - `/echo`: the request's body and trailers, as they arrive
//! - `/read`: how many bytes the request's body had, once it has ended; its error's status if it is invalid
//! - `/read/N`: the same, but N bytes
//! - `/bytes/N`: N bytes
//! - `/made`: how many bytes were made for `/bytes` so far
//! - `/wait/MS`: `waited` after this many milliseconds
//! - `/drip/N/MS`: N lines, one every MS milliseconds, and a trailer
//! - `/peer`: the protocol and the peer
//! - `/metrics`: the listener's metrics
//! - `/panic`, `/panic/later`, `/panic/body`: a panic at once, after a wait, and in the middle of the response
//! - `/hang`: nothing, while its worker does nothing else
//! - `/die`: nothing, and the next connection ends the worker that accepts it
//!
//! With `--fast`, a fast path answers `/`, `/bytes/N` and `/panic/at-once`, and adds a header `fast`.

use std::convert::Infallible;
use std::num::NonZero;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use listener::{
    Body, CertificateFiles, Config, Endpoint, Exchange, FastAnswer, FastPath, Listener, Peer, Tls,
    WithFastPath, body,
};
use request_head::{Framing, Lines, Message};
use service::handover::{HandoverArgs, Takeover};
use service::logs::{self, Format, LogArgs};
use service::metrics::{self, Registry};
use service::shutdown::Shutdown;
use service::socket::Address;
use service::{panics, ready};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Arguments {
    /// Where to listen in the clear
    #[arg(long)]
    listen: Vec<Address>,

    /// Where to listen with TLS, for HTTP/3 too
    #[arg(long, requires_all = ["certificate", "key"])]
    listen_tls: Vec<Address>,

    /// Certificate chain in PEM; the first of several is for clients that name no host of theirs
    #[arg(long)]
    certificate: Vec<PathBuf>,

    /// Private key in PEM, for each chain
    #[arg(long)]
    key: Vec<PathBuf>,

    /// Seconds after which the key for session tickets is replaced
    #[arg(long)]
    ticket_key: Option<u64>,

    /// Workers, one for each CPU unless given
    #[arg(long)]
    workers: Option<NonZero<usize>>,

    /// Connections of all clients together
    #[arg(long)]
    connections: Option<usize>,

    /// Connections of one address
    #[arg(long)]
    connections_per_address: Option<u32>,

    /// Bytes of a request body
    #[arg(long)]
    body_bytes: Option<u64>,

    /// Bytes of the request bodies of all clients together
    #[arg(long)]
    body_bytes_total: Option<u64>,

    /// Bytes of answers that wait for all clients together
    #[arg(long)]
    answer_bytes_total: Option<u64>,

    /// Milliseconds for a request body in all
    #[arg(long)]
    body_time: Option<u64>,

    /// Milliseconds for a head, for a pause in a body or in a response that is taken, for a connection without
    /// a request, and for a handshake
    #[arg(long)]
    patience: Option<u64>,

    /// Answer plain requests by a fast path
    #[arg(long)]
    fast: bool,

    /// Whom to take over from
    #[command(flatten)]
    handover: HandoverArgs,

    /// Milliseconds for requests in flight when told to stop
    #[arg(long)]
    drain: Option<u64>,

    /// Milliseconds for connections without a request when told to stop
    #[arg(long)]
    drain_grace: Option<u64>,

    /// Milliseconds without a sign of life after which a worker is stuck, of which the watchdog is told
    #[arg(long)]
    stuck: Option<u64>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    logs::init(&LogArgs { log_level: "info".into(), log_format: Format::Text });
    panics::install();
    let mut files = arguments.certificate.into_iter().zip(arguments.key);
    let tls = files.next().map(|(chain, key)| {
        let mut tls = Tls::new(chain, key);
        tls.certificates.extend(files.map(|(chain, key)| CertificateFiles { chain, key }));
        tls.ticket_key = arguments.ticket_key.map_or(tls.ticket_key, Duration::from_secs);
        tls
    });
    let clear = arguments.listen.into_iter().map(Endpoint::h2c);
    let mut config = Config {
        endpoints: clear.chain(arguments.listen_tls.into_iter().map(Endpoint::tls)).collect(),
        workers: arguments.workers,
        tls,
        http3: true,
        ..Config::default()
    };
    let limits = &mut config.limits;
    limits.connections = arguments.connections.unwrap_or(limits.connections);
    limits.connections_per_address =
        arguments.connections_per_address.unwrap_or(limits.connections_per_address);
    limits.body_bytes = arguments.body_bytes.unwrap_or(limits.body_bytes);
    limits.body_bytes_total = arguments.body_bytes_total.unwrap_or(limits.body_bytes_total);
    limits.answer_bytes_total = arguments.answer_bytes_total.unwrap_or(limits.answer_bytes_total);
    limits.body_time = arguments.body_time.map_or(limits.body_time, Duration::from_millis);
    if let Some(patience) = arguments.patience.map(Duration::from_millis) {
        limits.head_time = patience;
        limits.body_idle = patience;
        limits.write_stall = patience;
        limits.idle = patience;
        limits.handshake_time = patience;
    }
    config.drain = arguments.drain.map_or(config.drain, Duration::from_millis);
    config.drain_grace = arguments.drain_grace.map_or(config.drain_grace, Duration::from_millis);
    let takeover = Takeover::begin(&arguments.handover, "interop")?;
    let listener = Listener::new(config)?;
    let certificates = listener.certificates().cloned();
    let shutdown = Shutdown::on_signals_and_hangup(move || {
        if let Some(Err(error)) = certificates.as_ref().map(|store| store.reload()) {
            eprintln!("error: {error}");
        }
    })?;
    takeover.complete(&shutdown)?;
    // Whoever reads them may send signals.
    for address in listener.addresses() {
        println!("{address}");
    }
    let mut registry = Registry::default();
    listener.metrics().register(&mut registry, "interop");
    panics::register(&mut registry, "panics");
    let stuck = arguments.stuck.map_or(ready::STUCK, Duration::from_millis);
    let mut workers = listener.heartbeats().watch(stuck);
    ready::watchdog(move || {
        let alive = workers.alive();
        if !alive {
            eprintln!("stuck");
        }
        alive
    })?;
    let service = Server(Arc::new(registry));
    if arguments.fast {
        listener.serve(WithFastPath { service, fast: Fast }, shutdown)?;
    } else {
        listener.serve(service, shutdown)?;
    }
    Ok(())
}

/// Answers at once.
#[derive(Clone)]
struct Fast;

impl FastPath for Fast {
    fn answer(
        &mut self,
        head: &Lines<'_, '_>,
        exchange: &Exchange<'_>,
        out: &mut Vec<u8>,
    ) -> Option<FastAnswer> {
        let mut message = Message::new(head.old);
        for field in head.fields {
            message.takes(field.name, field.value).ok()?;
        }
        let message = message.settle().ok().filter(|message| message.framing == Framing::Length(0))?;
        let (body, apart) = match head.target.split('/').skip(1).collect::<Vec<_>>()[..] {
            [""] => (b"Hello, World!".to_vec(), false),
            ["bytes", count] => (vec![b'0'; count.parse().ok()?], true),
            ["panic", "at-once"] => {
                out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
                panic!("at once")
            }
            _ => return None,
        };
        let connection = exchange.connection(message.keep_alive);
        out.extend_from_slice(
            format!("HTTP/1.1 200 OK\r\nfast: 1\r\ncontent-length: {}\r\n", body.len()).as_bytes(),
        );
        exchange.end(out, connection);
        match head.method {
            "GET" if apart => return Some(FastAnswer { connection, body: body.into() }),
            "GET" => out.extend_from_slice(&body),
            _ => {}
        }
        Some(connection.into())
    }
}

struct Server(Arc<Registry>);

/// Whether services are no longer available.
static DEAD: AtomicBool = AtomicBool::new(false);

impl Clone for Server {
    fn clone(&self) -> Self {
        assert!(!DEAD.load(Relaxed), "nobody can be served");
        Self(Arc::clone(&self.0))
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

impl tower_service::Service<Request<Body>> for Server {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let registry = Arc::clone(&self.0);
        Box::pin(async move { Ok(answer(request, &registry).await) })
    }
}

async fn answer(request: Request<Body>, registry: &Registry) -> Response<Answer> {
    let path = request.uri().path().to_owned();
    let mut parts = path.split('/').skip(1);
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
    match path.split('/').nth(1).unwrap_or_default() {
        "" => Response::new(Answer::text("Hello, World!")),
        "echo" => Response::new(Answer::Echo(request.into_body())),
        "made" => Response::new(Answer::text(&MADE.load(Relaxed).to_string())),
        "metrics" => Response::new(Answer::text(&metrics::encode(registry))),
        "peer" => {
            let peer = request.extensions().get::<Peer>().expect("every request has one");
            let remote = peer.remote.map_or_else(|| "nobody".to_owned(), |remote| remote.to_string());
            Response::new(Answer::text(&format!("{} {remote}", peer.protocol.label())))
        }
        "panic" => match path.as_str() {
            "/panic/later" => {
                sleep(Duration::from_millis(1)).await;
                panic!("later")
            }
            "/panic/body" => Response::new(Answer::Panic(false)),
            _ => panic!("at once"),
        },
        "hang" => loop {
            std::thread::park();
        },
        "die" => {
            DEAD.store(true, Relaxed);
            Response::new(Answer::text(""))
        }
        kind => match (kind, (number(), number(), number())) {
            ("read", (None, None, None)) => match read(request.into_body()).await {
                Ok(count) => Response::new(Answer::text(&count.to_string())),
                Err(why) => status(why),
            },
            ("read", (None, Some(count), None)) => match read(request.into_body()).await {
                Ok(_) => Response::new(Answer::Bytes(count)),
                Err(why) => status(why),
            },
            ("bytes", (None, Some(count), None)) => Response::new(Answer::Bytes(count)),
            ("wait", (None, Some(time), None)) => {
                sleep(Duration::from_millis(time)).await;
                Response::new(Answer::text("waited"))
            }
            ("drip", (None, Some(left), Some(pause))) => {
                let pause = Duration::from_millis(pause);
                Response::new(Answer::Drip { left: Some(left), pause, next: Box::pin(sleep(pause)) })
            }
            _ => status(StatusCode::NOT_FOUND),
        },
    }
}

/// The length of a body, or the status for what is wrong with it.
async fn read(mut body: Body) -> Result<usize, StatusCode> {
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error {
            body::Error::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            body::Error::Idle(_) | body::Error::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        })?;
        count += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(count)
}

fn status(status: StatusCode) -> Response<Answer> {
    let mut response = Response::new(Answer::text(""));
    *response.status_mut() = status;
    response
}

/// The body of a response.
enum Answer {
    Text(Bytes),
    Echo(Body),
    /// This many more bytes.
    Bytes(u64),
    /// A piece and, once that is sent, a panic.
    Panic(bool),
    /// This many more lines, then the trailer.
    Drip {
        left: Option<u64>,
        pause: Duration,
        next: Pin<Box<Sleep>>,
    },
}

/// The content of `/bytes`.
static ZEROS: [u8; 64 * 1024] = [b'0'; 64 * 1024];

/// How much of it was made.
static MADE: AtomicU64 = AtomicU64::new(0);

impl Answer {
    fn text(text: &str) -> Self {
        Self::Text(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = body::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, body::Error>>> {
        let data = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        match self.get_mut() {
            Self::Text(text) if text.is_empty() => Poll::Ready(None),
            Self::Text(text) => data(std::mem::take(text)),
            Self::Echo(body) => Pin::new(body).poll_frame(context),
            Self::Panic(sent) => {
                assert!(!std::mem::replace(sent, true), "amidst");
                data(Bytes::from_static(b"begun"))
            }
            Self::Bytes(0) => Poll::Ready(None),
            Self::Bytes(left) => {
                let count = (*left).min(ZEROS.len() as u64);
                *left -= count;
                MADE.fetch_add(count, Relaxed);
                data(Bytes::from_static(&ZEROS[..count as usize]))
            }
            Self::Drip { left, pause, next } => match left {
                None => Poll::Ready(None),
                Some(0) => {
                    *left = None;
                    let trailers = HeaderMap::from_iter([(
                        http::HeaderName::from_static("dripped"),
                        HeaderValue::from_static("all"),
                    )]);
                    Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                }
                Some(count) => {
                    ready!(next.as_mut().poll(context));
                    *next = Box::pin(sleep_until(Instant::now() + *pause));
                    *count -= 1;
                    data(Bytes::from_static(b"drop\n"))
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Echo(body) => body.is_end_stream(),
            Self::Bytes(left) => *left == 0,
            Self::Panic(_) => false,
            Self::Drip { left, .. } => left.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Echo(body) => body.size_hint(),
            Self::Bytes(left) => SizeHint::with_exact(*left),
            Self::Panic(_) | Self::Drip { .. } => SizeHint::default(),
        }
    }
}
