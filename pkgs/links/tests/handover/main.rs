//! The real `linerate-links serve`, where one process takes over from another on the same database.
#![forbid(unsafe_code)]

mod activated;
// These are shared with the listener's tests, which use more of them.
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/load.rs"]
mod load;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/takeover.rs"]
mod takeover;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bench::postgres::{Durability, Postgres};
use client::{ClientProtocol, Target};
use load::{Load, LoadRequest, PATIENCE};
use rustix::process::Signal;
use takeover::{Program, Writers, ask};
use testkit::{Server, until};

const BINARY: &str = env!("CARGO_BIN_EXE_linerate-links");

/// A program with a link.
fn program() -> Program {
    let program = Program::new(BINARY, |directory| {
        ["--database", &directory.join("links.db").display().to_string()].map(str::to_owned).into()
    });
    command(&file(&program), &["add", "https://t.example/", "--code", "abc"]);
    program
}

/// The database's path.
fn file(program: &Program) -> String {
    program.path("links.db").display().to_string()
}

/// The output of a command on the database.
fn command(database: &str, arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).arg("--database").arg(database).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn load_request() -> LoadRequest {
    LoadRequest { status: 307, ..LoadRequest::of("/abc", "") }
}

/// Every write that is acknowledged while processes take over is stored in the end. So is every visit, whichever
/// process counted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_in_a_row_take_over_and_no_request_fails_and_nothing_is_lost() {
    let program = program();
    let answered = three_in_a_row_lose_nothing(&program).await;
    assert_eq!(clicks(&file(&program)), answered, "every visit is counted, once");
}

/// The same as above, with a database that all processes share, and to which others could write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgresql_too_no_request_fails_and_nothing_is_lost() {
    let postgres = Postgres::start(Durability::None, &[]).expect("PostgreSQL starts");
    let database = postgres.url("postgres");
    command(&database, &["add", "https://t.example/", "--code", "abc"]);
    let program = Program::new(BINARY, |_| ["--database", &database].map(str::to_owned).into());
    let answered = three_in_a_row_lose_nothing(&program).await;
    // The next process that serves adds up the clicks that the last one left.
    let serving = program.start();
    let left = || postgres.execute("postgres", "SELECT count(*) FROM click_flushes").expect("a number");
    tokio::task::block_in_place(|| until("all clicks are added up", || left() == "0"));
    drop(serving);
    assert_eq!(clicks(&database), answered, "every visit is counted, once");
}

/// The clicks of the visited link.
fn clicks(database: &str) -> u64 {
    let link: serde_json::Value =
        serde_json::from_str(&command(database, &["get", "abc", "--json"])).expect("JSON");
    link["clicks"].as_u64().expect("a number")
}

/// Lets processes take over from each other while links are created and followed. Returns how often the visited link
/// was followed.
async fn three_in_a_row_lose_nothing(program: &Program) -> u64 {
    let first = program.start();
    let token = first.line("token").expect("a token");
    let fields = format!("Authorization: Bearer {token}\r\n");
    let admin = program.admin;
    let writers = Writers::start(move |writer, number| {
        let code = format!("w{writer}n{number}");
        let link = format!(r#"{{"code":"{code}","target":"https://t.example/"}}"#);
        let (status, answer) = ask(admin, "POST", "/api/v1/links", &fields, &link);
        assert_eq!(status, 201, "{answer}");
        code
    });
    let (last, answered) = takeover::three_in_a_row(program, load_request(), Some(first)).await;
    for code in writers.finish() {
        assert_eq!(ask(program.clear, "GET", &format!("/{code}"), "", "").0, 307, "{code}");
    }
    last.signal(Signal::TERM);
    assert_eq!(takeover::ends(&last).await, 0, "{}", last.log());
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_or_is_killed_changes_nothing() {
    takeover::one_that_fails_or_is_killed_changes_nothing(&program(), load_request()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_loses_its_own_alone() {
    takeover::one_that_is_killed_loses_its_own_alone(&program(), load_request()).await;
}

/// Visitors do not notice that the certificate is replaced, over any protocol, unless they connect afterwards and check
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_replaced_under_load_and_no_request_fails() {
    let program = program();
    let serving = program.start();
    let made = testkit::certificate(&["localhost"]);
    let next = made.cert.der().clone();
    let target = Target::new(program.clear, program.secure, &[program.certificate.clone(), next.clone()]);
    let loads = [ClientProtocol::Http1Tls, ClientProtocol::Http2Tls, ClientProtocol::Http3].map(|protocol| {
        // Each connection is for this many requests, so that most connections start after the replacement.
        let request = LoadRequest { times: 10, ..load_request() };
        (protocol, Load::start(&target, protocol, 4, request))
    });
    for (_, load) in &loads {
        load.answers(50).await;
    }
    made.write_in(program.directory.path());
    for (protocol, load) in loads {
        let begun = Instant::now();
        loop {
            let shown = target.connect(protocol).await.expect("it listens").certificate;
            if shown.as_ref() == Some(&next) {
                break;
            }
            assert_eq!(shown.as_ref(), Some(&program.certificate), "{protocol:?}");
            assert!(begun.elapsed() < PATIENCE, "{protocol:?}: it is not read again: {}", serving.log());
        }
        load.answers(50).await;
        load.end().await;
    }
}

#[test]
fn sessions_are_resumed_by_the_next() {
    takeover::sessions_are_resumed_by_the_next(&program(), "/abc");
}

/// The process that would migrate does not take over: a migration can't be undone, and the serving process doesn't know
/// the new schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_would_migrate_the_database_does_not_take_over() {
    let program = program();
    let serving = program.start();
    let database = program.path("old.db");
    let old = rusqlite::Connection::open(&database).expect("a directory");
    old.execute_batch(include_str!("../survive/schema-4.sql")).expect("it is made");
    let handover = program.path("handover");
    let listen = program.clear.to_string();
    let output = Command::new(BINARY)
        .args(["serve", "--listen", &listen, "--admin", "127.0.0.1:0", "--database"])
        .arg(&database)
        .arg("--handover")
        .arg(&handover)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("this version of the program would migrate the database"), "{said}");
    let version: i64 = old.pragma_query_value(None, "user_version", |row| row.get(0)).expect("it is there");
    assert_eq!(version, 4, "it is as it was");
    assert_eq!(ask(program.clear, "GET", "/abc", "", "").0, 307);

    let said = reload(&program, &serving, "old.db", &listen);
    assert!(said.contains("migrates the database: the process that serves stops"), "{said}");
    assert_eq!(takeover::ends(&serving).await, 0, "{}", serving.log());
}

/// Has a service manager's `reload` replace the serving process by one with this database and address. Returns what it
/// says.
fn reload(program: &Program, serving: &Server, database: &str, listen: &str) -> String {
    let said = program.path("said");
    let status = Command::new(BINARY)
        .args(["reload", "--listen", listen, "--admin", "127.0.0.1:0", "--database"])
        .arg(program.path(database))
        .arg("--handover")
        .arg(program.path("handover"))
        .env("MAINPID", serving.id().to_string())
        .stdout(std::fs::File::create(&said).expect("a directory"))
        .status()
        .expect("it runs");
    let said = std::fs::read_to_string(said).expect("text");
    assert!(status.success(), "{said}");
    said
}

/// No socket can listen on all addresses of a port while another process listens on one of them. A service manager
/// starts the new process once the serving one has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_listens_at_another_address_of_the_same_port_is_started_anew() {
    let program = program();
    let serving = program.start();
    let said = reload(&program, &serving, "links.db", &format!(":{}", program.clear.port()));
    assert!(said.contains("another address of the same port: the process that serves stops"), "{said}");
    assert_eq!(takeover::ends(&serving).await, 0, "{}", serving.log());
}

/// What announces a machine asks on a connection that it keeps. The process at its other end is the old one, while the
/// next one is ready.
#[test]
fn who_asks_on_a_kept_connection_is_told_that_it_is_ready_while_another_takes_over() {
    let program = program();
    let _old = program.start();
    let stream = TcpStream::connect(program.admin).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut stream = BufReader::new(stream);
    assert_eq!(is_ready(&mut stream), Some(true));
    let asking = thread::spawn(move || {
        // Ends once the old process closes the connection.
        while let Some(ready) = is_ready(&mut stream) {
            assert!(ready);
            thread::sleep(Duration::from_millis(50));
        }
    });
    let _next = program.start();
    asking.join().expect("it is ready all the time");
}

/// Asks whether a service is ready; none at the end of the connection.
fn is_ready(stream: &mut BufReader<TcpStream>) -> Option<bool> {
    stream.get_mut().write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let (mut ready, mut length) = (false, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        ready |= line.starts_with("http/1.1 200 ");
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().expect("a number");
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some(ready)
}
