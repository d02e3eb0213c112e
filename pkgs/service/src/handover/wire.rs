//! What two processes say to each other, in packets, each of which has a descriptor at most:
//!
//! | new | old |
//! |---|---|
//! | `linerate-handover 1 PROGRAM` | |
//! | | `yes N`, or `no REASON` |
//! | | N times: a name, with its descriptor; or `NAME=TEXT`, without |
//! | `left NAME`, for what it has not taken | |
//! | `serving` | |
//! | | `yours`, once it lets nobody in any more; or `no REASON` |
//! | `goodbye`, once it stops, or the one that has followed it does: the way goes on to that | |
//!
//! Who only wants to know [about](super::about) the process that serves begins by `linerate-about 1 PROGRAM`, and is told
//! nothing but texts.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;
use socket2::{Domain, SockAddr, Socket, Type};

/// What the new process begins with. The number is of what follows: where that changes, so does this.
pub(super) const HELLO: &str = "linerate-handover 1";
/// What who wants to know about it begins with.
pub(super) const ABOUT: &str = "linerate-about 1";
/// Said by the new process once it is to serve.
pub(super) const SERVING: &str = "serving";
/// Said before a name by the new process.
pub(super) const LEFT: &str = "left ";
/// Said by the old one once it does not serve any more.
pub(super) const YOURS: &str = "yours";
/// Said by the new one once it ends in good order: the old one, where it still drains, may do so to its end.
pub(super) const GOODBYE: &str = "goodbye";
/// Said before a number by the old one.
pub(super) const YES: &str = "yes ";
/// Said before a reason by the old one.
pub(super) const NO: &str = "no ";

/// The longest packet: a name is an address, and no path of a Unix socket is that long.
pub(super) const MAX_BYTES: usize = 1024;

/// The most descriptors and texts: 256 workers with a socket and a relay on each of many addresses.
pub(super) const MAX_ITEMS: usize = 16_384;

/// How long a process waits for the other to answer, or to take what it is told.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How often a process is asked that ends, or is replaced, just then.
const TRIES: u32 = 8;

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// Why one process cannot take over from another.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is no place for a socket.
    #[error("cannot hand over at {}: {error}", path.display())]
    Place {
        /// Which.
        path: PathBuf,
        /// Why not. The text says it, so this is no source.
        error: io::Error,
    },
    /// Something other than a socket is in its place.
    #[error("cannot hand over at {}: the file there is no socket", .0.display())]
    NotSocket(PathBuf),
    /// Who answers there is another user.
    #[error("cannot take over at {}: the process there is of another user ({uid})", path.display())]
    Stranger {
        /// Where.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Who asked for this process wanted it to follow one that has ended meanwhile.
    #[error("cannot take over: the process that served has ended")]
    Gone,
    /// The process that serves does not want to.
    #[error("cannot take over: {0}")]
    Refused(String),
    /// The process that serves does not say what it should, or nothing.
    #[error("cannot take over: the process that serves does not answer as it should: {0}")]
    Peer(io::Error),
}

/// A descriptor by a name, or a text.
#[derive(Debug)]
pub(super) struct Item {
    /// What it is, or `NAME=TEXT`.
    pub name: String,
    /// None with a text.
    pub fd: Option<OwnedFd>,
}

/// Asks whoever serves at `path` for what it has, or [about](ABOUT) it; nothing where nobody does.
pub(super) fn ask(path: &Path, word: &str, program: &str) -> Result<Option<(Socket, Vec<Item>)>, Error> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match ask_once(path, word, program) {
            // It ended just now, or was replaced: then another is there.
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
        // What a dead process left.
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
        // It may have said why, before it was asked.
        Err(error) if has_ended(&error) => {}
        sent => sent.map_err(Error::Peer)?,
    }
    let items = items(&socket, deadline)?;
    Ok(Some((socket, items)))
}

/// What it answers.
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

/// Whether the old process still waits for this one.
///
/// # Errors
/// When it has given that up. Where it has ended, all is this process' already.
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

/// Tells the old process that this one serves, and what it has `left`; waits until the old one does not any more.
pub(super) fn relieve(old: &Socket, left: &BTreeSet<String>) -> Result<(), Error> {
    let told = left.iter().try_for_each(|name| send(old, &format!("{LEFT}{name}"), None));
    let told = told.and_then(|()| send(old, SERVING, None)).map_err(Error::Peer);
    match told.and_then(|()| answer(old, Instant::now() + PATIENCE)) {
        Ok(word) if word == YOURS => Ok(()),
        Ok(_) => Err(Error::Peer(malformed())),
        // Dead or hung, it cannot be told; and all it had is here.
        Err(Error::Peer(error)) if has_ended(&error) || error.kind() == ErrorKind::WouldBlock => {
            tracing::warn!(%error, "the process that served until now does not answer");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What the old process says next, unless it is no.
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
    // None would be no limit.
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_read_timeout(Some(left))?;
    receive(socket)
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "it speaks another language")
}

/// The user at the other end, where that is neither this one nor root.
pub(super) fn stranger(socket: impl AsFd) -> io::Result<Option<u32>> {
    let uid = socket_peercred(socket)?.uid;
    let known = uid.is_root() || uid == rustix::process::geteuid();
    Ok((!known).then_some(uid.as_raw()))
}

/// The process at the other end, where it has a number here.
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
    sendmsg(socket, &[IoSlice::new(word.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet.
///
/// # Errors
/// `UnexpectedEof` at the end; `InvalidData` where it is too long, or no text, or has more than one descriptor.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Item> {
    let mut word = [0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let socket = socket.as_fd();
    let mut once =
        || recvmsg(socket, &mut [IoSliceMut::new(&mut word)], &mut control, RecvFlags::CMSG_CLOEXEC);
    // Who closes without having read everything is said to have reset before it is told what it said.
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
