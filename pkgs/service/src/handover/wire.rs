//! The messages between two processes. Each is a packet with at most one descriptor:
//!
//! | new | old |
//! |---|---|
//! | `linerate-handover 1 PROGRAM` | |
//! | | `yes N`, or `no REASON` |
//! | | N times: a name, with its descriptor; or `NAME=TEXT`, without |
//! | `left NAME`, for what it has not taken | |
//! | `serving` | |
//! | | `yours`, once it accepts no more connections; or `no REASON` |
//! | `goodbye`, once it stops properly; a process that takes over from it gets this stream, and sends it instead | |
//!
//! A process that only asks [about](super::about) the serving one starts with `linerate-about 1 PROGRAM`, and receives
//! only texts.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;
use socket2::{Domain, SockAddr, Socket, Type};

/// The first word of a new process. The number is the version of everything that follows.
pub(super) const HELLO: &str = "linerate-handover 1";
/// The first word of a process that only asks about the other.
pub(super) const ABOUT: &str = "linerate-about 1";
/// Sent by the new process when it is about to serve.
pub(super) const SERVING: &str = "serving";
/// Sent before a name by the new process.
pub(super) const LEFT: &str = "left ";
/// Sent by the old process once it no longer serves.
pub(super) const YOURS: &str = "yours";
/// Sent by the new process when it ends properly. The old one, if it still drains, may then finish.
pub(super) const GOODBYE: &str = "goodbye";
/// Sent before a number by the old process.
pub(super) const YES: &str = "yes ";
/// Sent before a reason by the old process.
pub(super) const NO: &str = "no ";

/// The longest packet, in bytes. A name is an address, and no path of a Unix socket is that long.
pub(super) const MAX_BYTES: usize = 1024;

/// The most descriptors and texts: enough for 256 workers, each with a socket and a relay on each of many addresses.
pub(super) const MAX_ITEMS: usize = 16_384;

/// The timeout for the other process to answer, and to receive a message.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How often to ask a process that ends or is replaced just then.
const TRIES: u32 = 8;

/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Why one process cannot take over from another.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No socket can be at the path.
    #[error("cannot hand over at {}: {error}", path.display())]
    Place {
        /// The path.
        path: PathBuf,
        /// The reason. The text contains it, so it is not a source.
        error: io::Error,
    },
    /// Something other than a socket is at the path.
    #[error("cannot hand over at {}: the file there is no socket", .0.display())]
    NotSocket(PathBuf),
    /// Another user's process answers.
    #[error("cannot take over at {}: the process there is of another user ({uid})", path.display())]
    Stranger {
        /// The path.
        path: PathBuf,
        /// The user's id.
        uid: u32,
    },
    /// This process was told to stop while it started.
    #[error("cannot take over: told to stop before it served")]
    Stopped,
    /// The process that this one was to follow has ended.
    #[error("cannot take over: the process that served has ended")]
    Gone,
    /// The serving process refuses.
    #[error("cannot take over: {0}")]
    Refused(String),
    /// The serving process sends something invalid, or nothing.
    #[error("cannot take over: the process that serves does not answer as it should: {0}")]
    Peer(io::Error),
}

/// A descriptor with its name, or a text.
#[derive(Debug)]
pub(super) struct Item {
    /// Its name, or `NAME=TEXT`.
    pub name: String,
    /// The descriptor; none for a text.
    pub fd: Option<OwnedFd>,
}

/// Asks the process that serves at `path` for its descriptors and texts, or [about](ABOUT) itself. None if no process
/// serves.
pub(super) fn ask(path: &Path, word: &str, program: &str) -> Result<Option<(Socket, Vec<Item>)>, Error> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match ask_once(path, word, program) {
            // The process ended or was replaced just now; in the latter case another answers.
            Err(Error::Peer(error)) if tries > 0 && has_ended(&error) => std::thread::sleep(PAUSE),
            asked => return asked,
        }
    }
}

fn ask_once(path: &Path, word: &str, program: &str) -> Result<Option<(Socket, Vec<Item>)>, Error> {
    let failed = |error| Error::Place { path: path.to_owned(), error };
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).map_err(failed)?;
    socket.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    match socket.connect(&SockAddr::unix(path).map_err(failed)?) {
        // A dead process left the socket's file.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        connected => connected.map_err(failed)?,
    }
    if let Some(uid) = stranger(&socket).map_err(failed)? {
        return Err(Error::Stranger { path: path.to_owned(), uid });
    }
    let deadline = Instant::now() + PATIENCE;
    match send(&socket, &format!("{word} {program}"), None) {
        // The other process may have sent its refusal before it was asked.
        Err(error) if has_ended(&error) => {}
        sent => sent.map_err(Error::Peer)?,
    }
    let items = items(&socket, deadline)?;
    Ok(Some((socket, items)))
}

/// Reads the answer's items.
fn items(socket: &Socket, deadline: Instant) -> Result<Vec<Item>, Error> {
    let answer = answer(socket, deadline)?;
    let count = answer.strip_prefix(YES).and_then(|count| count.parse().ok());
    let count: usize = count.filter(|count| *count <= MAX_ITEMS).ok_or_else(|| Error::Peer(malformed()))?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(receive_by(socket, deadline).map_err(Error::Peer)?);
    }
    Ok(items)
}

/// Checks that the old process still waits for this one.
///
/// # Errors
/// When it has given up. If it has ended, everything already belongs to this process.
pub(super) fn look(old: &Socket) -> Result<(), Error> {
    old.set_nonblocking(true).map_err(Error::Peer)?;
    let said = receive(old);
    old.set_nonblocking(false).map_err(Error::Peer)?;
    match said {
        Err(error) if error.kind() == ErrorKind::WouldBlock || has_ended(&error) => Ok(()),
        Err(error) => Err(Error::Peer(error)),
        Ok(word) => Err(refusal(&word.name)),
    }
}

/// Tells the old process that this one serves and what it has `left`. Waits until the old one no longer serves.
pub(super) fn relieve(old: &Socket, left: &BTreeSet<String>) -> Result<(), Error> {
    let told = left.iter().try_for_each(|name| send(old, &format!("{LEFT}{name}"), None));
    let told = told.and_then(|()| send(old, SERVING, None)).map_err(Error::Peer);
    match told.and_then(|()| answer(old, Instant::now() + PATIENCE)) {
        Ok(word) if word == YOURS => Ok(()),
        Ok(_) => Err(Error::Peer(malformed())),
        // A dead or hung process cannot be told, and this one has everything it had.
        Err(Error::Peer(error)) if has_ended(&error) || error.kind() == ErrorKind::WouldBlock => {
            tracing::warn!(%error, "the process that served until now does not answer");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Reads what the old process says next, unless it is a refusal.
fn answer(socket: &Socket, deadline: Instant) -> Result<String, Error> {
    let word = receive_by(socket, deadline).map_err(Error::Peer)?.name;
    if word.starts_with(NO) { Err(refusal(&word)) } else { Ok(word) }
}

fn refusal(word: &str) -> Error {
    match word.strip_prefix(NO) {
        Some(reason) => Error::Refused(reason.to_owned()),
        None => Error::Peer(malformed()),
    }
}

fn receive_by(socket: &Socket, deadline: Instant) -> io::Result<Item> {
    loop {
        // Zero would mean no timeout.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left))?;
        match receive(socket) {
            // A timeout makes the kernel interrupt this even without a signal's handler: when the process was stopped
            // for a moment (signal(7)), or where io_uring has work for this thread.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "it speaks another language")
}

/// The user at the other end, if it is neither this process's user nor root.
pub(super) fn stranger(socket: impl AsFd) -> io::Result<Option<u32>> {
    let uid = socket_peercred(socket)?.uid;
    let known = uid.is_root() || uid == rustix::process::geteuid();
    Ok((!known).then_some(uid.as_raw()))
}

/// The process at the other end, if it has an id in this namespace.
pub(super) fn process(socket: impl AsFd) -> Option<Pid> {
    socket_peercred(socket).ok().map(|credentials| credentials.pid)
}

/// Sends one packet.
pub(super) fn send(socket: impl AsFd, word: &str, fd: Option<&OwnedFd>) -> io::Result<()> {
    if word.len() > MAX_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a name is too long to be handed over"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let socket = socket.as_fd();
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(word.as_bytes())], &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one packet.
///
/// # Errors
/// `UnexpectedEof` at the end. `InvalidData` if the packet is too long, is not text, or has several descriptors.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Item> {
    let mut word = [0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let socket = socket.as_fd();
    let mut once =
        || recvmsg(socket, &mut [IoSliceMut::new(&mut word)], &mut control, RecvFlags::CMSG_CLOEXEC);
    // If the other end closed without reading everything, the kernel reports a reset before it delivers what that end
    // sent.
    let received = match once() {
        Err(Errno::CONNRESET) => once()?,
        received => received?,
    };
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds: Vec<OwnedFd> = fds.by_ref().flatten().collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) || fds.len() > 1 {
        return Err(malformed());
    }
    if received.bytes == 0 && fds.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let name = std::str::from_utf8(&word[..received.bytes]).map_err(|_| malformed())?.to_owned();
    Ok(Item { name, fd: fds.pop() })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn a_process_that_is_stopped_while_it_waits_receives_afterwards() {
        let (here, there) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("sockets");
        let process = std::process::id();
        let stopped = format!("sleep 0.2; kill -STOP {process}; sleep 0.1; kill -CONT {process}");
        let mut stops = Command::new("sh").args(["-c", &stopped]).spawn().expect("a shell");
        let sends = thread::spawn(move || {
            stops.wait().expect("an end");
            send(&there, "word", None)
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        assert_eq!(receive_by(&here, deadline).expect("a word").name, "word");
        sends.join().expect("no panic").expect("it is sent");
    }

    #[test]
    fn nothing_is_waited_for_beyond_the_deadline() {
        let (here, _there) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).expect("sockets");
        let error = receive_by(&here, Instant::now()).expect_err("nothing was sent");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
