//! SIGTERM under load: no request in flight fails, and no click is lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::http::Client;
use crate::server::{Place, alone};

/// How long a draining server keeps an idle connection for a request that is on its way.
const GRACE: Duration = Duration::from_secs(1);

/// Sends requests until the server accepts no more connections. Returns how many redirects arrived.
///
/// It follows HTTP: after `connection: close` it uses another connection. If the kernel accepted a connection while the
/// listener was closing, the connection may be reset before it has carried anything (RFC 9112, section 9.3.1: the
/// client may try again elsewhere). A connection that has carried an answer may not be reset, unless the machine
/// delayed the client for longer than the server waits.
fn visit(address: SocketAddr, path: &str, told: &AtomicBool) -> u64 {
    let mut answered = 0;
    loop {
        let mut client = match Client::connect(address) {
            Ok(client) => client,
            Err(error) if told.load(Ordering::SeqCst) => {
                use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
                // The connection is reset if the listener closed in the meantime. The pipe is broken if the server had
                // accepted and closed the connection before this thread ran again.
                let ended = matches!(error.kind(), ConnectionRefused | ConnectionReset | BrokenPipe);
                assert!(ended, "{error}");
                return answered;
            }
            Err(error) => panic!("refused while the server runs: {error}"),
        };
        // When the last request was sent.
        let mut last: Option<Instant> = None;
        loop {
            let sent = Instant::now();
            match client.get(path) {
                Ok(answer) => {
                    assert_eq!(answer.status, 307);
                    answered += 1;
                    last = Some(sent);
                    if answer.closes() {
                        assert!(client.is_closed());
                        break;
                    }
                }
                Err(_) if told.load(Ordering::SeqCst) && last.is_none_or(|last| last.elapsed() >= GRACE) => {
                    break;
                }
                Err(error) => panic!("a request failed on an open connection: {error}"),
            }
        }
    }
}

#[test]
fn at_sigterm_every_request_is_answered_and_every_click_stored() {
    let _alone = alone();
    let place = Place::new();
    let mut expected = 0;
    for round in 0..3 {
        let server = place.serve(&["--drain-timeout", "30"]);
        if round == 0 {
            assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
        }
        let stored = server.api().clicks("abc");
        let told = AtomicBool::new(false);
        let address = server.public;
        expected += std::thread::scope(|scope| {
            // The escaped path isn't answered on the fast path.
            let paths = ["abc", "abc", "abc", "abc", "abc", "abc", "abc", "%61bc"];
            let visitors = paths.map(|path| {
                let told = &told;
                scope.spawn(move || visit(address, path, told))
            });
            // The signal comes under load, and after a flush.
            let mut api = server.api();
            let hung = Instant::now() + Duration::from_secs(60);
            while api.clicks("abc") < stored + 100 {
                assert!(Instant::now() < hung, "no click is stored");
                std::thread::sleep(Duration::from_millis(20));
            }
            told.store(true, Ordering::SeqCst);
            server.terminate();
            assert_eq!(server.wait(Duration::from_secs(60)).code(), Some(0));
            visitors.into_iter().map(|visitor| visitor.join().unwrap()).sum::<u64>()
        });
    }
    let server = place.serve(&[]);
    assert_eq!(server.api().clicks("abc"), expected);
    server.stop();
}

#[test]
fn at_sigterm_an_idle_connection_does_not_hold_the_server_up() {
    let _alone = alone();
    let place = Place::new();
    let server = place.serve(&["--drain-timeout", "600"]);
    let mut idle = server.connect();
    assert_eq!(idle.get("abc").unwrap().status, 404);
    let silent = server.connect();
    server.terminate();
    assert_eq!(server.wait(Duration::from_secs(60)).code(), Some(0));
    assert!(idle.is_closed());
    drop(silent);
}
