//! What a panic ends: its connection but no other, or a worker and with it the server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use listener::{Offload, Offloaded, Peer, PeerInfo, Protocol};
use service::access_log::{AccessLog, AccessLogArgs, TraceArgs};
use service::panics;
use service::proxies::Source;

use super::*;
use crate::disk::threads::tests::occupy;
use crate::faults;
use crate::response::pending::{PendingWork, WorkOutcome};
use crate::site::root::{DirectoryHint, LookupMode, Symlinks};
use crate::site::{Options, Site};
use crate::threads::interest::Interest;
use crate::tls::service::TlsService;
use crate::transfer::engine::Engine;
use crate::worker::completions::{Completed, CompletionQueue};
use crate::worker::shared::tests::{load, serving};

/// A worker without a thread: a test gives its connections their turns.
fn worker_by_hand(shared: &Arc<SharedState>) -> (state::WorkerState, state::TurnBuffers) {
    let metrics = || shared.metrics.worker(crate::metrics::ListenerKind::Plain);
    let worker = state::WorkerState {
        context: crate::worker::context::WorkerContext::new(shared, metrics(), metrics(), 0),
        completions: Arc::new(CompletionQueue::new().expect("a wakeup")),
        engine: crate::transfer::engine::EngineState::new(Engine::Auto, 1, None, &shared.ghosts),
        waits: std::collections::VecDeque::new(),
    };
    let buffers = state::TurnBuffers { scratch: vec![0; 16 << 10].into(), out: Vec::new(), asked: 0..0 };
    (worker, buffers)
}

/// A connection for such a worker, and its client.
fn connection_by_hand() -> (connection::Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    for stream in [&ours, &theirs] {
        stream.set_nonblocking(true).expect("an option");
    }
    let who = connection::ClientInfo { address: None, permit: None, source: Source::Connection };
    (connection::Connection::new(ours.into(), who, None, Vec::new(), 100), theirs)
}

/// Serves a directory with one worker.
fn serve(root: &Path) -> (Arc<SharedState>, SocketAddr, Vec<JoinHandle<()>>) {
    serve_site(load(root, None))
}

fn serve_site(site: Site) -> (Arc<SharedState>, SocketAddr, Vec<JoinHandle<()>>) {
    panics::install();
    let shared = serving(site);
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let threads = start(&shared, vec![vec![listener]], false).expect("threads");
    (shared, address, threads)
}

fn ask(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("the server reads");
}

/// The status that arrives, and the body, which ends with `end`.
fn receive(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while !text.ends_with(end.as_bytes()) {
        let count = stream.read(&mut buffer).expect("an answer");
        assert_ne!(count, 0, "{:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(text).expect("text")
}

#[test]
fn a_panic_ends_its_connection_and_leaves_the_others_as_they_were() {
    let place = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| std::fs::write(place.path().join(name), text).expect("a file");
    file("a", "text a");
    file("b", "text b");
    file(faults::CACHE, "cache");
    // A file that is sent in parts, and not together with its head.
    file(faults::SENDING, &"x".repeat(100_000));
    std::fs::create_dir(place.path().join(faults::LISTING)).expect("a directory");
    let (shared, address, threads) = serve(place.path());
    let connect = || TcpStream::connect(address).expect("a connection");
    let mut other = connect();
    ask(&mut other, "/a");
    assert!(receive(&mut other, "text a").starts_with("HTTP/1.1 200 "));
    for (path, starts) in [
        (format!("/{}", faults::ANSWER), ""),
        (format!("/{}", faults::CACHE), ""),
        (format!("/{}", faults::SENDING), "HTTP/1.1 200 "),
        (format!("/{}/", faults::LISTING), "HTTP/1.1 200 "),
        // After requests that are answered.
        (format!("/a HTTP/1.1\r\nHost: h\r\n\r\nGET /{}", faults::ANSWER), ""),
    ] {
        let before = panics::count();
        let mut struck = connect();
        ask(&mut struck, &path);
        let mut text = Vec::new();
        // Cut off, so that nobody takes what arrived for the whole body.
        assert!(struck.read_to_end(&mut text).is_err(), "{path}: {:?}", String::from_utf8_lossy(&text));
        assert!(text.starts_with(starts.as_bytes()) || text.is_empty(), "{path}");
        assert!(panics::count() > before, "{path}");
        for stream in [&mut other, &mut connect()] {
            ask(stream, "/b");
            assert!(receive(stream, "text b").starts_with("HTTP/1.1 200 "), "{path}");
            ask(stream, "/a");
            assert!(receive(stream, "text a").starts_with("HTTP/1.1 200 "), "{path}");
        }
    }
    // A connection learns that a job failed, and continues.
    ask(&mut other, &format!("/{}", faults::LOOKUP));
    assert!(receive(&mut other, "}").starts_with("HTTP/1.1 500 "));
    ask(&mut other, "/a");
    assert!(receive(&mut other, "text a").starts_with("HTTP/1.1 200 "));
    drop(other);
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    assert!(shared.shutdown.outcome().is_ok());
}

#[test]
fn files_in_memory_do_not_wait_behind_those_that_need_a_slow_disk() {
    const FILES: usize = 9;
    let place = tempfile::tempdir().expect("a directory");
    (0..FILES).for_each(|number| {
        std::fs::write(place.path().join(format!("f{number}")), format!("text {number}")).expect("a file");
    });
    let options = Options {
        origin: None,
        root: place.path().to_owned(),
        rules: None,
        symlinks: Symlinks::Beneath,
        hidden: false,
        listing: false,
        // What isn't there need not be in memory.
        precompressed: false,
        charset: String::new(),
    };
    let site = Site::load(&options).expect("a site");
    if site.find(b"f0", LookupMode::CachedOnly, DirectoryHint::Unknown).is_err() {
        let test = "files_in_memory_do_not_wait_behind_those_that_need_a_slow_disk";
        return bench::skipped(test, "this file system always has look-ups wait");
    }
    let (shared, address, threads) = serve_site(site);
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    // Until nearly all look-ups are passed on at once, and would be for longer than there are files.
    for number in 0..400 {
        ask(&mut client, &format!("/none-{number}"));
        assert!(receive(&mut client, "}").starts_with("HTTP/1.1 404 "));
    }
    let end = occupy(&shared.disk);
    let mut waits = TcpStream::connect(address).expect("a connection");
    ask(&mut waits, "/none");
    testkit::until("the threads are behind", || shared.disk.is_behind());
    for number in 0..FILES {
        ask(&mut client, &format!("/f{number}"));
        let answer = receive(&mut client, &format!("text {number}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{number}: {answer}");
    }
    end.wait();
    assert!(receive(&mut waits, "}").starts_with("HTTP/1.1 404 "));
    drop((client, waits));
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}

#[test]
fn a_worker_that_ends_ends_the_server() {
    let place = tempfile::tempdir().expect("a directory");
    let (shared, address, threads) = serve(place.path());
    let mut client = TcpStream::connect(address).expect("a connection");
    ask(&mut client, &format!("/{}", faults::LOOP));
    assert!(threads.into_iter().all(|thread| thread.join().is_err()));
    assert!(shared.shutdown.is_triggered() && shared.shutdown.outcome().is_err());
}

#[test]
fn who_connects_in_the_round_that_draining_begins_in_is_served() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), "text a").expect("a file");
    let (shared, address, threads) = serve(place.path());
    let mut first = TcpStream::connect(address).expect("a connection");
    ask(&mut first, &format!("/{}", faults::PAUSE));
    faults::PAUSED[0].wait();
    // The worker learns of it in this order.
    shared.shutdown.trigger();
    shared.wake();
    // More than are accepted in a round.
    let mut last: Vec<_> = (0..80).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    last.iter_mut().for_each(|client| ask(client, "/a"));
    faults::PAUSED[1].wait();
    assert!(receive(&mut first, "}").starts_with("HTTP/1.1 404 "));
    for client in &mut last {
        assert!(receive(client, "text a").starts_with("HTTP/1.1 200 "));
    }
    drop((first, last));
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    assert!(shared.shutdown.outcome().is_ok());
}

#[test]
fn a_connection_that_tls_hands_over_once_draining_has_begun_is_served() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), "text a").expect("a file");
    let (shared, address, threads) = serve(place.path());
    let tls = ktls::Handover::new(&shared);
    shared.shutdown.trigger();
    shared.wake();
    // Until nobody listens any more: a worker that doesn't wait for the TLS listener has ended then, or is about to.
    while TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let (socket, _) = listener.accept().expect("a connection");
    socket.set_nonblocking(true).expect("a socket");
    let peer = PeerInfo {
        remote: None,
        local: None,
        uid: None,
        protocol: Protocol::Http1,
        tls: None,
        address_rate: None,
        proxies: None,
    };
    ask(&mut client, "/a");
    tls.take(Offloaded {
        socket: socket.into(),
        peer: Peer::new(peer),
        address: None,
        received: Vec::new(),
        alt_svc: Box::default(),
    });
    drop(tls);
    // An alert follows, which nobody encrypts here.
    let answer = receive(&mut client, "text a\u{1}\0");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    drop(client);
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    assert!(shared.shutdown.outcome().is_ok());
}

#[tokio::test]
async fn a_panic_behind_tls_is_an_answer_of_500_and_the_next_is_served() {
    let place = tempfile::tempdir().expect("a directory");
    for name in ["a", faults::CACHE, faults::LOOKUP] {
        std::fs::write(place.path().join(name), "text").expect("a file");
    }
    let (shared, _, threads) = serve(place.path());
    let mut service = TlsService::new(Arc::clone(&shared));
    for (name, status) in
        [("a", 200), (faults::CACHE, 500), ("a", 200), ("fault-lookup-none", 500), ("a", 200)]
    {
        let request = http::Request::builder().uri(format!("https://h/{name}")).body(()).expect("a request");
        let response = tower_service::Service::call(&mut service, request).await.expect("an answer");
        assert_eq!(response.status(), status, "{name}");
    }
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}

#[test]
fn a_client_that_never_pauses_has_turns_as_others_have() {
    let place = tempfile::tempdir().expect("a directory");
    let (shared, _, threads) = serve(place.path());
    let (mut worker, mut buffers) = worker_by_hand(&shared);
    let (mut connection, mut client) = connection_by_hand();
    // An endless body that nobody wants.
    client.write_all(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\n\r\n").expect("room");
    let mut fill = || std::iter::from_fn(|| client.write(&[b'x'; 8192]).ok()).sum::<usize>();
    assert!(fill() > 100_000, "more than is read in a turn");
    for turn in 0..10 {
        assert_eq!(connection.turn(&mut worker, &mut buffers, 0), connection::NextStep::Turn, "{turn}");
        fill();
    }
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}

#[test]
fn an_archive_is_planned_once_however_long_that_takes() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(place.path().join("d")).expect("a directory");
    std::fs::write(place.path().join("d/a"), "text").expect("a file");
    let rules = place.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\npath = '*'\narchive = ['zip']\n").expect("rules");
    let (shared, _, threads) = serve(place.path());
    shared.replace(load(place.path(), Some(rules)));
    let (mut worker, mut buffers) = worker_by_hand(&shared);
    worker.context.refresh();
    let (mut connection, mut client) = connection_by_hand();
    client.write_all(b"GET /d/?archive=zip HTTP/1.1\r\nHost: h\r\n\r\n").expect("room");
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut plans = 0;
    while connection.turn(&mut worker, &mut buffers, 0) == connection::NextStep::Wait
        && let Some((_, work, site)) = worker.waits.pop_front()
    {
        plans += usize::from(matches!(work, PendingWork::PlanArchive(_)));
        assert!(plans < 2, "it is planned again");
        let sender = sender.clone();
        let done = move |outcome| sender.send(outcome).expect("it is received");
        shared.resolve(work, site, Interest::ALWAYS, done);
        connection.done(Completed::Work(receiver.recv().expect("an outcome")), 100);
        // Longer than what was found of the directory counts.
        (0..100).for_each(|_| worker.context.tick());
    }
    let mut answer = [0; 64];
    let count = client.read(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..count]);
    assert!(plans == 1 && answer.starts_with("HTTP/1.1 200 "), "{plans} {answer}");
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}

#[test]
fn a_page_that_is_not_compressed_is_sent_as_it_is_where_a_missing_path_leads() {
    let place = tempfile::tempdir().expect("a directory");
    let page = place.path().join("index.html");
    std::fs::write(&page, "text ".repeat(1000)).expect("a file");
    // What has just changed is not compressed.
    let file = std::fs::File::options().write(true).open(&page).expect("the file");
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).expect("a time");
    let rules = place.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\npath = '*'\nfallback = '/index.html'\ncompress = true\n")
        .expect("rules");
    let (shared, _, threads) = serve(place.path());
    shared.replace(load(place.path(), Some(rules)));
    let (mut worker, mut buffers) = worker_by_hand(&shared);
    worker.context.refresh();
    let (mut connection, mut client) = connection_by_hand();
    client.write_all(b"HEAD /x HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n").expect("room");
    let mut encodings = 0;
    while connection.turn(&mut worker, &mut buffers, 0) == connection::NextStep::Wait
        && let Some((_, work, site)) = worker.waits.pop_front()
    {
        let outcome = match work {
            PendingWork::Lookup(lookup) => {
                let (path, found) = lookup.into_found(&site, LookupMode::MayBlock);
                WorkOutcome::Found(path, found)
            }
            // As if there were no room for one.
            PendingWork::Encode { .. } => {
                encodings += 1;
                WorkOutcome::Encoded
            }
            work => panic!("{work:?}"),
        };
        connection.done(Completed::Work(outcome), 100);
    }
    let mut head = [0; 64];
    let count = client.read(&mut head).expect("an answer");
    let head = String::from_utf8_lossy(&head[..count]);
    assert!(encodings == 1 && head.starts_with("HTTP/1.1 200 "), "{encodings} {head}");
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}

#[test]
fn what_was_found_on_a_site_that_was_replaced_is_no_answer() {
    let place = tempfile::tempdir().expect("a directory");
    for root in ["first", "old", "new"] {
        std::fs::create_dir(place.path().join(root)).expect("a directory");
        std::fs::write(place.path().join(root).join("x"), format!("of {root}")).expect("a file");
    }
    let first = place.path().join("first");
    let site = |host: &str, root: &str| format!("[[site]]\nhosts = ['{host}']\nroot = '{root}'\n");
    let replaced = |sites: &[String]| {
        let rules = place.path().join("rules.toml");
        std::fs::write(&rules, format!("unknown-hosts = 'refuse'\n{}", sites.concat())).expect("rules");
        load(&first, Some(rules))
    };
    let (shared, _, threads) = serve(&first);
    let (mut worker, mut buffers) = worker_by_hand(&shared);
    let find = |(_, wait, site): (_, PendingWork, Arc<Site>)| {
        let PendingWork::Lookup(lookup) = wait else { panic!("it is a look-up") };
        let (path, found) = lookup.into_found(&site, LookupMode::MayBlock);
        Completed::Work(WorkOutcome::Found(path, found))
    };
    let other = site("b.example", "first");
    for (after, starts, ends) in [
        (vec![other.clone()], "HTTP/1.1 421 ", "}"),
        (vec![other.clone(), site("a.example", "new")], "HTTP/1.1 200 ", "of new"),
    ] {
        shared.replace(replaced(&[other.clone(), site("a.example", "old")]));
        worker.context.refresh();
        let (mut connection, mut client) = connection_by_hand();
        let ask = |client: &mut UnixStream, host: &str| {
            write!(client, "GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("room");
        };
        ask(&mut client, "a.example");
        assert_eq!(connection.turn(&mut worker, &mut buffers, 0), connection::NextStep::Wait);
        let found = find(worker.waits.pop_front().expect("it waits"));
        shared.replace(replaced(&after));
        worker.context.refresh();
        connection.done(found, 100);
        let mut receive = |client: &mut UnixStream| {
            for _ in 0..20 {
                let next = connection.turn(&mut worker, &mut buffers, 0);
                match worker.waits.pop_front() {
                    Some(wait) => connection.done(find(wait), 100),
                    None if next == connection::NextStep::Wait => {
                        let mut answer = [0; 4096];
                        let count = client.read(&mut answer).expect("an answer");
                        connection.woken(true, true, false);
                        return String::from_utf8_lossy(&answer[..count]).into_owned();
                    }
                    None => {}
                }
            }
            panic!("it has turn after turn, and nothing to do")
        };
        let answer = receive(&mut client);
        assert!(answer.starts_with(starts) && answer.ends_with(ends), "{answer}");
        // Nothing of it is left for the next request.
        ask(&mut client, "b.example");
        let answer = receive(&mut client);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("of first"), "{answer}");
    }
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}

#[test]
fn a_request_that_waits_behind_answers_that_are_still_sent_has_its_own_line_in_the_log() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("log");
    let args = AccessLogArgs {
        access_log: Some(path.display().to_string().parse().expect("a destination")),
        access_log_sample: NonZero::<u64>::MIN,
        traces: TraceArgs { otlp: None, otlp_sample: NonZero::<u64>::MIN },
    };
    let log = AccessLog::open(&args, "test").expect("it opens").expect("it is asked for");
    let (shared, _, threads) = serve(place.path());
    let (mut worker, mut buffers) = worker_by_hand(&shared);
    worker.context.log = Some(log.lines());
    let (mut connection, mut client) = connection_by_hand();
    // The least that the kernel grants, so that it does not take all answers at once.
    rustix::net::sockopt::set_socket_send_buffer_size(&connection.stream, 1).expect("an option");
    let asked = "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n".repeat(200);
    client.write_all(asked.as_bytes()).expect("room");
    client.write_all(b"GET /missing HTTP/1.1\r\nHost: h\r\n\r\n").expect("room");
    assert_eq!(connection.turn(&mut worker, &mut buffers, 0), connection::NextStep::Wait);
    let Some((_, PendingWork::Lookup(lookup), site)) = worker.waits.pop_front() else { panic!("it waits") };
    let (name, found) = lookup.into_found(&site, LookupMode::MayBlock);
    connection.done(Completed::Work(WorkOutcome::Found(name, found)), 100);
    let (mut answers, mut part) = (Vec::new(), [0; 4096]);
    for _ in 0..100 {
        connection.woken(true, true, false);
        connection.turn(&mut worker, &mut buffers, 0);
        while let Ok(count @ 1..) = client.read(&mut part) {
            answers.extend_from_slice(&part[..count]);
        }
    }
    assert!(answers.ends_with(b"}"), "{}", String::from_utf8_lossy(&answers));
    worker.context.flush_log();
    log.finish();
    let text = std::fs::read_to_string(&path).expect("a log");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64()).collect();
    assert_eq!(statuses, [vec![Some(204); 200], vec![Some(404)]].concat());
    assert!(lines[200]["bytes"].as_u64() > Some(0), "{}", lines[200]);
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}

#[test]
fn reads_that_the_kernel_has_no_room_for_are_tried_again_before_the_next_tick() {
    let test = "reads_that_the_kernel_has_no_room_for_are_tried_again_before_the_next_tick";
    // On a separate thread: the end of a ring interrupts whatever its thread waits for.
    let has_ring = std::thread::spawn(move || crate::disk::ring::for_test(test, 0).is_some());
    if !has_ring.join().expect("no panic") {
        return;
    }
    // On a disk, where a file can be cold.
    let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    let path = place.path().join(faults::RING);
    std::fs::write(&path, "x".repeat(99_997) + "end").expect("a file");
    let file = std::fs::File::open(&path).expect("the file");
    let (shared, address, threads) = serve(place.path());
    let mut client = TcpStream::connect(address).expect("a connection");
    // One of several that were refused is fast, since this machine may have other work.
    let refused = || faults::RING_REFUSED.load(std::sync::atomic::Ordering::Relaxed);
    let mut took = (0..50).filter_map(|_| {
        let limit = std::time::Instant::now() + Duration::from_secs(30);
        while crate::disk::resident::is_resident(&file, &(0..100_000)) {
            assert!(std::time::Instant::now() < limit, "it stays in memory");
            file.sync_all().expect("written");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is taken");
        }
        let (before, begun) = (refused(), std::time::Instant::now());
        ask(&mut client, &format!("/{}", faults::RING));
        assert!(receive(&mut client, "end").starts_with("HTTP/1.1 200 "));
        (refused() > before).then(|| begun.elapsed())
    });
    let fast = took.find(|took| *took < crate::worker::context::TICK / 2);
    assert!(refused() > 0, "nothing was refused");
    assert!(fast.is_some(), "none is fast");
    drop(client);
    shared.shutdown.trigger();
    shared.wake();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
}
