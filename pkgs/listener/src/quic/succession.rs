//! One process after another on the same sockets.
//!
//! All datagrams of a port reach whoever reads its sockets. When a new process takes them over, those of
//! connections that the old one still has are among them; the ids tell which, and a relay brings them back. The
//! old one goes on sending by itself. Its relay is passed on with the sockets for as long as it lives, so that processes
//! may follow each other faster than they drain.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use quinn::udp::{EcnCodepoint, RecvMeta};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
    recvmsg, sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::cid::Ids;
use crate::handover::Named;

/// What stands before a datagram in a relay: where it came from, where it went and its ECN bits, as text.
const HEAD: usize = 128;

/// Processes before this one whose datagrams are handed back. Of more that drain at once, the oldest are cut off.
const PREDECESSORS: usize = 8;

/// What is taken over from the process before: its sockets on one address, and the way back to its workers and to those of
/// the processes before it.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// In the order of its workers.
    pub(super) sockets: Vec<UdpSocket>,
    /// The last first; none where it had no HTTP/3 on this address.
    pub(super) predecessors: Vec<Predecessor>,
}

impl Inherited {
    /// Takes what is for the endpoint `name` out of what was handed over.
    ///
    /// # Errors
    /// When a socket is not what its name says.
    pub(crate) fn take(handed: &mut Vec<Named>, name: &str) -> io::Result<Self> {
        let sockets = handed.extract_if(.., |fd| fd.name == socket_name(name));
        let sockets = sockets.map(|socket| UdpSocket::from(socket.fd)).collect();
        let mut predecessors: Vec<Predecessor> = Vec::new();
        for relay in handed.extract_if(.., |fd| relay_key(&fd.name, name).is_some()) {
            let ids = relay_key(&relay.name, name).ok_or(io::ErrorKind::InvalidData)?;
            match predecessors.iter_mut().find(|known| known.ids == ids) {
                Some(known) => known.relays.push(relay.fd),
                None => predecessors.push(Predecessor {
                    ids,
                    relays: vec![relay.fd],
                    gone: AtomicBool::new(false),
                }),
            }
        }
        predecessors.retain(|predecessor| !predecessor.has_ended());
        predecessors.truncate(PREDECESSORS);
        Ok(Self { sockets, predecessors })
    }
}

fn socket_name(endpoint: &str) -> String {
    format!("quic socket {endpoint}")
}

fn relay_name(ids: &Ids, endpoint: &str) -> String {
    format!("quic relay {} {endpoint}", ids.to_text())
}

fn relay_key(name: &str, endpoint: &str) -> Option<Ids> {
    let (key, of) = name.strip_prefix("quic relay ")?.split_once(' ')?;
    Ids::from_text(key).filter(|_| of == endpoint)
}

/// What a process to come is offered of one worker: its sockets, and the way to it. Returns the worker's end too.
///
/// # Errors
/// When there are no descriptors left.
pub(super) fn offer(ids: &Ids, endpoint: &str, sockets: &[UdpSocket]) -> io::Result<(Vec<Named>, OwnedFd)> {
    // Of this kind the kernel keeps as many messages as fit the buffer, and not ten.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (theirs, ours) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut named = vec![Named { name: relay_name(ids, endpoint), fd: theirs }];
    for socket in sockets {
        named.push(Named { name: socket_name(endpoint), fd: socket.as_fd().try_clone_to_owned()? });
    }
    Ok((named, ours))
}

/// A process before, while it has connections.
#[derive(Debug)]
pub(super) struct Predecessor {
    ids: Ids,
    /// One for each of its workers.
    relays: Vec<OwnedFd>,
    gone: AtomicBool,
}

impl Predecessor {
    /// Whether nobody reads its relays any more.
    fn has_ended(&self) -> bool {
        let mut looked: Vec<_> =
            self.relays.iter().map(|relay| PollFd::new(relay, PollFlags::empty())).collect();
        // Its other end being closed is told unasked.
        let looking = poll(&mut looked, Some(&Timespec::default()));
        looking.is_ok() && looked.iter().all(|relay| relay.revents().contains(PollFlags::HUP))
    }

    /// The way to it, for the process to come.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn offer(&self, endpoint: &str) -> io::Result<Vec<Named>> {
        let relays = self.relays.iter().map(|relay| relay.try_clone());
        relays.map(|fd| Ok(Named { name: relay_name(&self.ids, endpoint), fd: fd? })).collect()
    }

    /// Its worker that made an id.
    pub(super) fn worker(&self, id: &[u8]) -> Option<u8> {
        if self.gone.load(Relaxed) {
            return None;
        }
        self.ids.worker(id).filter(|&worker| usize::from(worker) < self.relays.len())
    }

    /// Hands a datagram back to it; false if there is no room, or nobody any more.
    pub(super) fn relay(&self, worker: u8, meta: &RecvMeta, datagram: &[u8]) -> bool {
        let head = head(meta);
        let parts = [IoSlice::new(&head), IoSlice::new(datagram)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let relay = &self.relays[usize::from(worker)];
        match sendmsg(relay, &parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => true,
            Err(error) => {
                let ended = matches!(error, rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET);
                self.gone.fetch_or(ended, Relaxed);
                false
            }
        }
    }
}

/// What a worker is handed back once another process reads its sockets.
#[derive(Debug)]
pub(super) struct Relay(UnixDatagram);

impl Relay {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        // Of another kind, but read alike.
        UnixDatagram::from_std(fd.into()).map(Self)
    }

    /// Receives one datagram; forever pending once the other process has closed its end.
    pub(super) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buf: &mut IoSliceMut<'_>,
        meta: &mut RecvMeta,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_recv_ready(cx))?;
            let mut head = [0; HEAD];
            let received = self.0.try_io(Interest::READABLE, || {
                let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(buf)];
                let mut none = RecvAncillaryBuffer::default();
                Ok(recvmsg(&self.0, &mut parts, &mut none, RecvFlags::empty())?.bytes)
            });
            match received {
                Ok(0) => return Poll::Pending,
                Ok(count) => {
                    // What has no head is not from the other process, and there is nobody else.
                    let Some(parsed) = count.checked_sub(HEAD).and_then(|len| parse(&head, len)) else {
                        continue;
                    };
                    *meta = parsed;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

fn head(meta: &RecvMeta) -> [u8; HEAD] {
    let mut head = [b' '; HEAD];
    let local = meta.dst_ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
    // Two addresses and a digit take no more than 100 bytes.
    let _ = write!(&mut head[..], "{} {local} {ecn} ", meta.addr);
    head
}

fn parse(head: &[u8; HEAD], len: usize) -> Option<RecvMeta> {
    let mut words = std::str::from_utf8(head).ok()?.split(' ');
    let addr: SocketAddr = words.next()?.parse().ok()?;
    let dst_ip = words.next()?.parse().ok();
    let ecn = EcnCodepoint::from_bits(words.next()?.parse().ok()?);
    Some(RecvMeta { addr, len, stride: len, ecn, dst_ip })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(addr: &str, dst_ip: Option<&str>, ecn: Option<EcnCodepoint>) -> RecvMeta {
        let dst_ip = dst_ip.map(|ip| ip.parse().expect("an address"));
        RecvMeta { addr: addr.parse().expect("an address"), len: 7, stride: 7, ecn, dst_ip }
    }

    #[test]
    fn heads_keep_what_is_known_of_a_datagram() {
        for meta in [
            meta("192.0.2.1:443", Some("127.0.0.1"), Some(EcnCodepoint::Ect0)),
            meta("[2001:db8:1111:2222:3333:4444:5555:6666%77777]:65535", None, None),
            meta(
                "[::ffff:192.0.2.1]:1",
                Some("2001:db8:1111:2222:3333:4444:5555:6666"),
                Some(EcnCodepoint::Ce),
            ),
        ] {
            let read = parse(&head(&meta), 7).expect("it is a head");
            assert_eq!(format!("{read:?}"), format!("{meta:?}"));
        }
        assert!(parse(&[b'x'; HEAD], 7).is_none());
    }

    #[tokio::test]
    async fn datagrams_come_back_until_the_old_process_is_gone() {
        let ids = Ids::default();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (mut handed, ours) = offer(&ids, "[::]:443", std::slice::from_ref(&socket)).expect("descriptors");
        handed.push(Named { name: "[::]:443".into(), fd: socket.into() });
        let Inherited { sockets, mut predecessors } =
            Inherited::take(&mut handed, "[::]:443").expect("it is valid");
        assert_eq!((sockets.len(), handed.len()), (1, 1), "the listening socket is left");
        let predecessor = predecessors.pop().expect("there is a relay");
        let id = quinn::ConnectionIdGenerator::generate_cid(&mut ids.generator(0));
        assert_eq!(predecessor.worker(&id), Some(0));
        let from = meta("192.0.2.1:443", None, None);
        assert!(predecessor.relay(0, &from, b"payload"));

        let relay = Relay::new(ours).expect("a runtime");
        let (mut buf, mut read) = ([0; 100], RecvMeta::default());
        let mut slice = IoSliceMut::new(&mut buf);
        std::future::poll_fn(|cx| relay.poll_recv(cx, &mut slice, &mut read)).await.expect("a datagram");
        assert_eq!((&buf[..read.len], read.addr), (&b"payload"[..], from.addr));
        drop(relay);
        assert!(!predecessor.relay(0, &from, b"payload"));
        assert_eq!(predecessor.worker(&id), None, "nobody is there any more");
    }

    #[tokio::test]
    async fn the_way_to_a_process_before_the_last_is_passed_on_while_it_lives() {
        const ENDPOINT: &str = "[::]:443";
        let [oldest, older, old] = [(); 3].map(|()| Ids::default());
        let (mut handed, of_oldest) = offer(&oldest, ENDPOINT, &[]).expect("descriptors");
        let (of_older, older_end) = offer(&older, ENDPOINT, &[]).expect("descriptors");
        handed.splice(0..0, of_older);
        let second = Inherited::take(&mut handed, ENDPOINT).expect("it is valid").predecessors;

        // What the second process hands to the third: its own relay, then those it has.
        let (mut handed, _old_end) = offer(&old, ENDPOINT, &[]).expect("descriptors");
        handed
            .extend(second.iter().flat_map(|predecessor| predecessor.offer(ENDPOINT).expect("descriptors")));
        drop((second, older_end));
        let third = Inherited::take(&mut handed, ENDPOINT).expect("it is valid").predecessors;
        assert!(
            third.iter().map(|predecessor| &predecessor.ids).eq([&old, &oldest]),
            "who has ended is left out"
        );
        assert!(third[1].relay(0, &meta("192.0.2.1:443", None, None), b"payload"));
        let relay = Relay::new(of_oldest).expect("a runtime");
        let (mut buf, mut read) = ([0; 100], RecvMeta::default());
        let mut slice = IoSliceMut::new(&mut buf);
        std::future::poll_fn(|cx| relay.poll_recv(cx, &mut slice, &mut read)).await.expect("a datagram");
        assert_eq!(&buf[..read.len], b"payload");
    }
}
