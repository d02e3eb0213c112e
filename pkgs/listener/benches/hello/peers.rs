//! What the listener is measured against, where it lives in the bench's own executable: axum::serve and
//! actix-web, both answering what the listener's example answers.

use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use actix_web::{App, HttpServer, web};
use axum::Router;
use axum::routing::get;
use bench::Error;
use bench::server::{Placement, Server, free_address};

const ANSWER: &str = "Hello, World!";

pub const AXUM: &str = "axum::serve";
pub const ACTIX: &str = "actix-web";

/// The word that makes the bench's executable be a peer: `peer NAME ADDRESS WORKERS`.
const PEER: &str = "peer";

/// Serves as a peer where the command line says so.
pub fn serve_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, name, address, workers] = arguments.as_slice() else { return None };
    let (address, workers) = (address.parse().ok()?, workers.parse().ok()?);
    let serve = match name.as_str() {
        AXUM if word == PEER => axum,
        ACTIX if word == PEER => actix,
        _ => return None,
    };
    Some(match serve(address, workers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// Starts the peer of this name.
pub fn start(name: &'static str, placement: Placement) -> Result<Server, Error> {
    let address = free_address()?;
    let mut command = placement.command(env::current_exe()?);
    command.args([PEER, name, &address.to_string(), &placement.workers.to_string()]);
    Server::start(name, address, &mut command)
}

/// As axum's documentation has it: one listening socket, tokio's own scheduler.
fn axum(address: SocketAddr, workers: usize) -> io::Result<()> {
    let runtime = if workers == 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?
    };
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, Router::new().route("/", get(|| async { ANSWER }))).await
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
