//! Processes that take over from each other. They are this same test, started once more.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use bench::server::free_address;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use service::handover::{HandoverArgs, Takeover, is_handed_over};
use service::shutdown::Shutdown;
use service::socket::{Address, Listener, TcpOptions, bind_udp_each};
use socket2::{Domain, SockAddr, Socket, Type};
use testkit::uninterrupted;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// The answer to all who ask while another process is being served.
const BUSY: &str = "another process does so just now";

/// What a process should do: its program, whether it waits before it completes, its number of workers, the path, and its
/// addresses.
const ROLE: &str = "LINERATE_TEST_HANDOVER";

/// A process: it answers every connection and datagram with its id, and drains when it is told to.
#[test]
fn process() {
    let Ok(role) = env::var(ROLE) else { return };
    let mut words = role.split('\n');
    let mut word = || words.next().expect("a word").to_owned();
    let (program, waits) = (word(), word() == "waits");
    let (workers, path) = (word().parse().expect("a number"), PathBuf::from(word()));
    let listen: Vec<Address> = words.map(|address| address.parse().expect("an address")).collect();
    match serve(Box::leak(program.into_boxed_str()), waits, workers, path, &listen) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("error: {}", service::exit::chain(&*error));
            std::process::exit(2);
        }
    }
}

fn serve(
    program: &'static str,
    waits: bool,
    workers: usize,
    path: PathBuf,
    listen: &[Address],
) -> Result<(), Box<dyn std::error::Error>> {
    let shutdown = Shutdown::on_signals()?;
    let takeover = Takeover::begin(&HandoverArgs { handover: Some(path.clone()) }, program)?;
    let (mut sockets, mut datagrams) = (Vec::new(), Vec::new());
    for address in listen {
        sockets.extend(address.listen_each(workers, &TcpOptions::default())?);
        if let Address::Tcp(at) = address {
            datagrams.extend(bind_udp_each(*at, workers, |_| {})?);
        }
    }
    println!("\nbegun {}", takeover.is_under_way());
    if waits {
        let told = shutdown.clone();
        thread::spawn(move || {
            while !told.is_triggered() {
                thread::sleep(Duration::from_millis(1));
            }
            println!("\ntold to stop");
        });
        std::io::stdin().read_line(&mut String::new())?;
    }
    takeover.complete(&shutdown)?;
    println!("\nready");
    let id = std::process::id();
    loop {
        let mut idle = true;
        for socket in &sockets {
            let mut stream: Box<dyn Write> = match socket {
                Listener::Tcp(socket) => match socket.accept() {
                    Ok((stream, _)) => Box::new(stream),
                    Err(_) => continue,
                },
                Listener::Unix(socket) => match socket.accept() {
                    Ok((stream, _)) => Box::new(stream),
                    Err(_) => continue,
                },
            };
            idle = false;
            let _ = write!(stream, "{id}");
        }
        for socket in &datagrams {
            if let Ok((_, client)) = socket.recv_from(&mut [0; 16]) {
                idle = false;
                let _ = socket.send_to(id.to_string().as_bytes(), client);
            }
        }
        // This is checked between rounds, so that accepted connections get their answer.
        if shutdown.is_triggered() {
            // A thread cleans up, and this one must not end before it: services take longer to end.
            let deadline = Instant::now() + Duration::from_secs(10);
            while !is_handed_over() && path.exists() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            println!("\nhanded over {}", is_handed_over());
            return Ok(());
        }
        if idle {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The addresses where processes listen and hand over.
struct Place {
    directory: tempfile::TempDir,
    tcp: SocketAddr,
    /// How many workers the next process has.
    workers: usize,
}

impl Place {
    fn new() -> Self {
        let tcp = free_address().expect("a port is free");
        Self { directory: tempfile::tempdir().expect("a directory"), tcp, workers: 2 }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("handover")
    }

    fn unix(&self) -> PathBuf {
        self.directory.path().join("listen")
    }

    fn start(&self, waits: bool) -> Process {
        let listen = [self.tcp.to_string(), format!("unix:{}", self.unix().display())];
        self.run("test", waits, &listen, None)
    }

    fn run(&self, program: &str, waits: bool, listen: &[String], user: Option<u32>) -> Process {
        let waits = if waits { "waits" } else { "" };
        let (workers, path) = (self.workers.to_string(), self.path().display().to_string());
        let role = [&[program.to_owned(), waits.to_owned(), workers, path], listen].concat().join("\n");
        let mut command = Command::new(env::current_exe().expect("a path"));
        command.args(["--exact", "process", "--nocapture"]).env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user).current_dir("/");
        }
        let mut child = command.spawn().expect("it runs");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        Process { child, input, lines }
    }

    /// Starts one and waits until it serves.
    fn serve(&self) -> Process {
        self.start_until(false, "ready")
    }

    /// Starts one and waits until it says this, retrying while another process is being served.
    fn start_until(&self, waits: bool, word: &str) -> Process {
        loop {
            let mut process = self.start(waits);
            if process.says_or_ends(word) {
                return process;
            }
            process.is_refused(BUSY);
        }
    }

    /// Starts one that is refused for this reason, retrying while another process is being served.
    fn refuses(&self, start: impl Fn(&Self) -> Process, reason: &str) {
        loop {
            let (code, error) = start(self).fails();
            if !error.contains(BUSY) {
                assert!(code == Some(2) && error.contains(reason), "{reason:?} is not {code:?} {error:?}");
                return;
            }
        }
    }

    /// Which process serves.
    fn answers(&self) -> u32 {
        let by_unix = read(UnixStream::connect(self.unix()).expect("nobody is refused"));
        let by_tcp = read(TcpStream::connect(self.tcp).expect("nobody is refused"));
        assert_eq!(by_tcp, by_unix);
        by_tcp
    }

    /// Sends a message to the path, retrying while another process is being served. Returns the answer, if any.
    fn ask(&self, word: &str) -> (Socket, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let peer = self.raw();
            let _ = peer.send(word.as_bytes());
            let answer = hear(&peer);
            if !answer.contains("another process") {
                return (peer, answer);
            }
            assert!(Instant::now() < deadline, "somebody else is asking");
        }
    }

    /// A socket for sending messages to the path.
    fn raw(&self) -> Socket {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.connect(&SockAddr::unix(self.path()).expect("a path")).expect("somebody listens");
        socket
    }
}

/// The next packet, empty at the end.
fn hear(mut peer: &Socket) -> String {
    let mut packet = [0; 2_000];
    // The first read may report a reset. The packets that were sent before it are read afterwards.
    let count = peer.read(&mut packet).or_else(|_| peer.read(&mut packet)).unwrap_or(0);
    String::from_utf8_lossy(&packet[..count]).into_owned()
}

fn read(mut stream: impl Read) -> u32 {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("no connection is lost");
    text.parse().expect("every connection is answered")
}

/// A process; killed when dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says this.
    fn says(&self, what: &str) {
        assert!(self.says_or_ends(what), "it does not say {what:?}");
    }

    /// Whether it says this.
    fn says_or_ends(&self, what: &str) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line == what => return true,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => panic!("it neither says {what:?} nor ends"),
            }
        }
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("it reads");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Its exit code, and what it printed on stderr.
    fn ends(&mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(5));
        };
        let mut errors = String::new();
        self.child.stderr.as_mut().expect("a pipe").read_to_string(&mut errors).expect("text");
        (status.code(), errors)
    }

    /// Checks that it ends by itself, because another has taken over.
    fn is_relieved(&mut self) {
        self.says("handed over true");
        assert_eq!(self.ends().0, Some(0));
    }

    /// Checks that it ends by itself, since it can't take over; returns its exit code, and the reason.
    fn fails(&mut self) -> (Option<i32>, String) {
        let (code, errors) = self.ends();
        let mut errors: Vec<_> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        (code, errors.remove(0).to_owned())
    }

    /// Checks that it ends by itself, since it can't take over, with the reason in one line.
    fn is_refused(&mut self, reason: &str) {
        let (code, error) = self.fails();
        assert!(code == Some(2) && error.contains(reason), "{reason:?} is not {code:?} {error:?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn three_in_a_row_take_over_and_nobody_is_refused() {
    let place = Place::new();
    let mut process = place.serve();
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
    let unix = inode(&place.unix());
    let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let client = |by_tcp: bool| {
            while !done.load(Relaxed) {
                let _: u32 = match by_tcp {
                    true => read(TcpStream::connect(place.tcp).expect("nobody is refused")),
                    false => read(UnixStream::connect(place.unix()).expect("nobody is refused")),
                };
                answered.fetch_add(1, Relaxed);
            }
        };
        let clients = [true, true, false].map(|by_tcp| scope.spawn(move || client(by_tcp)));
        for _ in 0..3 {
            let until = answered.load(Relaxed) + 50;
            let deadline = Instant::now() + PATIENCE;
            while answered.load(Relaxed) < until && !clients.iter().any(|client| client.is_finished()) {
                assert!(Instant::now() < deadline, "clients are answered");
                thread::sleep(Duration::from_millis(5));
            }
            let before = inode(&place.path());
            let next = place.serve();
            assert_ne!(inode(&place.path()), before, "the next is asked there");
            process.is_relieved();
            process = next;
            assert_eq!(place.answers(), process.id());
        }
        done.store(true, Relaxed);
    });
    assert_eq!(inode(&place.unix()), unix, "the file of a Unix socket stays");
    assert_eq!(fs::metadata(place.path()).expect("it is there").permissions().mode() & 0o777, 0o600);
    process.signal(Signal::TERM);
    process.says("handed over false");
    assert_eq!(process.ends().0, Some(0));
    assert!(!place.path().exists(), "who stops for good leaves nothing");
    assert_eq!(place.serve().ends_killed(), None, "a cold start");
}

impl Process {
    fn ends_killed(mut self) -> Option<i32> {
        self.signal(Signal::KILL);
        self.ends().0
    }
}

#[test]
fn what_is_new_is_listened_on_and_what_is_not_wanted_is_closed() {
    let place = Place::new();
    let mut old = place.serve();
    let other = Place::new();
    let new = place.run("test", false, &[place.tcp.to_string(), other.tcp.to_string()], None);
    new.says("ready");
    old.is_relieved();
    for address in [place.tcp, other.tcp] {
        assert_eq!(read(TcpStream::connect(address).expect("it listens")), new.id());
    }
    UnixStream::connect(place.unix()).expect_err("nobody listens there any more");
}

#[test]
fn one_that_is_killed_before_it_completes_changes_nothing() {
    let place = Place::new();
    let mut old = place.serve();
    for _ in 0..3 {
        let new = place.start_until(true, "begun true");
        // The running process serves those that connect meanwhile.
        assert_eq!(place.answers(), old.id());
        assert_eq!(new.ends_killed(), None);
        assert_eq!(place.answers(), old.id());
    }
    let new = place.serve();
    old.is_relieved();
    assert_eq!(place.answers(), new.id());
}

#[test]
fn one_that_is_told_to_stop_before_it_completes_changes_nothing() {
    let place = Place::new();
    let mut old = place.serve();
    let mut new = place.start_until(true, "begun true");
    new.signal(Signal::TERM);
    new.says("told to stop");
    new.go_on();
    new.is_refused("told to stop before it served");
    assert_eq!(place.answers(), old.id());
    let new = place.serve();
    old.is_relieved();
    assert_eq!(place.answers(), new.id());
}

#[test]
fn one_with_more_workers_gets_no_client_before_it_completes() {
    let mut place = Place::new();
    place.workers = 1;
    let mut old = place.serve();
    place.workers = 4;
    let new = place.start_until(true, "begun true");
    let all_reach = |id: u32| {
        for _ in 0..50 {
            let stream = TcpStream::connect(place.tcp).expect("nobody is refused");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            assert_eq!(read(stream), id);
            let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            client.send_to(b"who", place.tcp).expect("it is sent");
            let mut answer = [0; 16];
            let count = uninterrupted(|| client.recv(&mut answer)).expect("every datagram is answered");
            assert_eq!(read(&answer[..count]), id);
        }
    };
    all_reach(old.id());
    assert_eq!(new.ends_killed(), None);
    all_reach(old.id());
    let new = place.serve();
    old.is_relieved();
    all_reach(new.id());
}

#[test]
fn one_that_fails_changes_nothing() {
    let place = Place::new();
    let mut old = place.serve();
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = [place.tcp.to_string(), held.local_addr().expect("an address").to_string()];
    place.refuses(|place| place.run("test", false, &listen, None), "address already in use");
    place.refuses(|place| place.run("other", false, &[], None), "the process that serves is test");
    assert_eq!(place.answers(), old.id());
    let new = place.serve();
    old.is_relieved();
    assert_eq!(place.answers(), new.id());
}

#[test]
fn of_two_at_once_one_wins() {
    let place = Place::new();
    let mut old = place.serve();
    let mut first = place.start_until(true, "begun true");
    place.start(false).is_refused(BUSY);
    assert_eq!(place.answers(), old.id());
    first.go_on();
    first.says("ready");
    old.is_relieved();
    assert_eq!(place.answers(), first.id());
    // Many start at once. Whichever succeeds follows another, and in the end one of them serves.
    let mut rivals: Vec<_> = (0..4).map(|_| place.start(false)).collect();
    for rival in &rivals {
        rival.says_or_ends("ready");
    }
    let deadline = Instant::now() + PATIENCE;
    while rivals.len() > 1 {
        rivals.retain_mut(|rival| {
            if rival.child.try_wait().expect("a child").is_none() {
                return true;
            }
            let (code, errors) = rival.ends();
            let lines = errors.lines().filter(|line| line.starts_with("error: ")).count();
            assert!(code == Some(0) || (code == Some(2) && lines == 1), "{code:?} {errors}");
            false
        });
        assert!(Instant::now() < deadline, "{} of them serve", rivals.len());
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(place.answers(), rivals[0].id());
}

#[test]
fn one_whose_predecessor_is_killed_under_way_serves_who_waits() {
    let place = Place::new();
    let old = place.serve();
    let mut new = place.start_until(true, "begun true");
    assert_eq!(old.ends_killed(), None);
    // No process accepts now, but no connection is refused.
    let waiting = TcpStream::connect(place.tcp).expect("the socket is there");
    new.go_on();
    new.says("ready");
    assert_eq!(read(waiting), new.id());
    assert_eq!(place.answers(), new.id());
    let next = place.serve();
    new.is_relieved();
    assert_eq!(place.answers(), next.id());
}

#[test]
fn who_says_what_is_not_asked_for_changes_nothing() {
    let place = Place::new();
    let mut old = place.serve();
    let long = "x".repeat(4_000);
    for said in ["", "noise", "\0\u{1}", "linerate-handover 2 test", "linerate-handover 1 tes", &long] {
        let answer = place.ask(said).1;
        assert!(answer.is_empty() || answer.starts_with("no "), "{said:.20?}: {answer}");
        assert_eq!(place.answers(), old.id());
    }
    // These processes send no second message, or a wrong one, after they got everything.
    for said in ["", "served", "left", "serving now"] {
        let (peer, answer) = place.ask("linerate-handover 1 test");
        assert!(answer.starts_with("yes "), "{answer}");
        peer.send(said.as_bytes()).expect("it listens");
    }
    // This packet has more descriptors than it may.
    let file = fs::File::open("/dev/null").expect("/dev/null");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let two = [file.as_fd(), file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&two)));
    let said = [IoSlice::new(b"linerate-handover 1 test")];
    let peer = place.raw();
    sendmsg(&peer, &said, &mut control, SendFlags::NOSIGNAL).expect("it listens");
    let answer = hear(&peer);
    assert!(answer.is_empty() || answer.starts_with("no another process"), "{answer}");
    drop(peer);
    assert_eq!(place.answers(), old.id());
    // The earlier ones may still be waiting for their answer.
    drop(place.ask("linerate-handover 1 nobody"));
    let new = place.serve();
    old.is_relieved();
    assert_eq!(place.answers(), new.id());
}

#[test]
fn who_says_nothing_is_in_nobodys_way_for_long() {
    let place = Place::new();
    let mut old = place.serve();
    let silent = place.raw();
    place.start(false).is_refused(BUSY);
    // The next one is refused until the silent one is given up.
    let new = place.serve();
    drop(silent);
    old.is_relieved();
    assert_eq!(place.answers(), new.id());
}

#[test]
fn a_process_that_does_not_answer_as_it_should_is_not_taken_over_from() {
    let long = "x".repeat(4_000);
    let answers: [(&[&str], &str); 8] = [
        (&["maybe"], "another language"),
        (&["yes"], "another language"),
        (&["yes -1"], "another language"),
        (&["yes 16385"], "another language"),
        (&[&long], "another language"),
        (&["yes 1", &long], "another language"),
        (&["no reason"], "cannot take over: reason"),
        // Nothing at all.
        (&[], "does not answer"),
    ];
    thread::scope(|scope| {
        for (words, reason) in answers {
            scope.spawn(move || {
                let place = Place::new();
                let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
                socket.bind(&SockAddr::unix(place.path()).expect("a path")).expect("a directory");
                socket.listen(8).expect("it listens");
                let mut new = place.start(false);
                let (peer, _) = socket.accept().expect("it asks");
                for word in words {
                    peer.send(word.as_bytes()).expect("it reads");
                }
                new.is_refused(reason);
                assert!(!place.unix().exists(), "nothing was listened on");
            });
        }
    });
}

#[test]
fn what_is_no_socket_is_not_replaced_and_what_a_dead_process_left_is() {
    let place = Place::new();
    fs::write(place.path(), "a file").expect("a directory");
    place.start(false).is_refused("the file there is no socket");
    assert_eq!(fs::read_to_string(place.path()).expect("it is there"), "a file");
    fs::remove_file(place.path()).expect("it is there");

    assert_eq!(place.serve().ends_killed(), None);
    assert!(place.path().exists() && place.unix().exists(), "killed, it leaves both");
    let process = place.serve();
    assert_eq!(place.answers(), process.id());

    let nowhere = Place::new();
    let listen = [nowhere.tcp.to_string()];
    fs::remove_dir(nowhere.directory.path()).expect("it is empty");
    nowhere.run("test", false, &listen, None).is_refused("cannot hand over at ");
}

#[test]
fn a_socket_that_somebody_has_taken_away_is_put_back() {
    let place = Place::new();
    let mut old = place.serve();
    fs::remove_file(place.path()).expect("it is there");
    let deadline = Instant::now() + PATIENCE;
    while !place.path().exists() {
        assert!(Instant::now() < deadline, "it is not put back");
        thread::sleep(Duration::from_millis(20));
    }
    let new = place.serve();
    old.is_relieved();
    assert_eq!(place.answers(), new.id());
}

#[test]
fn another_user_is_refused() {
    const NOBODY: u32 = 65_534;
    let place = Place::new();
    let old = place.serve();
    let probe = Command::new(env::current_exe().expect("a path"))
        .args(["--list"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .stdout(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can be somebody else");
        return;
    }
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    open(place.directory.path(), 0o755);
    // The first is refused because of the file's mode. Once the mode allows others, the second is refused because of
    // the user.
    let nobody = |place: &Place| place.run("test", false, &[], Some(NOBODY));
    place.refuses(nobody, "ermission denied");
    open(&place.path(), 0o666);
    place.refuses(nobody, "user 65534 may not");
    assert_eq!(place.answers(), old.id());

    // The same holds the other way round: no process takes over from another user's, unless that user is root.
    let theirs = Place::new();
    open(theirs.directory.path(), 0o777);
    let process = theirs.run("test", false, &[theirs.tcp.to_string()], Some(NOBODY));
    process.says("ready");
    theirs.refuses(|place| place.run("test", false, &[], None), "is of another user (65534)");
    assert_eq!(read(TcpStream::connect(theirs.tcp).expect("it listens")), process.id());
}
