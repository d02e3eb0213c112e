//! systemd's watchdog, and the threads that should stop the pings when they hang (sd_notify(3), `WatchdogSec=`).

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use abuse::program::{PATIENCE, Place, Program, ask};
use testkit::wait_for;

use crate::standstill::Standstill;

/// How long systemd would wait for a ping. Two are sent in that time.
const INTERVAL: Duration = Duration::from_secs(1);

/// A service that is silent for this long sends no pings. systemd would have ended it several times.
const SILENCE: Duration = Duration::from_secs(5);

/// How long the thread that writes to a database may take for one transaction.
const WRITE_STUCK: Duration = Duration::from_secs(120);

/// Stands for systemd.
struct Manager(UnixDatagram);

impl Manager {
    fn new(place: &Place) -> Self {
        let socket = UnixDatagram::bind(place.path("notify")).expect("a socket");
        Self(socket)
    }

    /// The service's next message, if it arrives in time.
    fn hear(&self, within: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(within)).expect("a timeout");
        let mut buffer = [0; 1024];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    fn hear_line(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.hear(PATIENCE).is_some_and(|said| said.lines().any(|said| said == line)) {
                return;
            }
        }
        panic!("{line} does not come");
    }

    /// Waits until there are no more pings.
    fn hear_nothing(&self, within: Duration, what: &str) {
        let deadline = Instant::now() + within;
        while let Some(said) = self.hear(SILENCE) {
            assert!(Instant::now() < deadline, "{what}, and the service says {said:?}");
        }
    }
}

/// A service that listens everywhere it can, with two workers of each kind.
struct Watched {
    program: Program,
    manager: Manager,
    public: SocketAddr,
    admin: SocketAddr,
    // The directory is removed after the program has ended.
    _place: Place,
}

/// A target that the public listeners answer with 200.
fn target(name: &str) -> &'static str {
    match name {
        "links" => "/robots.txt",
        "api" => "/openapi.json",
        _ => "/a",
    }
}

impl Watched {
    fn start(name: &str) -> Self {
        let place = Place::new();
        place.file("root/a", "a");
        let own: &[&str] = match name {
            "links" => &["--database", "links.db"],
            "api" => &["--database-url", "sqlite:users.db"],
            _ => &["--root", "root"],
        };
        let tls = place.tls_flags();
        let addresses = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "2"];
        let flags: Vec<&str> =
            addresses.iter().chain(own).copied().chain(tls.iter().map(String::as_str)).collect();
        let manager = Manager::new(&place);
        let (socket, interval) = (place.text("notify"), INTERVAL.as_micros().to_string());
        let variables = [("NOTIFY_SOCKET", &*socket), ("WATCHDOG_USEC", &interval)];
        let program = Program::serve_with(name, &place, &flags, &variables);
        let (public, admin) = (program.listens(name, "http"), program.listens("admin", "http"));
        manager.hear_line("READY=1");
        for _ in 0..3 {
            manager.hear_line("WATCHDOG=1");
        }
        Self { program, manager, public, admin, _place: place }
    }

    /// Makes a thread hang.
    fn stop(&self, thread: &str) -> Standstill {
        let number = self.program.thread(thread);
        Standstill::of(number).unwrap_or_else(|why| panic!("{thread} does not stand still: {why}"))
    }
}

/// Checks that pings stop when this thread hangs, although others continue, and start again when it continues. `stuck`
/// is how long it may hang.
fn hold(name: &str, thread: &str, stuck: Duration) {
    let watched = Watched::start(name);
    let what = format!("{thread} of {name} stands still");
    let still = watched.stop(thread);
    watched.manager.hear_nothing(stuck + PATIENCE, &what);
    // The other threads don't notice.
    let (address, target) = match thread.contains("admin") {
        true => (watched.public, target(name)),
        false => (watched.admin, "/healthz"),
    };
    let answer = ask(address, "GET", target, "Connection: close\r\n", b"").expect("an answer");
    assert_eq!(answer.status, 200, "{what}: {answer:?}");
    drop(still);
    watched.manager.hear_line("WATCHDOG=1");
    println!("{what}: no pings until it went on");
}

/// Does this for each of these threads, each in a new process.
fn hold_all(name: &str, threads: &[&str], stuck: Duration) {
    std::thread::scope(|scope| {
        let holding: Vec<_> =
            threads.iter().map(|thread| scope.spawn(move || hold(name, thread, stuck))).collect();
        holding.into_iter().for_each(|held| held.join().expect("it is held"));
    });
}

// It is always the last worker, which shows that all of them are watched. The kernel stores 15 characters of a thread's
// name.

#[test]
fn links_stops_its_pings_when_any_worker_stands_still() {
    hold_all("links", &["links-1", "links-admin-0"], Duration::from_secs(5));
}

#[test]
fn api_stops_its_pings_when_any_worker_stands_still() {
    hold_all("api", &["api-1", "api-admin-0"], Duration::from_secs(5));
}

#[test]
fn files_stops_its_pings_when_any_worker_stands_still() {
    hold_all("files", &["files-1", "files-tls-1", "files-admin-0"], Duration::from_secs(5));
}

#[test]
fn pings_stop_when_what_writes_to_the_database_stands_still() {
    std::thread::scope(|scope| {
        let holding = ["links", "api"].map(|name| scope.spawn(move || hold(name, "store", WRITE_STUCK)));
        holding.into_iter().for_each(|held| held.join().expect("it is held"));
    });
}

#[test]
fn a_worker_that_ends_by_itself_takes_its_process_along() {
    for (name, thread) in [
        ("links", "links-1"),
        ("links", "links-admin-0"),
        ("api", "api-1"),
        ("api", "api-admin-0"),
        ("files", "files-1"),
        ("files", "files-tls-1"),
        ("files", "files-admin-0"),
    ] {
        let watched = Watched::start(name);
        // The call fails as if the epoll descriptor no longer existed.
        wait_for("a worker that waits for events", || {
            watched.stop(thread).fail_wait(libc::EBADF).expect("it is ours").then_some(())
        });
        let status = watched.program.wait(PATIENCE);
        let log = watched.program.log();
        assert_eq!(status.code(), Some(1), "{name} without {thread}: {log}");
        assert!(log.contains("ERROR") && log.contains("ended"), "{name} without {thread}: {log}");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{name} without {thread}: {log}");
    }
}
