//! Every stage of a ladder answers every request alike, as a separate process.
#![forbid(unsafe_code)]

mod api;
mod links;

use std::net::SocketAddr;
use std::process::Command;

use bench::server::{Server, free_address};
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

/// Starts a stage of a ladder.
fn start(ladder: &str, number: usize, name: &'static str, database: &str) -> Server {
    let listen: SocketAddr = free_address().expect("a port is free");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args([ladder, &number.to_string(), "--listen", &listen.to_string(), "--database", database]);
    Server::start(name, listen, &mut command).expect("it starts")
}

/// Follows no redirects and accepts any status.
fn ask(server: &Server, method: &str, path: &str, media_type: &str, body: &[u8]) -> Response<Body> {
    let agent: Agent = Agent::config_builder().http_status_as_error(false).max_redirects(0).build().into();
    let mut request = Request::builder().method(method).uri(format!("http://{}{path}", server.address()));
    if !media_type.is_empty() {
        request = request.header("content-type", media_type);
    }
    let answer = match method {
        "GET" => agent.run(request.body(()).expect("a request")),
        _ => agent.run(request.body(body).expect("a request")),
    };
    answer.expect("an answer")
}

/// A header's value, empty if it is missing.
fn header(response: &Response<Body>, name: &str) -> String {
    response.headers().get(name).map_or("", |value| value.to_str().expect("it is text")).to_owned()
}
