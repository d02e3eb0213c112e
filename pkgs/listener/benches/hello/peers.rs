//! The listener, and those of its peers that are in the bench's own executable. All give the same answer.

use std::convert::Infallible;
use std::env;
use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::task::{Context, Poll};

use actix_web::{App, HttpServer, web};
use axum::Router;
use axum::routing::get;
use bench::Error;
use bench::server::{Placement, Server, free_address};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use listener::{Body, Config, Endpoint, Listener, Tls};
use service::shutdown::Shutdown;
use service::socket::Address;

pub const ANSWER: &str = "Hello, World!";

pub const OURS: &str = "linerate";
pub const OURS_AXUM: &str = "linerate + axum";
pub const AXUM: &str = "axum::serve";
pub const ACTIX: &str = "actix-web";

/// The word that turns the bench's executable into a peer: `peer NAME ADDRESS WORKERS`, and for the listener's TLS
/// `ADDRESS DIRECTORY`.
const PEER: &str = "peer";

/// Serves as a peer if the command line says so.
pub fn serve_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, name, address, workers, tls @ ..] = arguments.as_slice() else { return None };
    let (address, workers) = (address.parse().ok()?, workers.parse().ok()?);
    let served = match name.as_str() {
        _ if word != PEER => return None,
        OURS => ours(Hello, address, NonZero::new(workers), tls),
        OURS_AXUM => ours(router(), address, NonZero::new(workers), tls),
        AXUM => axum(address, workers),
        ACTIX => actix(address, workers),
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

/// Starts the peer with this name.
pub fn start(name: &'static str, placement: Placement) -> Result<Server, Error> {
    start_with(name, placement, &[])
}

/// Starts the listener, with TLS at `tls` with the certificate in `directory`.
pub fn start_tls(placement: Placement, tls: SocketAddr, directory: &Path) -> Result<Server, Error> {
    start_with(OURS, placement, &[tls.to_string(), directory.display().to_string()])
}

fn start_with(name: &'static str, placement: Placement, more: &[String]) -> Result<Server, Error> {
    let address = free_address()?;
    let mut command = placement.command(env::current_exe()?);
    command.args([PEER, name, &address.to_string(), &placement.workers.to_string()]).args(more);
    Server::start(name, address, &mut command)
}

fn ours(
    service: impl listener::HttpService,
    address: SocketAddr,
    workers: Option<NonZero<usize>>,
    tls: &[String],
) -> io::Result<()> {
    let clear = Endpoint::h2c(Address::Tcp(address));
    let mut config = Config { endpoints: vec![clear], workers, ..Config::default() };
    if let [address, directory] = tls {
        let address = address.parse().map_err(io::Error::other)?;
        config.endpoints.push(Endpoint::tls(address));
        let directory = Path::new(directory);
        config.tls = Some(Tls::new(directory.join("chain.pem"), directory.join("key.pem")));
    }
    let listener = Listener::new(config).map_err(io::Error::other)?;
    listener.serve(service, Shutdown::on_signals()?).map_err(io::Error::other)
}

/// A service that does as little as possible.
#[derive(Clone)]
struct Hello;

impl tower_service::Service<Request<Body>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let mut response = Response::new(Full::new(Bytes::from_static(ANSWER.as_bytes())));
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        ready(Ok(response))
    }
}

fn router() -> Router {
    Router::new().route("/", get(|| async { ANSWER }))
}

/// As in axum's documentation: one listening socket, tokio's own scheduler.
fn axum(address: SocketAddr, workers: usize) -> io::Result<()> {
    let runtime = if workers == 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?
    };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, router()).await
    })
}

fn actix(address: SocketAddr, workers: usize) -> io::Result<()> {
    actix_web::rt::System::new().block_on(
        HttpServer::new(|| App::new().route("/", web::get().to(|| async { ANSWER })))
            .workers(workers)
            .bind(address)?
            .run(),
    )
}
