//! The real `linerate-api serve`, one process of which takes over from another on one database.
#![forbid(unsafe_code)]

// Shared with the listener's tests, which need more of them.
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/load.rs"]
mod load;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/takeover.rs"]
mod takeover;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use load::Asked;
use takeover::Program;

/// Longer than anything here takes on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(100);

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_linerate-api"), |directory| {
        let database = format!("sqlite:{}", directory.join("users.db").display());
        ["--database-url", &database].map(str::to_owned).into()
    })
}

/// What nobody has written.
fn asked() -> Asked {
    Asked::of("/v1/users?tag=none", r#"{"users":[],"next":null}"#)
}

/// Asks in the clear, on a connection of its own; the answer's status and body.
fn ask(address: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("nobody is refused");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}");
    write!(stream, "{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("no connection is lost");
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (status, answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
}

/// What is acknowledged while processes take over is there in the end, whichever of them it was that did so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_in_a_row_take_over_and_no_request_fails_and_no_write_is_lost() {
    let program = program();
    let clear = program.clear;
    let done = Arc::new(AtomicBool::new(false));
    // Before anybody asks: somebody serves.
    let first = program.start();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                let mut written = Vec::new();
                while !done.load(Relaxed) {
                    let number = written.len();
                    let user = format!(r#"{{"email":"w{writer}n{number}@a.example","name":"n"}}"#);
                    let (status, answer) = ask(clear, "POST", "/v1/users", "", &user);
                    assert_eq!(status, 201, "{answer}");
                    let user: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
                    written.push(user["id"].as_str().expect("an id").to_owned());
                }
                written
            })
        })
        .collect();
    let (last, _) = takeover::three_in_a_row(&program, asked(), Some(first)).await;
    done.store(true, Relaxed);
    let mut count = 0;
    for writer in writers {
        for id in writer.join().expect("every write is acknowledged") {
            count += 1;
            assert_eq!(ask(clear, "GET", &format!("/v1/users/{id}"), "", "").0, 200, "{id}");
        }
    }
    assert!(count > 0);
    drop(last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_or_is_killed_changes_nothing() {
    takeover::one_that_fails_or_is_killed_changes_nothing(&program(), asked()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_loses_its_own_alone() {
    takeover::one_that_is_killed_loses_its_own_alone(&program(), asked()).await;
}
