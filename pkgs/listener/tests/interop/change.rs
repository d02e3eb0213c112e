//! What changes under load without a client noticing.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use rustix::process::Signal;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};

use crate::client::{ClientProtocol, Failure, Target};
use crate::load::{Load, LoadRequest, PATIENCE};
use crate::server::Server;

/// A server that is told to stop waits for every connected client, since this machine may be slow. Otherwise, a client
/// that cannot send for longer than connections are kept would lose its request.
const WAITING: [&str; 4] = ["--drain", "60000", "--drain-grace", "60000"];

#[tokio::test]
async fn draining_loses_no_request() {
    for protocol in ClientProtocol::ALL {
        let server = Server::start(&WAITING);
        let target = Target::new(server.clear, server.secure, &server.certificate.all());
        let load = Load::start(&target, protocol, 16, LoadRequest::of("/wait/20", "waited"));
        load.answers(200).await;
        load.leaving();
        server.signal(Signal::TERM);
        let ended = tokio::task::spawn_blocking(move || server.wait(PATIENCE)).await.expect("no panic");
        assert!(ended.success(), "{protocol:?}: {ended}");
        load.end().await;
    }
}

#[tokio::test]
async fn a_client_that_is_held_up_when_draining_begins_loses_no_request() {
    for protocol in ClientProtocol::ALL {
        let server = Server::start(&WAITING);
        let target = Target::new(server.clear, server.secure, &server.certificate.all());
        let mut connection = target.connect(protocol).await.expect("it listens");
        connection.ask("/").await.expect("an answer");
        server.signal(Signal::TERM);
        // Nothing in this client runs meanwhile, as on a busy machine.
        std::thread::sleep(Duration::from_secs(3));
        match connection.ask("/").await {
            Ok((status, _)) => assert_eq!(status, 200, "{protocol:?}"),
            Err(Failure::Unprocessed) => {}
            Err(failure) => panic!("{protocol:?}: {failure:?}"),
        }
        drop(connection);
        let ended = tokio::task::spawn_blocking(move || server.wait(PATIENCE)).await.expect("no panic");
        assert!(ended.success(), "{protocol:?}: {ended}");
    }
}

#[tokio::test]
async fn a_certificate_is_replaced_without_losing_a_request() {
    let server = Server::start(&[]);
    let before = server.certificate.all();
    server.certificate.renew();
    let all = server.certificate.all();
    let target = Target::new(server.clear, server.secure, &all);
    for protocol in [ClientProtocol::Http1Tls, ClientProtocol::Http2Tls, ClientProtocol::Http3] {
        let shown = target.connect(protocol).await.expect("it listens").certificate;
        assert_eq!(shown, before.first().cloned(), "{protocol:?}: files alone change nothing yet");
    }
    let loads: Vec<_> = [ClientProtocol::Http1Tls, ClientProtocol::Http2Tls, ClientProtocol::Http3]
        .map(|protocol| (protocol, Load::start(&target, protocol, 8, LoadRequest::of("/", "Hello, World!"))))
        .into();
    for (_, load) in &loads {
        load.answers(100).await;
    }
    server.signal(Signal::HUP);
    for (protocol, load) in loads {
        // Everybody who connects from now on sees it, as soon as the server has read it.
        loop {
            let shown = target.connect(protocol).await.expect("it listens").certificate;
            if shown == all.last().cloned() {
                break;
            }
            assert_eq!(shown, before.first().cloned(), "{protocol:?}");
        }
        load.answers(100).await;
        load.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_follow_each_other_faster_than_they_drain_lose_no_request() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("handover").display().to_string();
    // No process ends before all have started.
    let arguments = ["--handover", &path, "--drain", "60000"];
    let mut server = Server::start_on_ports(&arguments);
    let target = Target::new(server.clear, server.secure, &server.certificate.all());
    let mut answers = tokio::task::JoinSet::new();
    let mut draining = Vec::new();
    let offer =
        || std::fs::metadata(&path).ok().map(|socket| (socket.ino(), socket.ctime(), socket.ctime_nsec()));
    let mut last = None;
    for _ in 0..4 {
        for protocol in [ClientProtocol::Http2Tls, ClientProtocol::Http3] {
            answers.spawn(long_answer(target.clone(), protocol));
        }
        // By now, the requests are in progress.
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Waits until the newest process offers the sockets itself.
        while offer().is_none() || offer() == last {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        last = offer();
        let next = server.successor(&arguments);
        draining.push(std::mem::replace(&mut server, next));
    }
    while let Some(answer) = answers.join_next().await {
        answer.expect("no panic");
    }
    for old in draining {
        let ended = tokio::task::spawn_blocking(move || old.wait(PATIENCE)).await.expect("no panic");
        assert!(ended.success(), "{ended}");
    }
}

/// Requests a long answer, which takes seconds in which the process may change several times. It consists of many
/// datagrams in each direction.
async fn long_answer(target: Target, protocol: ClientProtocol) {
    loop {
        let mut connection = target.connect(protocol).await.expect("it listens");
        match connection.ask("/drip/120/50").await {
            Ok((status, body)) => {
                return assert_eq!(
                    (status.as_u16(), body.len()),
                    (200, 120 * "drop\n".len()),
                    "{protocol:?}"
                );
            }
            // The process was told to stop before it saw the request; there is another by now.
            Err(Failure::Unprocessed) => {}
            Err(failure) => panic!("{protocol:?}: {failure:?}"),
        }
    }
}

#[tokio::test]
async fn a_new_process_takes_over_without_losing_a_request() {
    for protocol in ClientProtocol::ALL {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("handover").display().to_string();
        let arguments = [&WAITING[..], &["--handover", &path]].concat();
        let mut server = Server::start_on_ports(&arguments);
        let target = Target::new(server.clear, server.secure, &server.certificate.all());
        let load = Load::start(&target, protocol, 16, LoadRequest::of("/wait/5", "waited"));
        for _ in 0..3 {
            load.answers(200).await;
            let next = server.successor(&arguments);
            let old = std::mem::replace(&mut server, next);
            let ended = tokio::task::spawn_blocking(move || old.wait(PATIENCE)).await.expect("no panic");
            assert!(ended.success(), "{protocol:?}: {ended}");
        }
        load.answers(200).await;
        load.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_a_connection_with_a_process_that_was_killed_is_told_so_by_the_next() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("handover").display().to_string();
    let arguments = [&WAITING[..], &["--handover", &path]].concat();
    let server = Server::start_on_ports(&arguments);
    let target = Target::new(server.clear, server.secure, &server.certificate.all());
    let (_endpoint, connection) = target.quic().await.expect("it listens");
    let next = server.successor(&arguments);
    assert_eq!(connection.close_reason(), None, "it is kept while its process drains");
    drop(server);
    // Without any packets it would be given up after 30 s, as lost.
    let mut stream = connection.open_uni().await.expect("it does not know yet");
    stream.write_all(&[0x21; 64]).await.expect("nor does it now");
    let ended = tokio::time::timeout(PATIENCE, connection.closed()).await.expect("it is told");
    assert_eq!(ended, quinn::ConnectionError::Reset);
    drop(next);
}

/// A path to a server on which some 1 MB/s comes back, with a queue of 30 datagrams.
async fn narrow(server: SocketAddr) -> SocketAddr {
    let (front, back) = sockets(server).await;
    let (front, back) = (Arc::new(front), Arc::new(back));
    let address = front.local_addr().expect("an address");
    let (queue, mut queued) = mpsc::channel::<(Vec<u8>, SocketAddr)>(30);
    tokio::spawn({
        let front = Arc::clone(&front);
        async move {
            while let Some((datagram, client)) = queued.recv().await {
                let _ = front.send_to(&datagram, client).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    tokio::spawn(async move {
        let mut client = server;
        let (mut sent, mut received) = ([0; 2_000], [0; 2_000]);
        loop {
            tokio::select! {
                Ok((count, from)) = front.recv_from(&mut sent) => {
                    client = from;
                    let _ = back.send(&sent[..count]).await;
                }
                Ok(count) = back.recv(&mut received) => {
                    // What has no room is lost.
                    let _ = queue.try_send((received[..count].to_vec(), client));
                }
            }
        }
    });
    address
}

#[tokio::test]
async fn a_download_that_ends_while_its_server_drains_arrives_whole() {
    const LENGTH: usize = 3 << 20;
    let server = Server::start(&["--drain-grace", "200", "--drain", "60000"]);
    let target = Target::new(server.clear, narrow(server.secure).await, &server.certificate.all());
    let mut connection = target.connect(ClientProtocol::Http3).await.expect("it listens");
    connection.ask("/").await.expect("an answer");
    let path = format!("/bytes/{LENGTH}");
    let mut download = std::pin::pin!(connection.ask(&path));
    let begun = tokio::time::timeout(Duration::from_secs(1), download.as_mut()).await;
    assert!(begun.is_err(), "it takes longer");
    server.signal(Signal::TERM);
    let (status, body) = download.await.expect("an answer");
    assert_eq!((status.as_u16(), body.len()), (200, LENGTH));
}

/// A path to a server on which nothing comes back: handshakes stay half open.
async fn one_way(server: SocketAddr) -> SocketAddr {
    let (front, back) = sockets(server).await;
    let address = front.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut datagram = [0; 2_000];
        while let Ok((count, _)) = front.recv_from(&mut datagram).await {
            let _ = back.send(&datagram[..count]).await;
        }
    });
    address
}

/// A path to a server for a client that has to prove its address (RFC 9000, section 8.1.2). The proof is held back
/// until it may `go`.
struct Held {
    address: SocketAddr,
    /// Whether the client has to prove its address.
    retried: Arc<AtomicBool>,
    go: Arc<Notify>,
}

impl Held {
    async fn new(server: SocketAddr) -> Self {
        let (front, back) = sockets(server).await;
        let address = front.local_addr().expect("an address");
        let (retried, go) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (told, gone) = (Arc::clone(&retried), Arc::clone(&go));
        tokio::spawn(async move {
            let (mut client, mut held) = (server, Vec::new());
            let (mut sent, mut received) = ([0; 2_000], [0; 65_535]);
            let mut holding = false;
            loop {
                tokio::select! {
                    Ok((count, from)) = front.recv_from(&mut sent) => {
                        client = from;
                        match holding {
                            true => held.push(sent[..count].to_vec()),
                            false => drop(back.send(&sent[..count]).await),
                        }
                    }
                    Ok(count) = back.recv(&mut received) => {
                        // The form, the fixed bit and the type (section 17.2.5).
                        if received[0] & 0xf0 == 0xf0 {
                            holding = true;
                            told.store(true, SeqCst);
                        }
                        let _ = front.send_to(&received[..count], client).await;
                    }
                    () = gone.notified() => {
                        holding = false;
                        for datagram in held.drain(..) {
                            let _ = back.send(&datagram).await;
                        }
                    }
                }
            }
        });
        Self { address, retried, go }
    }
}

/// A socket for a client, and one to a server.
pub async fn sockets(server: SocketAddr) -> (UdpSocket, UdpSocket) {
    let any = || UdpSocket::bind("127.0.0.1:0");
    let (front, back) = (any().await.expect("a socket"), any().await.expect("a socket"));
    back.connect(server).await.expect("an address");
    (front, back)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_to_prove_an_address_connects_whichever_process_is_there_by_then() {
    for killed in [false, true] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("handover").display().to_string();
        let arguments = [&WAITING[..], &["--workers", "1", "--handover", &path]].concat();
        let server = Server::start_on_ports(&arguments);
        let certificates = server.certificate.all();
        let by = |address| Target::new(server.clear, address, &certificates);
        // The server has one connection, for which it stays.
        let kept = by(server.secure).quic().await.expect("it listens");
        // There are so many handshakes that the server makes new clients prove their addresses.
        let mut crowd = tokio::task::JoinSet::new();
        let sink = one_way(server.secure).await;
        for _ in 0..100 {
            let target = by(sink);
            crowd.spawn(async move { target.quic().await.map(drop) });
        }
        let begun = std::time::Instant::now();
        let (held, connecting) = loop {
            assert!(begun.elapsed() < PATIENCE, "nobody has to prove an address");
            let held = Held::new(server.secure).await;
            let target = by(held.address);
            let connecting = tokio::spawn(async move { target.quic().await });
            while !connecting.is_finished() && !held.retried.load(SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if held.retried.load(SeqCst) {
                break (held, connecting);
            }
        };
        let next = tokio::task::block_in_place(|| server.successor(&arguments));
        let old = (!killed).then_some(server);
        held.go.notify_one();
        let connected = tokio::time::timeout(PATIENCE, connecting).await.expect("it ends").expect("no panic");
        connected.unwrap_or_else(|error| panic!("killed {killed}: {error}"));
        drop((kept, crowd, old, next));
    }
}
