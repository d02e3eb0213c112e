//! Behaviour that only a whole process shows: signals, notifications to systemd, and sockets that systemd passes.
//!
//! The process is this same test binary, told to run only [`child`].

use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process};
use service::ready::{Readiness, drains_for, watchdog};
use service::settings::try_parse_args;
use service::shutdown::Shutdown;
use service::socket::{Address, Listener, TcpOptions, bind_udp_each};
use socket2::Socket;
use testkit::{own_address, uninterrupted};

/// No step of these tests takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A service that stops when told to, at once or never completely.
#[test]
#[ignore = "not a test: the process that the tests start"]
fn child() {
    let readiness = Readiness::new();
    let hangup = readiness.clone();
    let shutdown = Shutdown::on_signals_and_hangup(move || hangup.set_not_ready("hung up")).expect("signals");
    watchdog(|| true).expect("watchdog");
    drains_for(Duration::from_secs(1));
    drains_for(Duration::from_secs(100));
    drains_for(Duration::from_secs(10));
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

/// A program with variables for flags of two of its commands.
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
    #[arg(long, env = "TEST_TOKEN")]
    token: Option<String>,
    #[arg(long)]
    size: Option<u64>,
}

/// What the program reads, whichever command is run.
#[test]
#[ignore = "not a test: the process that the tests start"]
fn reader() {
    for name in ["serve", "add"] {
        let cli: Cli =
            try_parse_args("test", "serve", ["program", name]).unwrap_or_else(|error| panic!("{error}"));
        let (Commands::Serve(read) | Commands::Add(read)) = cli.command;
        println!("{name} {read:?}");
    }
    let help = try_parse_args::<Cli>("test", "serve", ["program", "add", "--help"]);
    println!("{}", help.expect_err("help"));
}

/// What the kernel allows for a socket's receive buffer everywhere (net.core.rmem_max), in bytes.
const ENLARGED: usize = 64 << 10;

/// A service that listens where it is told, and that answers clients waiting in its sockets if systemd keeps them.
#[test]
#[ignore = "not a test: the process that the tests start"]
fn keeper() {
    let address: Address = std::env::var("LISTEN_AT").expect("an address").parse().expect("an address");
    let Address::Tcp(at) = address else { panic!("TCP") };
    let listeners = address.listen_each(1, &TcpOptions::default()).expect("listens");
    let enlarge = |socket: &Socket| socket.set_recv_buffer_size(ENLARGED).expect("a buffer");
    let datagrams = bind_udp_each(at, 1, enlarge).expect("receives");
    Readiness::new().set_ready();
    println!("ready, {} and {}", listeners.len(), datagrams.len());
    loop {
        if let Listener::Tcp(listener) = &listeners[0]
            && let Ok((mut client, _)) = listener.accept()
        {
            client.write_all(b"served").expect("a client");
        }
        let mut datagram = [0; 16];
        if let Ok((length, from)) = datagrams[0].recv_from(&mut datagram) {
            datagrams[0].send_to(&datagram[..length], from).expect("a client");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The child, in a shell that runs `prepare` first.
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

/// What the reader prints with these variables.
fn read<const N: usize>(env: [(&str, &str); N]) -> String {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "reader", "--ignored", "--nocapture"])
        .envs(env)
        .output()
        .expect("a child");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn an_empty_variable_is_unset_for_every_command() {
    let read = |value: &str| read([("LINERATE_TEST_URL", value), ("LINERATE_TEST_COUNT", value)]);
    let empty = read("");
    for name in ["serve", "add"] {
        let line = format!("{name} Shared {{ url: \"the default\", count: None, token: None, size: None }}");
        assert!(empty.contains(&line), "{empty}");
        let line = format!("{name} Shared {{ url: \"7\", count: Some(7), token: None, size: None }}");
        assert!(read("7").contains(&line), "{name}: {}", read("7"));
    }
    assert!(empty.contains("[env: LINERATE_TEST_URL=]"), "{empty}");
}

#[test]
fn an_empty_variable_hides_no_credential() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = ["TEST_TOKEN", "LINERATE_TEST_SIZE"];
    for name in names {
        std::fs::write(directory.path().join(name), "7\n").expect("a file");
    }
    let directory = directory.path().to_str().expect("UTF-8");
    let [token, size] = names.map(|name| (name, ""));
    let said = read([("CREDENTIALS_DIRECTORY", directory), token, size]);
    assert!(said.contains("count: None, token: Some(\"7\"), size: Some(7) }"), "{said}");
    let [token, size] = names.map(|name| (name, "8"));
    let said = read([("CREDENTIALS_DIRECTORY", directory), token, size]);
    assert!(said.contains("count: None, token: Some(\"8\"), size: Some(8) }"), "{said}");
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
        let length =
            uninterrupted(|| socket.recv(&mut buffer)).unwrap_or_else(|error| panic!("{wanted}: {error}"));
        let said = std::str::from_utf8(&buffer[..length]).expect("UTF-8");
        if said.lines().any(|line| line == wanted) {
            return said.to_owned();
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
    let said = await_notice("STOPPING=1");
    assert!(said.contains("EXTEND_TIMEOUT_USEC=110000000\n"), "for the longest drain, and 10 s: {said}");
    assert!(child.wait().expect("an end").success());
}

#[test]
fn a_socket_passed_by_systemd_is_listened_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let env = [("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "http")];
    // Passed as the third descriptor, to the process that the shell becomes.
    let stdin = Stdio::from(OwnedFd::from(listener));
    let (mut child, mut lines) = start("exec 3<&0 </dev/null; LISTEN_PID=$$", &env, stdin);
    assert!(lines.any(|line| line.ends_with(&format!("listening on {address}"))));
    signal(&child, Signal::TERM);
    assert!(child.wait().expect("an end").success());
}

/// What systemd is told in one message, and the descriptor that came with it.
fn told(socket: &UnixDatagram) -> (String, Option<OwnedFd>) {
    let mut text = [0; 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut text)];
    let received = retry_on_intr(|| recvmsg(socket, parts, &mut control, RecvFlags::empty()));
    let received = received.expect("a message").bytes;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    (String::from_utf8_lossy(&text[..received]).into_owned(), fd)
}

#[test]
fn who_connects_while_a_service_restarts_waits_in_the_sockets_that_systemd_keeps() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let address = own_address().to_string();
    let keeper = |prepare: &str, kept: Option<(OwnedFd, OwnedFd)>| {
        let (stdin, stderr) =
            kept.map_or((Stdio::null(), Stdio::inherit()), |(tcp, udp)| (tcp.into(), udp.into()));
        Command::new("/bin/sh")
            .args(["-c", &format!("{prepare} exec \"$0\" --exact keeper --ignored --nocapture")])
            .arg(std::env::current_exe().expect("this test"))
            .envs([
                ("NOTIFY_SOCKET", path.to_str().expect("UTF-8")),
                ("FDSTORE", "16"),
                ("LISTEN_AT", &address),
            ])
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("a child")
    };
    let mut first = keeper("", None);
    let (mut tcp, mut udp) = (None, None);
    loop {
        let (text, fd) = told(&manager);
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        match (name, fd) {
            (Some(name), Some(fd)) => {
                assert!(text.contains("FDSTORE=1\n") && !name.contains(':'), "{text}");
                let kept = if name.contains("udp") { &mut udp } else { &mut tcp };
                assert!(kept.replace((name.to_owned(), fd)).is_none(), "twice: {text}");
            }
            _ if text.contains("READY=1") => break,
            _ => panic!("{text}"),
        }
    }
    let ((tcp_name, tcp), (udp_name, udp)) = (tcp.expect("kept"), udp.expect("kept"));
    let kept_udp = Socket::from(udp.try_clone().expect("a descriptor"));
    kept_udp.set_recv_buffer_size(4 << 10).expect("a smaller buffer");
    first.kill().expect("a signal");
    first.wait().expect("an end");

    // No process serves now, but no connection is refused.
    let mut client = TcpStream::connect(&address).expect("waits");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    datagrams.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    datagrams.send_to(b"early", &address).expect("waits");
    // A third one has an address that the service had before its settings changed.
    let prepare = format!(
        "exec 3<&0 4<&2 5<&0 </dev/null 2>/dev/null; export LISTEN_PID=$$ LISTEN_FDS=3 \
         LISTEN_FDNAMES='{tcp_name}:{udp_name}:kept tcp 192.0.2.1_80';"
    );
    let mut second = keeper(&prepare, Some((tcp, udp)));
    let mut served = [0; 6];
    client.read_exact(&mut served).expect("served");
    assert_eq!(&served, b"served");
    let mut echoed = [0; 16];
    let length = uninterrupted(|| datagrams.recv(&mut echoed)).expect("an answer");
    assert_eq!(&echoed[..length], b"early");
    let mut forgotten = Vec::new();
    loop {
        let (text, fd) = told(&manager);
        if text.contains("READY=1") {
            break;
        }
        if fd.is_none() {
            forgotten.push(text);
        }
    }
    // The kernel doubles it, for its own overhead (socket(7)).
    assert_eq!(kept_udp.recv_buffer_size().expect("a size"), 2 * ENLARGED);
    assert_eq!(forgotten, ["FDSTOREREMOVE=1\nFDNAME=kept tcp 192.0.2.1_80\n"]);
    second.kill().expect("a signal");
    second.wait().expect("an end");
}

#[test]
fn a_socket_that_was_kept_is_not_in_the_way_of_another_address_on_its_port() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let address = own_address();
    let name = format!("kept tcp 0.0.0.0_{}", address.port());
    // It stands for a kept socket that listens on all addresses.
    let kept = TcpListener::bind(address).expect("an address of its own");
    let held_by_manager = kept.try_clone().expect("a descriptor");
    let mut child = Command::new("/bin/sh")
        .args([
            "-c",
            "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; \
             exec \"$0\" --exact keeper --ignored --nocapture",
        ])
        .arg(std::env::current_exe().expect("this test"))
        .envs([("NOTIFY_SOCKET", path.to_str().expect("UTF-8")), ("FDSTORE", "16")])
        .envs([("LISTEN_AT", address.to_string()), ("LISTEN_FDNAMES", name.clone())])
        .stdin(Stdio::from(OwnedFd::from(kept)))
        .stdout(Stdio::null())
        .spawn()
        .expect("a child");
    let (text, _) = told(&manager);
    assert_eq!(text, format!("FDSTOREREMOVE=1\nFDNAME={name}\n"));
    drop(held_by_manager);
    while !told(&manager).0.contains("READY=1") {}
    let mut served = [0; 6];
    TcpStream::connect(address).expect("it listens").read_exact(&mut served).expect("served");
    assert_eq!(&served, b"served");
    child.kill().expect("a signal");
    child.wait().expect("an end");
}
