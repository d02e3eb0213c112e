//! The old process's side: the socket at which new processes ask.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::about::About;
use super::registry;
use super::wire::{self, ABOUT, GOODBYE, HELLO, Item, LEFT, MAX_ITEMS, NO, PATIENCE, SERVING, YES, YOURS};
use crate::shutdown::Shutdown;
use crate::{manager, settings};

/// How long a new process may take from receiving the sockets until it serves. It may have to migrate a database.
const START: Duration = Duration::from_secs(300);

/// How often to check that the socket is still at its path, since something that cleans directories may remove it.
const LOOK: Duration = Duration::from_secs(5);

/// Pause before retrying after a lack of memory or descriptors.
const PAUSE: Duration = Duration::from_millis(500);

/// Only the owner may connect.
const MODE: u32 = 0o600;

/// How many processes may wait for an answer.
const BACKLOG: i32 = 8;

/// A socket at which new processes ask.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    socket: Socket,
    /// The file's device and inode.
    file: (u64, u64),
}

/// How offering ended.
#[derive(Debug)]
pub(super) enum End {
    /// This other process serves now.
    HandedOver(Peer),
    /// This process stops anyway.
    Stopped,
    /// No process can ask any more.
    Failed(io::Error),
}

/// Where a socket is made before it is moved to `path`.
pub(super) fn beside(path: &Path) -> io::Result<(PathBuf, SockAddr)> {
    let beside = path.with_added_extension("new");
    let address = SockAddr::unix(&beside)?;
    Ok((beside, address))
}

impl Place {
    /// Takes the place of the process that listened at `path`.
    pub fn take(path: &Path) -> io::Result<Self> {
        let (new, address) = beside(path)?;
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address)?;
        // Other processes find the socket only once it listens, and even then only the owner may connect. A process
        // that is refused at the path assumes that no process serves there.
        fs::set_permissions(&new, Permissions::from_mode(MODE))?;
        socket.listen(BACKLOG)?;
        let file = fs::symlink_metadata(&new)?;
        fs::rename(&new, path)?;
        Ok(Self { path: path.to_owned(), socket, file: (file.dev(), file.ino()) })
    }

    /// Waits until a new process serves, or until this one stops anyway.
    pub async fn offer(self, program: &str, shutdown: &Shutdown) -> End {
        let mut place = match self.listen() {
            Ok(place) => place,
            Err(error) => return End::Failed(error),
        };
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waiting = None;
        loop {
            let asking = match waiting.take() {
                Some(asking) => asking,
                None => tokio::select! {
                    () = shutdown.wait() => return place.leave(),
                    _ = looks.tick() => {
                        place.mend();
                        continue;
                    }
                    asking = place.accept() => asking,
                },
            };
            let handed = tokio::select! {
                biased;
                () = shutdown.wait() => return place.leave(),
                (handed, next) = place.refuse_others(&asking, hand_over(&asking, program)) => {
                    waiting = next;
                    handed
                }
            };
            match handed {
                Ok(Asked::TakenOver) => return End::HandedOver(asking),
                Ok(Asked::About) => continue,
                Err(error) => tracing::warn!(%error, "no other process has taken over: this one serves on"),
            }
            // The new process may have failed after it put its own socket in place.
            place.mend();
        }
    }

    fn listen(self) -> io::Result<Listening> {
        // This is a socket of packets (`SOCK_SEQPACKET`), not a stream, but waiting for connections works in the same
        // way.
        let socket = UnixListener::from_std(self.socket.into())?;
        Ok(Listening { path: self.path, socket, file: self.file })
    }
}

/// A [`Place`] within a runtime.
struct Listening {
    path: PathBuf,
    socket: UnixListener,
    file: (u64, u64),
}

/// What a process asked for and got.
#[derive(Debug)]
enum Asked {
    /// It serves now.
    TakenOver,
    /// It only asked about this process.
    About,
}

impl Listening {
    async fn accept(&self) -> Peer {
        loop {
            match self.socket.accept().await {
                Ok((asking, _)) => return Peer(asking),
                Err(error) => {
                    tracing::warn!(%error, "cannot hear who asks to take over");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits until `handing` to `asking` ends, and refuses every other process meanwhile. Also returns a process that
    /// asked after `asking` had ended, which must not be refused because of it.
    async fn refuse_others<T>(&self, asking: &Peer, handing: impl Future<Output = T>) -> (T, Option<Peer>) {
        let mut handing = pin!(handing);
        loop {
            let other = tokio::select! {
                biased;
                handed = &mut handing => return (handed, None),
                other = self.accept() => other,
            };
            // The runtime may not have heard of it yet, where this thread had to wait for a processor.
            if asking.has_ended() {
                return (handing.await, Some(other));
            }
            // A new socket has room for one packet, so this does not wait.
            let _ = wire::send(&other.0, &format!("{NO}another process does so just now"), None);
        }
    }

    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file)
    }

    /// Puts a socket back at the path.
    fn mend(&mut self) {
        if self.is_there() {
            return;
        }
        match Place::take(&self.path).and_then(Place::listen) {
            Ok(place) => *self = place,
            Err(error) => tracing::warn!(
                %error, path = %self.path.display(), "no other process can find this one to take over"
            ),
        }
    }

    /// Stops offering.
    fn leave(self) -> End {
        if self.is_there() {
            // A leftover file does no harm.
            let _ = fs::remove_file(&self.path);
        }
        End::Stopped
    }
}

/// The process that asks.
#[derive(Debug)]
pub(super) struct Peer(UnixStream);

impl Peer {
    async fn send(&self, word: &str, fd: Option<&OwnedFd>) -> io::Result<()> {
        self.0.async_io(Interest::WRITABLE, || wire::send(&self.0, word, fd)).await
    }

    async fn receive(&self) -> io::Result<Item> {
        self.0.async_io(Interest::READABLE, || wire::receive(&self.0)).await
    }

    /// Whether its end of the stream is closed.
    fn has_ended(&self) -> bool {
        let mut ends = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut ends, Some(&now)).is_ok_and(|ended| ended > 0)
    }

    /// Waits until it ends. Returns whether it announced that.
    pub async fn ends_in_good_order(&self) -> bool {
        self.receive().await.is_ok_and(|word| word.name == GOODBYE)
    }

    /// Sends the number of items and each item: a name with its descriptor, or a text.
    async fn answer(&self, items: &[Item]) -> io::Result<()> {
        let said = async {
            self.send(&format!("{YES}{}", items.len()), None).await?;
            for Item { name, fd } in items {
                self.send(name, fd.as_ref()).await?;
            }
            io::Result::Ok(())
        };
        timeout(PATIENCE, said).await?
    }

    async fn refuse(&self, reason: &str) -> io::Error {
        let _ = self.send(&format!("{NO}{reason}"), None).await;
        io::Error::other(reason.to_owned())
    }
}

/// Hands everything to the asking process, and waits until it serves.
async fn hand_over(asking: &Peer, program: &str) -> io::Result<Asked> {
    if let Some(uid) = wire::stranger(&asking.0)? {
        // Nothing is read from another user's process.
        return Err(asking.refuse(&format!("user {uid} may not")).await);
    }
    let asked = timeout(PATIENCE, asking.receive()).await??.name;
    let asks = |word| asked.strip_prefix(word).and_then(|rest: &str| rest.strip_prefix(' ')) == Some(program);
    if asks(ABOUT) {
        let texts = About::of_process(settings::fingerprint())?.texts().into_iter();
        let items: Vec<_> = texts.map(|name| Item { name, fd: None }).collect();
        return asking.answer(&items).await.map(|()| Asked::About);
    }
    if !asks(HELLO) {
        let reason = format!("the process that serves is {program}, and hands over to its like alone");
        return Err(asking.refuse(&reason).await);
    }
    asking.answer(&registry::offered()?).await?;
    let Ok(left) = timeout(START, serving(asking)).await else {
        return Err(asking.refuse("it took too long to start").await);
    };
    let left = left?;
    if let Err(error) = manager::follow(wire::process(&asking.0)) {
        return Err(asking.refuse(&format!("the service manager is out of reach: {error}")).await);
    }
    registry::hand_over(&left);
    // If the message does not arrive, the asking process notices by itself.
    let _ = timeout(PATIENCE, asking.send(YOURS, None)).await;
    Ok(Asked::TakenOver)
}

/// Waits until it serves. Returns the names of what it did not take.
async fn serving(asking: &Peer) -> io::Result<BTreeSet<String>> {
    let mut left = BTreeSet::new();
    loop {
        let word = asking.receive().await?.name;
        match word.strip_prefix(LEFT) {
            Some(name) if left.len() < MAX_ITEMS => {
                left.insert(name.to_owned());
            }
            None if word == SERVING => return Ok(left),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes ask one after the other: one that waits, one that is refused, and, when the first has ended but
    /// nothing here has run since, another.
    #[tokio::test]
    async fn who_asks_after_the_asking_one_has_ended_is_not_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("handover");
        let place = Place::take(&path).and_then(Place::listen).expect("it is free");
        let ask = || {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
            socket.connect(&SockAddr::unix(&path).expect("an address")).expect("it listens");
            socket
        };
        let first = ask();
        let asking = place.accept().await;
        let second = ask();
        let (ended, mut told) = tokio::sync::oneshot::channel();
        let third = async {
            while wire::receive(&second).is_err() {
                tokio::task::yield_now().await;
            }
            drop(first);
            let third = ask();
            // What is read first below accepts the third before it is told of the end.
            tokio::task::yield_now().await;
            let _ = ended.send(());
            third
        };
        second.set_nonblocking(true).expect("a socket");
        let refused = place.refuse_others(&asking, &mut told);
        let ((noticed, next), third) = tokio::join!(biased; refused, third);
        noticed.expect("it is told");
        let next = next.expect("the third waits to be answered");
        next.send("your turn", None).await.expect("it listens");
        assert_eq!(wire::receive(&third).expect("an answer").name, "your turn");
    }
}
