//! A socket that systemd passes, while one process takes over from another.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use testkit::Server;

use crate::{BINARY, program};

/// Longer than a process takes to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a process that serves the socket that systemd passes as `web`. If there is a socket to pass, the process is
/// started in the same way as by systemd.
fn start(directory: &Path, passed: Option<&TcpListener>) -> Server {
    // As in sd_listen_fds(3): descriptors from 3 on, and the id of the process.
    let (script, input) = match passed {
        Some(socket) => (
            "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_FDNAMES=web LISTEN_PID=$$; exec \"$0\" \"$@\"",
            Stdio::from(OwnedFd::from(socket.try_clone().expect("a descriptor"))),
        ),
        None => ("exec \"$0\" \"$@\"", Stdio::null()),
    };
    Server::program("sh")
        .args(["-c", script, BINARY, "serve", "--listen", "systemd:web", "--admin", "127.0.0.1:0"])
        .args(["--workers", "2", "--drain-timeout", "5", "--database"])
        .arg(directory.join("links.db"))
        .arg("--handover")
        .arg(directory.join("handover"))
        .stdin(input)
        .start()
}

fn ask(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("nobody is refused");
    stream.write_all(b"GET /abc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer and the end");
    answer
}

/// Each process gets the socket from systemd, or only from the previous process. The last one serves without any other.
#[test]
fn a_socket_of_systemds_goes_over_with_no_request_lost() {
    let program = program();
    let directory = program.directory.path();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    let mut process = start(directory, Some(&socket));
    let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let client = || {
            while !done.load(Relaxed) {
                let answer = ask(address);
                assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
                answered.fetch_add(1, Relaxed);
            }
        };
        let clients = [(); 2].map(|()| scope.spawn(client));
        for passed in [Some(&socket), None, Some(&socket), None] {
            let next = start(directory, passed);
            assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
            process = next;
            let before = answered.load(Relaxed);
            while answered.load(Relaxed) < before + 20 && !clients.iter().any(|client| client.is_finished()) {
                thread::yield_now();
            }
        }
        done.store(true, Relaxed);
    });
    // The last process's descriptor is then the only one for the socket.
    drop(socket);
    assert!(ask(address).starts_with("HTTP/1.1 307 "));
    drop(process);
    TcpStream::connect(address).expect_err("nobody has the socket any more");
}

/// systemd passes sockets only to a process that it starts.
#[test]
fn one_for_which_systemd_has_a_new_socket_is_started_anew() {
    let program = program();
    let directory = program.directory.path();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let serving = start(directory, Some(&socket));
    let said = directory.join("said");
    let status = Command::new(BINARY)
        .args(["reload", "--listen", "systemd:web,systemd:more", "--admin", "127.0.0.1:0", "--database"])
        .arg(directory.join("links.db"))
        .arg("--handover")
        .arg(directory.join("handover"))
        .env("MAINPID", serving.id().to_string())
        .stdout(File::create(&said).expect("a directory"))
        .status()
        .expect("it runs");
    let said = fs::read_to_string(said).expect("text");
    assert!(status.success() && said.contains("systemd passes a new socket only when"), "{said}");
    assert_eq!(serving.wait(PATIENCE).code(), Some(0), "{}", serving.log());
}
