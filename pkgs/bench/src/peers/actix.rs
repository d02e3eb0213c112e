//! A minimal actix-web handler with a constant answer: the cost of the framework itself.

use std::io;
use std::net::SocketAddr;

use actix_web::http::header::LOCATION;
use actix_web::{App, HttpResponse, HttpServer, web};

async fn redirect() -> HttpResponse {
    HttpResponse::TemporaryRedirect().insert_header((LOCATION, super::TARGET)).finish()
}

pub(super) fn serve(address: SocketAddr, workers: usize) -> io::Result<()> {
    actix_web::rt::System::new().block_on(
        HttpServer::new(|| App::new().route("/{code}", web::get().to(redirect)))
            .workers(workers)
            .bind(address)?
            .run(),
    )
}
