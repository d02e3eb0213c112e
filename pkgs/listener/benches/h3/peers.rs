//! The listener with HTTP/3, and its peers. All but Caddy are in the bench's own executable.

use std::convert::Infallible;
use std::env;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::routing::{get, post};
use bench::server::{Placement, Server, free_address};
use bench::{Error, certificate};
use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use listener::{Body, Config, Endpoint, Listener, Tls};
use quinn::crypto::rustls::QuicServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use service::shutdown::Shutdown;
use service::socket::Address;
use tower_service::Service as _;

pub const ANSWER: &str = "Hello, World!";
/// The path of a large body.
pub const LARGE_PATH: &str = "/large";

pub const OURS: &str = "linerate";
pub const OURS_AXUM: &str = "linerate + axum";
pub const NAIVE: &str = "quinn + h3 + axum";
pub const CADDY: &str = "Caddy";

/// The word that turns the bench's executable into a peer: `peer NAME CLEAR SECURE DIRECTORY`.
const PEER: &str = "peer";

/// A running server.
pub struct Peer {
    server: Server,
    secure: SocketAddr,
}

impl Peer {
    /// Starts the peer with this name, with its certificate in `directory`.
    pub fn start(name: &'static str, placement: Placement, directory: &Path) -> Result<Self, Error> {
        certify(directory)?;
        let (clear, secure) = (free_address()?, free_address()?);
        let mut command = placement.command(env::current_exe()?);
        command.args([PEER, name, &clear.to_string(), &secure.to_string()]).arg(directory);
        Ok(Self { server: Server::start(name, clear, &mut command)?, secure })
    }

    /// Starts Caddy on as many CPUs, with a file of this many bytes.
    pub fn caddy(program: &Path, placement: Placement, directory: &Path, large: u64) -> Result<Self, Error> {
        certify(directory)?;
        let (clear, secure) = (free_address()?, free_address()?);
        let file = directory.join(LARGE_PATH.trim_start_matches('/'));
        fs::write(&file, vec![b'0'; large as usize]).map_err(Error::file(&file))?;
        let site = format!(
            "{{\n admin off\n auto_https off\n}}\n\
             http://{clear} {{\n respond \"{ANSWER}\"\n}}\n\
             https://localhost:{} {{\n bind 127.0.0.1\n tls {} {}\n root * {}\n file_server\n respond / \"{ANSWER}\"\n}}\n",
            secure.port(),
            directory.join("chain.pem").display(),
            directory.join("key.pem").display(),
            directory.display(),
        );
        let file = directory.join("Caddyfile");
        fs::write(&file, site).map_err(Error::file(&file))?;
        let mut command = placement.command(program);
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
        command.env("GOMAXPROCS", placement.workers.to_string()).env("XDG_DATA_HOME", directory);
        Ok(Self { server: Server::start(CADDY, clear, &mut command)?, secure })
    }

    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        self.server.name()
    }

    /// Its process.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its address for HTTP/3.
    pub fn address(&self) -> SocketAddr {
        self.secure
    }
}

/// Makes a certificate for `localhost` in `directory` if there is none.
fn certify(directory: &Path) -> Result<(), Error> {
    if directory.join(certificate::CHAIN).exists() {
        return Ok(());
    }
    certificate::make(directory)
}

/// Serves as a peer if the command line says so.
pub fn serve_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, name, clear, secure, directory] = arguments.as_slice() else { return None };
    if word != PEER {
        return None;
    }
    let (clear, secure, directory) = (clear.parse().ok()?, secure.parse().ok()?, Path::new(directory));
    let served = match name.as_str() {
        OURS => ours(Plain, clear, secure, directory),
        OURS_AXUM => ours(router(), clear, secure, directory),
        NAIVE => naive(clear, secure, directory),
        _ => return None,
    };
    Some(match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn ours(
    service: impl listener::HttpService,
    clear: SocketAddr,
    secure: SocketAddr,
    directory: &Path,
) -> io::Result<()> {
    let mut config = Config {
        endpoints: vec![Endpoint::plain(Address::Tcp(clear)), Endpoint::tls(Address::Tcp(secure))],
        workers: NonZero::new(1),
        tls: Some(Tls::new(directory.join("chain.pem"), directory.join("key.pem"))),
        http3: true,
        ..Config::default()
    };
    config.limits.body_bytes = u64::MAX;
    let listener = Listener::new(config).map_err(io::Error::other)?;
    listener.serve(service, Shutdown::on_signals()?).map_err(io::Error::other)
}

/// A service that does as little as possible.
#[derive(Clone)]
struct Plain;

impl tower_service::Service<Request<Body>> for Plain {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move {
            Ok(Response::new(match request.uri().path() {
                LARGE_PATH => Answer(Left::Large(super::LARGE)),
                "/read" => Answer(Left::Text(read(request.into_body()).await.into())),
                _ => Answer(Left::Text(Bytes::from_static(ANSWER.as_bytes()))),
            }))
        })
    }
}

fn router() -> Router {
    Router::new()
        .route("/", get(|| async { ANSWER }))
        .route(LARGE_PATH, get(|| async { axum::body::Body::new(Answer(Left::Large(super::LARGE))) }))
        .route("/read", post(|request: axum::extract::Request| read(request.into_body())))
}

async fn read<B: http_body::Body<Data = Bytes> + Unpin>(mut body: B) -> String {
    let mut count = 0;
    while let Some(Ok(frame)) = body.frame().await {
        count += frame.data_ref().map_or(0, Bytes::len);
    }
    count.to_string()
}

/// A response's body.
struct Answer(Left);

enum Left {
    Text(Bytes),
    Large(u64),
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static ZEROS: [u8; 64 * 1024] = [b'0'; 64 * 1024];
        Poll::Ready(match &mut self.get_mut().0 {
            Left::Text(text) if text.is_empty() => None,
            Left::Text(text) => Some(Ok(Frame::data(std::mem::take(text)))),
            Left::Large(0) => None,
            Left::Large(left) => {
                let count = (*left).min(ZEROS.len() as u64);
                *left -= count;
                Some(Ok(Frame::data(Bytes::from_static(&ZEROS[..count as usize]))))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match &self.0 {
            Left::Text(text) => text.len() as u64,
            Left::Large(left) => *left,
        })
    }
}

/// quinn, h3-quinn, h3 and axum combined as in their examples, with their defaults.
fn naive(clear: SocketAddr, secure: SocketAddr, directory: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let tcp = tokio::net::TcpListener::bind(clear).await?;
        tokio::spawn(async move { axum::serve(tcp, router()).await });
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = CertificateDer::pem_file_iter(directory.join("chain.pem"))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(io::Error::other)?;
        let key = PrivateKeyDer::from_pem_file(directory.join("key.pem")).map_err(io::Error::other)?;
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(io::Error::other)?;
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
        let endpoint = quinn::Endpoint::server(quinn::ServerConfig::with_crypto(Arc::new(tls)), secure)?;
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move { connection(incoming).await });
        }
        Ok(())
    })
}

async fn connection(incoming: quinn::Incoming) -> Option<()> {
    let connection = h3_quinn::Connection::new(incoming.await.ok()?);
    let mut connection = h3::server::Connection::<_, Bytes>::new(connection).await.ok()?;
    while let Ok(Some(resolver)) = connection.accept().await {
        tokio::spawn(async move {
            let (request, stream) = resolver.resolve_request().await.ok()?;
            let (mut send, receive) = stream.split();
            let request = request.map(|()| axum::body::Body::new(Received(receive)));
            let (parts, mut body) = router_of_thread().call(request).await.ok()?.into_parts();
            send.send_response(Response::from_parts(parts, ())).await.ok()?;
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data() {
                    send.send_data(data).await.ok()?;
                }
            }
            send.finish().await.ok()
        });
    }
    Some(())
}

/// Made once and cloned for each request, as axum's own server does.
fn router_of_thread() -> Router {
    thread_local! {
        static ROUTER: Router = router();
    }
    ROUTER.with(Router::clone)
}

/// A request's body as h3 delivers it.
struct Received(h3::server::RequestStream<h3_quinn::RecvStream, Bytes>);

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = h3::error::StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv_data(context).map(|data| {
            data.transpose()
                .map(|data| data.map(|mut data| Frame::data(data.copy_to_bytes(data.remaining()))))
        })
    }
}
