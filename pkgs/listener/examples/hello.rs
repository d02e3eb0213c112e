//! Answers every request with `Hello, World!`; the server of this crate's tests and benches.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::task::{Context, Poll};

use bytes::Bytes;
use clap::Parser;
use http::{Request, Response, header};
use http_body_util::Full;
use listener::{Body, Config, Endpoint, Listener, Tls};
use service::proxies::ProxyArgs;
use service::shutdown::Shutdown;
use service::socket::Address;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Arguments {
    /// Where to listen in the clear
    #[arg(long)]
    listen: Vec<Address>,

    /// Where to listen with TLS
    #[arg(long, requires_all = ["certificate", "key"])]
    listen_tls: Vec<Address>,

    /// Certificate chain in PEM
    #[arg(long)]
    certificate: Option<PathBuf>,

    /// Private key in PEM
    #[arg(long)]
    key: Option<PathBuf>,

    /// Speak HTTP/2 in the clear too
    #[arg(long)]
    h2c: bool,

    /// Speak HTTP/3 beside TLS
    #[arg(long)]
    h3: bool,

    /// Which proxies are in front
    #[command(flatten)]
    proxies: ProxyArgs,

    /// Workers, one for each CPU unless given
    #[arg(long)]
    workers: Option<NonZero<usize>>,
}

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
        let mut response = Response::new(Full::new(Bytes::from_static(b"Hello, World!")));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
        ready(Ok(response))
    }
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
    let clear = arguments.listen.into_iter().map(if arguments.h2c { Endpoint::h2c } else { Endpoint::plain });
    let config = Config {
        endpoints: clear.chain(arguments.listen_tls.into_iter().map(Endpoint::tls)).collect(),
        workers: arguments.workers,
        tls: arguments.certificate.zip(arguments.key).map(|(chain, key)| Tls::new(chain, key)),
        proxies: (&arguments.proxies).into(),
        http3: arguments.h3,
        ..Config::default()
    };
    let listener = Listener::new(config)?;
    // Printed for whoever started it, since the kernel may have chosen the ports.
    for address in listener.addresses() {
        println!("{address}");
    }
    let certificates = listener.certificates().cloned();
    let shutdown = Shutdown::on_signals_and_hangup(move || {
        if let Some(Err(error)) = certificates.as_ref().map(|store| store.reload()) {
            eprintln!("error: {error}");
        }
    })?;
    listener.serve(Hello, shutdown)?;
    Ok(())
}
