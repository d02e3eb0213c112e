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

use load::LoadRequest;
use takeover::{Program, Writers, ask};

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_linerate-api"), |directory| {
        let database = format!("sqlite:{}", directory.join("users.db").display());
        ["--database-url", &database].map(str::to_owned).into()
    })
}

/// What nobody has written.
fn load_request() -> LoadRequest {
    LoadRequest::of("/v1/users?tag=none", r#"{"users":[],"next":null}"#)
}

/// What is acknowledged while processes take over is there in the end, whichever of them it was that did so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_in_a_row_take_over_and_no_request_fails_and_no_write_is_lost() {
    let program = program();
    let clear = program.clear;
    // Before anybody asks: somebody serves.
    let first = program.start();
    let writers = Writers::start(move |writer, number| {
        let user = format!(r#"{{"email":"w{writer}n{number}@a.example","name":"n"}}"#);
        let (status, answer) = ask(clear, "POST", "/v1/users", "", &user);
        assert_eq!(status, 201, "{answer}");
        let user: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        user["id"].as_str().expect("an id").to_owned()
    });
    let (last, _) = takeover::three_in_a_row(&program, load_request(), Some(first)).await;
    for id in writers.finish() {
        assert_eq!(ask(clear, "GET", &format!("/v1/users/{id}"), "", "").0, 200, "{id}");
    }
    drop(last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_or_is_killed_changes_nothing() {
    takeover::one_that_fails_or_is_killed_changes_nothing(&program(), load_request()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_loses_its_own_alone() {
    takeover::one_that_is_killed_loses_its_own_alone(&program(), load_request()).await;
}
