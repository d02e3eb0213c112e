//! `reload`, as a service manager runs it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketType, accept_with, bind, listen, recv, send, socket_with,
};
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Server, until};

use crate::manager::{Manager, Told};

const BINARY: &str = env!("CARGO_BIN_EXE_linerate-files");

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// More than fits between a server and a client that doesn't read.
const LARGE: usize = 64 << 20;

/// Variables and their values.
type Environment<'e> = &'e [(&'e str, &'e str)];

/// The setup of a service.
struct Place {
    directory: tempfile::TempDir,
    address: SocketAddr,
    /// A second address, where it also listens.
    also: Option<SocketAddr>,
    manager: Manager,
    /// The socket through which processes contact each other.
    handover: &'static str,
    /// Processes that this test didn't start itself.
    orphans: Vec<u32>,
}

impl Place {
    fn new() -> Self {
        static PORT: AtomicU16 = AtomicU16::new(7_000);
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir(&root).expect("a directory");
        fs::write(root.join("page.txt"), "It works").expect("a file");
        File::create(root.join("large")).and_then(|file| file.set_len(LARGE as u64)).expect("a file");
        // A loopback address that nobody else uses.
        let [.., third, fourth] = std::process::id().to_be_bytes();
        let address = ([127, 79, third, fourth], PORT.fetch_add(2, Relaxed)).into();
        let manager = Manager::new(directory.path());
        Self { directory, address, also: None, manager, handover: "handover", orphans: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Its flags, after its command.
    fn flags(&self) -> Vec<String> {
        let path = |name: &str| self.path(name).display().to_string();
        let mut flags = vec!["--root".to_owned(), path("root"), "--handover".to_owned(), path(self.handover)];
        for address in [Some(self.address), self.also].into_iter().flatten() {
            flags.extend(["--listen".to_owned(), address.to_string()]);
        }
        flags.extend(
            ["--workers", "2", "--drain-timeout", "3600", "--write-timeout", "3600"].map(str::to_owned),
        );
        flags
    }

    /// The first process, started like a main process.
    fn serve(&self) -> Server {
        let mut launch = Server::program(BINARY).arg("serve").args(self.flags());
        for (name, value) in self.manager.environment() {
            launch = launch.env(name, value);
        }
        launch.env("LINERATE_UNIT", "one").env("LINERATE_UNIT_CREDENTIALS", "one").start()
    }

    /// `reload`, with this main process, these additional flags and these changes to its environment.
    fn reloads(&self, main: Option<u32>, flags: &[&str], environment: Environment<'_>) -> Child {
        let file = |name: &str| {
            let file = File::options().create(true).append(true).open(self.path(name));
            Stdio::from(file.expect("a directory"))
        };
        let mut command = Command::new(BINARY);
        // The output goes to files, which the process that stays behind may keep open as long as it likes.
        command.arg("reload").args(self.flags()).args(flags).stdout(file("said")).stderr(file("errors"));
        command.env("LINERATE_UNIT", "one").env("LINERATE_UNIT_CREDENTIALS", "one").stdin(Stdio::null());
        command.envs(environment.iter().copied());
        if let Some(main) = main {
            command.env("MAINPID", main.to_string());
        }
        command.spawn().expect("it runs")
    }

    /// Runs `reload` to its end, and returns its exit code.
    fn reload(&self, main: Option<u32>, flags: &[&str], environment: Environment<'_>) -> Option<i32> {
        self.reloads(main, flags, environment).wait().expect("a child").code()
    }

    /// The process that serves after another has given up its place, which knows of that.
    fn next(&mut self, after: &Server) -> u32 {
        let next = self.manager.hears_of_the_next(after.id());
        self.orphans.push(next);
        until("it is followed", || after.log().contains("another process has taken over"));
        next
    }

    /// What was printed on standard output, or as errors.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("nobody is refused");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
        stream
    }

    fn answers(&self) {
        let mut answer = String::new();
        self.ask("/page.txt").read_to_string(&mut answer).expect("an answer and the end");
        assert!(answer.ends_with("\r\n\r\nIt works"), "{answer}");
    }

    /// Starts to read a long response.
    fn begins(&self) -> TcpStream {
        let mut stream = self.ask("/large");
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("it answers");
        assert_eq!(&head, b"HTTP/1.1 200");
        stream
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Kills every process that has sent a notification: if a test fails, not all of them are known otherwise.
        let told = self.manager.told();
        let next = told.iter().filter_map(|told| told.line.strip_prefix("MAINPID=")?.parse().ok());
        for id in told.iter().map(|told| told.by).chain(next).chain(self.orphans.iter().copied()) {
            if fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|program| program == Path::new(BINARY)) {
                signal(id, Signal::KILL);
            }
        }
        if thread::panicking() {
            eprintln!(
                "said: {}\nerrors: {}\ntold: {:?}",
                self.read("said"),
                self.read("errors"),
                self.manager.told()
            );
        }
    }
}

/// Whether it has ended, though perhaps nobody has asked how: it is no child of this process.
fn has_ended(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

fn process(id: u32) -> Pid {
    Pid::from_raw(id.try_into().expect("a number")).expect("a process")
}

fn signal(id: u32, signal: Signal) {
    let _ = kill_process(process(id), signal);
}

/// Reads a started response to its end.
fn is_whole(mut stream: TcpStream) {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("no connection is lost");
    let body = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    assert_eq!(rest.len() - body, LARGE);
}

#[test]
fn what_differs_is_taken_over_by_a_process_that_the_manager_hears_alone() {
    let cases: [(&[&str], Environment<'_>, &str); 2] = [
        (&["--open-files", "512"], &[], "other settings: a new process serves\n"),
        (&[], &[("LINERATE_UNIT", "two")], "another unit: a new process serves\n"),
    ];
    for (flags, environment, said) in cases {
        let mut place = Place::new();
        let old = place.serve();
        place.manager.hears(old.id(), "WATCHDOG=1");
        let kept = place.manager.kept();
        let download = place.begins();
        assert_eq!(place.reload(Some(old.id()), flags, environment), Some(0), "{}", place.read("errors"));
        // The new process's output is there too, before or after this.
        assert!(place.read("said").contains(said), "{}", place.read("said"));
        let next = place.next(&old);
        // The new process answers: the old one is still there, but no longer accepts connections.
        place.answers();
        assert_eq!(old.has_ended(), None, "{}", old.log());
        place.manager.hears(next, "READY=1");
        place.manager.hears(next, "WATCHDOG=1");
        assert_eq!(place.manager.kept(), 2 * kept, "it has them kept, and no others");
        is_whole(download);
        assert_eq!(old.wait(PATIENCE).code(), Some(0), "{}", old.log());

        let told = place.manager.told();
        let at = told.iter().position(|told| told.line == format!("MAINPID={next}")).expect("it was heard");
        let by = |told: &[Told], id: u32| told.iter().all(|told| told.by == id);
        assert!(by(&told[..=at], old.id()) && by(&told[at + 1..], next), "{told:?}");
        assert!(!told.iter().any(|told| told.line.starts_with("STOPPING")), "{told:?}");

        // The manager still keeps the sockets when that process is gone.
        signal(next, Signal::KILL);
        until("its end", || has_ended(next));
        TcpStream::connect(place.address).expect("nobody is refused");
    }
}

#[test]
fn of_three_in_a_row_each_is_told_of_by_the_one_before_and_all_of_the_end_of_the_last() {
    let mut place = Place::new();
    let first = place.serve();
    let download = place.begins();
    let mut main = first.id();
    for round in 0..3 {
        let open_files = (512 + round).to_string();
        assert_eq!(place.reload(Some(main), &["--open-files", &open_files], &[]), Some(0));
        let next = testkit::wait_for("the next", || {
            let told = place.manager.told();
            let mut by_main = told.iter().filter(|told| told.by == main);
            by_main.find_map(|told| told.line.strip_prefix("MAINPID=")?.parse().ok())
        });
        place.orphans.push(next);
        place.manager.hears(next, "READY=1");
        place.answers();
        main = next;
    }
    // Of the earlier processes, only the first has not ended. It learns of the last one's end.
    first.signal(Signal::TERM);
    until("it drains on", || first.log().contains("this one drains on"));
    assert_eq!(first.has_ended(), None, "{}", first.log());
    signal(main, Signal::KILL);
    assert_eq!(first.wait(PATIENCE).code(), Some(143), "{}", first.log());
    drop(download);
}

#[test]
fn what_is_listened_on_no_more_is_kept_no_more_and_what_is_new_is() {
    let mut place = Place::new();
    let other = SocketAddr::new(place.address.ip(), place.address.port() + 1);
    place.also = Some(other);
    let old = place.serve();
    let changed = SocketAddr::new(place.address.ip(), place.address.port() + 20_000);
    place.also = Some(changed);
    assert_eq!(place.reload(Some(old.id()), &[], &[]), Some(0), "{}", place.read("errors"));
    let next = place.next(&old);
    place.manager.hears(next, "READY=1");
    let name = |address: SocketAddr| format!("FDNAME=kept tcp {}", address.to_string().replace(':', "_"));
    let told = place.manager.told();
    let by_next = |line: &str| told.iter().filter(|told| told.by == next && told.line == line).count();
    assert_eq!((by_next("FDSTOREREMOVE=1"), by_next(&name(other))), (1, 1), "{told:?}");
    assert_eq!((by_next(&name(place.address)), by_next(&name(changed))), (2, 2), "{told:?}");
    TcpStream::connect(changed).expect("it listens");
    assert_eq!(old.wait(PATIENCE).code(), Some(0), "{}", old.log());
}

#[test]
fn where_nothing_differs_the_same_process_reads_again_what_it_reads_at_sighup() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(place.reload(Some(server.id()), &[], &[]), Some(0), "{}", place.read("errors"));
    until("it reads", || server.log().contains("rules and pages were read again"));
    assert!(place.read("said").contains("the same program with the same settings"));
    place.answers();
    assert!(!place.manager.told().iter().any(|told| told.line.starts_with("MAINPID=")));
    server.stop();
}

#[test]
fn one_that_fails_leaves_the_one_that_serves() {
    let place = Place::new();
    let server = place.serve();
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = held.local_addr().expect("an address").to_string();
    let cases: [(&[&str], Option<i32>, &str); 4] = [
        (&["--open-files", "none"], Some(2), "error: invalid value 'none'"),
        (&["--rules", "/none"], Some(1), "error: /none: "),
        (&["--admin", &taken], Some(1), "address already in use"),
        (&["--nonsense"], Some(2), "error: unexpected argument '--nonsense'"),
    ];
    for (flags, code, error) in cases {
        let before = place.read("errors").len();
        assert_eq!(place.reload(Some(server.id()), flags, &[]), code, "{flags:?} {}", place.read("errors"));
        assert!(place.read("errors")[before..].contains(error), "{flags:?} {}", place.read("errors"));
        place.answers();
        assert_eq!(server.has_ended(), None);
    }
    assert!(!place.manager.told().iter().any(|told| told.by != server.id()), "{:?}", place.manager.told());
    server.stop();
}

#[test]
fn what_cannot_be_taken_over_is_stopped_where_somebody_starts_it_anew() {
    // A process that was started with other credentials, and one that can't be asked, such as an earlier version.
    let cases: [(&str, Environment<'_>, [&str; 2]); 2] = [
        (
            "handover",
            &[("LINERATE_UNIT_CREDENTIALS", "two")],
            ["other credentials: stop the process", "other credentials: "],
        ),
        ("elsewhere", &[], ["no process hands over at ", "nobody hands over at "]),
    ];
    for (handover, environment, [error, said]) in cases {
        let mut place = Place::new();
        let server = place.serve();
        place.handover = handover;
        // Without a main process, as when it is run by hand, nobody would start a new one.
        assert_eq!(place.reload(None, &[], environment), Some(1));
        assert!(place.read("errors").contains(error), "{}", place.read("errors"));
        place.answers();
        assert_eq!(server.has_ended(), None);
        assert_eq!(place.reload(Some(server.id()), &[], environment), Some(0), "{}", place.read("errors"));
        assert!(place.read("said").contains(said), "{}", place.read("said"));
        assert_eq!(server.wait(PATIENCE).code(), Some(0), "{}", server.log());
    }
}

#[test]
fn one_that_was_followed_drains_on_when_both_are_stopped() {
    let mut place = Place::new();
    let old = place.serve();
    let download = place.begins();
    assert_eq!(place.reload(Some(old.id()), &["--open-files", "512"], &[]), Some(0));
    let next = place.next(&old);
    // Both processes of a unit get this signal, and the one that remains gets it again once the main one has ended.
    old.signal(Signal::TERM);
    until("it drains on", || old.log().contains("this one drains on"));
    signal(next, Signal::TERM);
    until("its end", || has_ended(next));
    old.signal(Signal::TERM);
    until("it drains on", || old.log().matches("this one drains on").count() == 2);
    assert_eq!(old.has_ended(), None, "{}", old.log());
    is_whole(download);
    assert_eq!(old.wait(PATIENCE).code(), Some(0), "{}", old.log());
}

#[test]
fn one_that_was_followed_is_in_nobodys_way_when_the_next_has_died() {
    for told_first in [true, false] {
        let mut place = Place::new();
        let old = place.serve();
        let _download = place.begins();
        assert_eq!(place.reload(Some(old.id()), &["--open-files", "512"], &[]), Some(0));
        let next = place.next(&old);
        if told_first {
            old.signal(Signal::TERM);
            until("it drains on", || old.log().contains("this one drains on"));
        }
        signal(next, Signal::KILL);
        if !told_first {
            until("its end", || has_ended(next));
            assert_eq!(old.has_ended(), None, "nobody waits for it yet");
            old.signal(Signal::TERM);
        }
        assert_eq!(old.wait(PATIENCE).code(), Some(143), "{}", old.log());
    }
}

/// Listens like a serving process.
fn impostor(path: &Path) -> rustix::fd::OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a directory");
    listen(&socket, 8).expect("it listens");
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).expect("a timeout");
    socket
}

#[test]
fn a_new_process_ends_with_who_asked_for_it() {
    let place = Place::new();
    let old = impostor(&place.path("handover"));
    let mut reload = place.reloads(None, &[], &[]);
    let said = |peer: &rustix::fd::OwnedFd| {
        set_socket_timeout(peer, Timeout::Recv, Some(PATIENCE)).expect("a timeout");
        let mut packet = [0; 200];
        let count = retry_on_intr(|| recv(peer, &mut packet, RecvFlags::empty()));
        let count = count.expect("a word, or the end").0;
        String::from_utf8_lossy(&packet[..count]).into_owned()
    };
    let asking = retry_on_intr(|| accept_with(&old, SocketFlags::CLOEXEC)).expect("it asks");
    assert_eq!(said(&asking), "linerate-about 1 files");
    for word in ["yes 2", "program=another", "LINERATE_UNIT_CREDENTIALS=one"] {
        send(&asking, word.as_bytes(), SendFlags::NOSIGNAL).expect("it listens");
    }
    let next = retry_on_intr(|| accept_with(&old, SocketFlags::CLOEXEC)).expect("it asks");
    assert_eq!(said(&next), "linerate-handover 1 files");
    reload.kill().expect("it waits");
    reload.wait().expect("a child");
    // It is given everything, and says nothing more.
    assert_eq!(said(&next), "");
    assert!(!place.read("errors").contains("hands over its sockets"), "{}", place.read("errors"));
}
