//! The real `linerate-files serve`, where one process takes over from another.
#![forbid(unsafe_code)]

// Shared with the listener's tests, which need more of them.
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/load.rs"]
mod load;
mod manager;
mod reload;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/takeover.rs"]
mod takeover;

use load::LoadRequest;
use takeover::Program;

const BODY: &str = "It works";

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_linerate-files"), |directory| {
        let root = directory.join("root");
        std::fs::create_dir(&root).expect("a directory");
        std::fs::write(root.join("page.txt"), BODY).expect("a file");
        vec!["--root".to_owned(), root.display().to_string()]
    })
}

fn load_request() -> LoadRequest {
    LoadRequest::of("/page.txt", BODY)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_in_a_row_take_over_and_no_request_fails() {
    takeover::three_in_a_row(&program(), load_request(), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_or_is_killed_changes_nothing() {
    takeover::one_that_fails_or_is_killed_changes_nothing(&program(), load_request()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_loses_its_own_alone() {
    takeover::one_that_is_killed_loses_its_own_alone(&program(), load_request()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_without_http3_leaves_its_connections_to_the_last() {
    takeover::one_without_http3_leaves_its_connections_to_the_last(&program()).await;
}
