//! What only a whole process shows: signals, notices to systemd, sockets passed by it.
//!
//! The process is this very test binary, asked to run [`child`] alone.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use service::ready::{Readiness, watchdog};
use service::settings::try_parse_from;
use service::shutdown::Shutdown;
use service::socket::{Address, TcpOptions};

/// No step of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A service that stops when told to, at once or never quite.
#[test]
#[ignore = "not a test: the process that the tests start"]
fn child() {
    let readiness = Readiness::new();
    let hangup = readiness.clone();
    let shutdown = Shutdown::on_signals_and_hangup(move || hangup.set_not_ready("hung up")).expect("signals");
    watchdog(|| true).expect("watchdog");
    if std::env::var_os("LISTEN_FDS").is_some() {
        let address = Address::Activated("http".into());
        let listener = address.listen(&TcpOptions::default()).expect("a socket was passed");
        println!("listening on {}", listener.address().expect("an address"));
    }
    readiness.set_ready();
    println!("ready");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    runtime.block_on(shutdown.wait());
    readiness.set_stopping();
    println!("draining");
    if std::env::var_os("DRAIN_FOR_EVER").is_some() {
        std::thread::sleep(PATIENCE);
    }
}

/// A program that has a variable for the flag of two of its commands.
#[derive(Debug, clap::Parser)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, clap::Subcommand)]
enum Commands {
    Serve(Shared),
    Add(Shared),
}

#[derive(Debug, clap::Args)]
struct Shared {
    #[arg(long, env = "LINERATE_TEST_URL", default_value = "the default")]
    url: String,
    #[arg(long, env = "LINERATE_TEST_COUNT")]
    count: Option<u64>,
}

/// What the program reads, whichever command is run.
#[test]
#[ignore = "not a test: the process that the tests start"]
fn reader() {
    for name in ["serve", "add"] {
        let cli: Cli = try_parse_from("test", "serve", ["program", name], |name| std::env::var_os(name))
            .unwrap_or_else(|error| panic!("{error}"));
        let (Commands::Serve(read) | Commands::Add(read)) = cli.command;
        println!("{name} {read:?}");
    }
    let help =
        try_parse_from::<Cli>("test", "serve", ["program", "add", "--help"], |name| std::env::var_os(name));
    println!("{}", help.expect_err("help"));
}

/// The child, through a shell that lets `prepare` go first.
fn start(prepare: &str, env: &[(&str, &str)], stdin: Stdio) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("{prepare} exec \"$0\" --exact child --ignored --nocapture")])
        .arg(std::env::current_exe().expect("this test"))
        .envs(env.iter().copied())
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("UTF-8"));
    (child, lines)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a signal is sent");
}

#[test]
fn an_empty_variable_is_unset_for_every_command() {
    let read = |value: &str| {
        let output = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "reader", "--ignored", "--nocapture"])
            .envs([("LINERATE_TEST_URL", value), ("LINERATE_TEST_COUNT", value)])
            .output()
            .expect("a child");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let empty = read("");
    for name in ["serve", "add"] {
        let line = format!("{name} Shared {{ url: \"the default\", count: None }}");
        assert!(empty.contains(&line), "{empty}");
        let line = format!("{name} Shared {{ url: \"7\", count: Some(7) }}");
        assert!(read("7").contains(&line), "{name}: {}", read("7"));
    }
    assert!(empty.contains("[env: LINERATE_TEST_URL=]"), "{empty}");
}

#[test]
fn the_first_signal_drains_and_the_second_ends() {
    let cases = [
        (Signal::TERM, Signal::TERM, 143),
        (Signal::INT, Signal::INT, 130),
        (Signal::INT, Signal::TERM, 143),
    ];
    for (first, second, code) in cases {
        let (mut child, mut lines) = start("", &[("DRAIN_FOR_EVER", "1")], Stdio::null());
        assert!(lines.any(|line| line.ends_with("ready")));
        signal(&child, first);
        assert!(lines.any(|line| line == "draining"));
        signal(&child, second);
        let status = child.wait().expect("an end");
        assert_eq!((status.code(), status.signal()), (Some(code), None));
    }
}

#[test]
fn systemd_is_told_of_each_change() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let await_notice = |wanted: &str| loop {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{wanted}: {error}"));
        if std::str::from_utf8(&buffer[..length]).expect("UTF-8").lines().any(|line| line == wanted) {
            return;
        }
    };
    let env = [("NOTIFY_SOCKET", path.to_str().expect("UTF-8")), ("WATCHDOG_USEC", "100000")];
    let (mut child, _lines) = start("", &env, Stdio::null());
    await_notice("READY=1");
    await_notice("WATCHDOG=1");
    await_notice("WATCHDOG=1");
    signal(&child, Signal::HUP);
    await_notice("STATUS=not ready: hung up");
    signal(&child, Signal::TERM);
    await_notice("STOPPING=1");
    assert!(child.wait().expect("an end").success());
}

#[test]
fn a_socket_passed_by_systemd_is_listened_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let env = [("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "http")];
    // Passed as the third descriptor, to the process the shell becomes.
    let stdin = Stdio::from(OwnedFd::from(listener));
    let (mut child, mut lines) = start("exec 3<&0 </dev/null; LISTEN_PID=$$", &env, stdin);
    assert!(lines.any(|line| line.ends_with(&format!("listening on {address}"))));
    signal(&child, Signal::TERM);
    assert!(child.wait().expect("an end").success());
}
