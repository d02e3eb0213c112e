//! Handing the listening sockets to a new process, so that no connection is lost when one replaces another.
//!
//! The new process asks the old one over a Unix socket and gets the very same sockets (`SCM_RIGHTS`), with all
//! connections that wait in them. When it serves, it says so, and the old one drains. At no time is a socket
//! closed that connections arrive at: closing one of several on a port would reset those that wait in it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use service::socket::Listener;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::drain::{Drain, Phase};

/// The longest name of an endpoint, beyond any path of a Unix socket.
const MAX_NAME_BYTES: usize = 512;

/// How long either process waits for the other's next word.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the old process looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(250);

/// Said behind the last socket.
const ALL: &[u8] = b"all";
/// Said by the new process when it serves.
const SERVING: &[u8] = b"serving";

/// A listening socket, under the name of its endpoint.
#[derive(Debug)]
pub struct Named {
    /// As it was configured.
    pub name: String,
    /// The socket.
    pub fd: OwnedFd,
}

impl Named {
    /// Another descriptor of a socket.
    pub fn of(name: String, listener: &Listener) -> io::Result<Self> {
        let fd = match listener {
            Listener::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Listener::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        };
        Ok(Self { name, fd: fd? })
    }

    /// The socket as what it is.
    pub fn listener(self) -> io::Result<Listener> {
        use rustix::net::AddressFamily;
        Ok(match rustix::net::sockopt::socket_domain(&self.fd)? {
            AddressFamily::UNIX => Listener::Unix(self.fd.into()),
            _ => Listener::Tcp(self.fd.into()),
        })
    }
}

/// The new process' side: the old one, which waits to be told.
#[derive(Debug)]
pub struct Old(Socket);

impl Old {
    /// Asks whoever serves at `path` for its sockets; nothing where nobody does.
    ///
    /// # Errors
    /// When there is somebody, and the sockets cannot be had.
    pub fn ask(path: &Path) -> io::Result<Option<(Self, Vec<Named>)>> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        match socket.connect(&SockAddr::unix(path)?) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            connected => connected?,
        }
        is_ours(&socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut sockets = Vec::new();
        loop {
            match receive(&socket)? {
                (name, Some(fd)) => sockets.push(Named { name, fd }),
                (word, None) if word.as_bytes() == ALL => return Ok(Some((Self(socket), sockets))),
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Tells it that its sockets are served, and waits until it has let go of the path.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn relieve(self) -> io::Result<()> {
        send(&self.0, SERVING, None)?;
        // It closes the connection.
        receive(&self.0).map(drop)
    }
}

/// The old process' side: a place for a new one to ask at.
#[derive(Debug)]
pub struct Offer {
    path: PathBuf,
    socket: Socket,
    sockets: Vec<Named>,
}

impl Offer {
    /// Offers `sockets` at `path`, to processes of this user and of root alone.
    ///
    /// # Errors
    /// When nothing can be bound there.
    pub fn new(path: &Path, sockets: Vec<Named>) -> io::Result<Self> {
        // Found only once it listens: who is refused there takes it that nobody serves.
        let new = path.with_added_extension("new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.bind(&SockAddr::unix(&new)?)?;
        socket.listen(1)?;
        std::fs::rename(&new, path)?;
        socket.set_read_timeout(Some(LOOK))?;
        Ok(Self { path: path.to_owned(), socket, sockets })
    }

    /// Waits until a new process serves, and says so; or until this one is to stop anyway.
    pub fn wait(self, drain: &Drain) -> bool {
        while drain.phase() == Phase::Serving {
            let Ok((asking, _)) = self.socket.accept() else { continue };
            match self.hand_over(&asking) {
                Ok(()) => {
                    // Before the connection is closed, which tells the new one that the path is free.
                    let Self { path, socket, sockets } = self;
                    drop((std::fs::remove_file(path), socket, sockets));
                    return true;
                }
                Err(error) => tracing::warn!(%error, "the listening sockets were not handed over"),
            }
        }
        // A path that is left behind does no harm.
        let _ = std::fs::remove_file(&self.path);
        false
    }

    fn hand_over(&self, asking: &Socket) -> io::Result<()> {
        is_ours(asking)?;
        asking.set_read_timeout(Some(PATIENCE))?;
        for Named { name, fd } in &self.sockets {
            send(asking, name.as_bytes(), Some(fd))?;
        }
        send(asking, ALL, None)?;
        match receive(asking)? {
            (word, None) if word.as_bytes() == SERVING => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Whether the other end is of this user or root.
fn is_ours(socket: &Socket) -> io::Result<()> {
    let uid = socket_peercred(socket)?.uid;
    let ours = uid.is_root() || uid == rustix::process::geteuid();
    if ours { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn send(socket: &Socket, word: &[u8], fd: Option<&OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd.as_fd()]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(word)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next word, empty at the end, and the socket that came with it.
fn receive(socket: &Socket) -> io::Result<(String, Option<OwnedFd>)> {
    let mut word = [0; MAX_NAME_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut word)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((String::from_utf8_lossy(&word[..received.bytes.min(MAX_NAME_BYTES)]).into_owned(), fd))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::drain;

    #[test]
    fn a_connection_that_waits_is_handed_over_with_its_socket() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("handover");
        assert!(Old::ask(&path).expect("nobody is no error").is_none());
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("address");
        let named = Named { name: "localhost:80".into(), fd: listener.into() };
        let offer = Offer::new(&path, vec![named]).expect("binds");
        let (_control, drain) = drain::pair();
        let old = std::thread::spawn(move || offer.wait(&drain));
        // Waits in the socket while it changes hands.
        let client = TcpStream::connect(address).expect("connects");
        let (waiting, mut sockets) = Old::ask(&path).expect("answers").expect("somebody is there");
        let named = sockets.pop().expect("a socket");
        assert_eq!((named.name.as_str(), sockets.len()), ("localhost:80", 0));
        waiting.relieve().expect("lets go");
        assert!(old.join().expect("no panic") && !path.exists());
        let Listener::Tcp(listener) = named.listener().expect("a listener") else { panic!("TCP") };
        let (_, remote) = listener.accept().expect("still there");
        assert_eq!(remote, client.local_addr().expect("address"));
    }

    #[test]
    fn a_process_that_does_not_come_to_serve_changes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("handover");
        let offer = Offer::new(&path, Vec::new()).expect("binds");
        let (control, drain) = drain::pair();
        let old = std::thread::spawn(move || offer.wait(&drain));
        drop(Old::ask(&path).expect("answers"));
        assert!(Old::ask(&path).expect("answers again").is_some());
        control.drain(Duration::ZERO);
        assert!(!old.join().expect("no panic") && !path.exists());
    }
}
