//! One process replaced by another, here both in one.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use listener::{Config, Endpoint, Runtime};
use service::socket::Address;

use crate::server::{Client, PATIENCE, Server};

#[test]
fn no_request_fails_while_sockets_change_hands_under_load() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("handover");
    let config = |workers, address: Address| Config {
        endpoints: vec![Endpoint::plain(address)],
        runtime: Runtime::PerCore(NonZero::new(workers)),
        handover: Some(path.clone()),
        // A client that has connected sends its request within this, however late it is scheduled.
        drain: PATIENCE,
        drain_grace: PATIENCE,
        ..Config::default()
    };
    // Named the same in each, as in settings; the port is the kernel's choice, kept through all of them.
    let any: Address = "127.0.0.1:0".parse().expect("an address");
    let mut server = Server::run(config(2, any.clone()));
    let address = server.address;
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (done, answered) = (Arc::clone(&done), Arc::clone(&answered));
            std::thread::spawn(move || {
                while !done.load(Relaxed) {
                    let mut client = Client::connect(address);
                    // Half of them on connections of their own, half on ones that are kept.
                    for _ in 0..if number % 2 == 0 { 1 } else { 50 } {
                        let head = client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").head();
                        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                        answered.fetch_add(1, Relaxed);
                        if head.contains("connection: close") {
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    // More workers than sockets, and fewer.
    for workers in [2, 3, 1] {
        std::thread::sleep(Duration::from_millis(300));
        // The one before has let go of the path; now the last has come to be found there.
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let next = Server::run(config(workers, any.clone()));
        assert_eq!(next.address, address);
        let before = std::mem::replace(&mut server, next);
        before.wait();
        let so_far = answered.load(Relaxed);
        let deadline = Instant::now() + Duration::from_secs(120);
        while answered.load(Relaxed) <= so_far + 100 {
            assert!(Instant::now() < deadline, "the new one serves");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    done.store(true, Relaxed);
    for client in clients {
        client.join().expect("no request failed");
    }
}
