//! One process follows another on the same sockets.
//!
//! All datagrams of a port reach the process that reads its sockets. After a takeover ([`handover`]), these include
//! datagrams of the old process's connections. Their ids identify them, and a relay takes them back. The old process
//! sends directly. Its relay is handed on with the sockets as long as it lives, so processes may follow each other
//! faster than they drain.

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use quinn::udp::{EcnCodepoint, RecvMeta};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType,
    recvmsg, sendmsg, socketpair,
};
use service::handover;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::cid::CidKey;

/// The length of the text before a datagram in a relay: its source, its destination and its ECN bits.
const HEAD: usize = 128;

/// The most previous processes that get datagrams back. If more drain at once, the oldest are cut off.
const PREDECESSORS: usize = 8;

/// The name under which the relays of the workers with these ids are handed over, for the sockets on `address`.
pub(super) fn relay_name(ids: &CidKey, address: SocketAddr) -> String {
    format!("quic relay {} {address}", ids.to_text())
}

fn relay_ids(name: &str, address: SocketAddr) -> Option<CidKey> {
    let (key, of) = name.strip_prefix("quic relay ")?.split_once(' ')?;
    CidKey::from_text(key).filter(|_| of.parse() == Ok(address))
}

/// A relay to a worker: the end for later processes, and the worker's end.
///
/// # Errors
/// When there are no descriptors left.
pub(super) fn relay() -> io::Result<(OwnedFd, OwnedFd)> {
    // For this type, the kernel queues as many messages as fit the buffer, not only ten.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A previous process, while it has connections.
#[derive(Debug)]
pub(super) struct Predecessor {
    ids: CidKey,
    /// One for each of its workers.
    relays: Vec<Way>,
}

/// The relay to one worker.
#[derive(Debug)]
struct Way {
    relay: OwnedFd,
    /// Whether it has ended: workers end one by one.
    gone: AtomicBool,
}

impl Predecessor {
    /// Takes the previous processes on `address` from what was handed over, last first.
    pub(super) fn take(address: SocketAddr) -> Vec<Self> {
        Self::of(handover::take_all(|name| relay_ids(name, address).is_some()), address)
    }

    fn of(handed: Vec<(String, OwnedFd)>, address: SocketAddr) -> Vec<Self> {
        let mut predecessors: Vec<Self> = Vec::new();
        for (name, relay) in handed {
            let Some(ids) = relay_ids(&name, address) else { continue };
            let way = Way { relay, gone: AtomicBool::new(false) };
            match predecessors.iter_mut().find(|known| known.ids == ids) {
                Some(known) => known.relays.push(way),
                None => predecessors.push(Self { ids, relays: vec![way] }),
            }
        }
        predecessors.retain(|predecessor| !predecessor.has_ended());
        predecessors.truncate(PREDECESSORS);
        predecessors
    }

    /// Whether nobody reads its relays any more.
    fn has_ended(&self) -> bool {
        let mut looked: Vec<_> =
            self.relays.iter().map(|way| PollFd::new(&way.relay, PollFlags::empty())).collect();
        // poll reports a closed other end without being asked to.
        let looking = poll(&mut looked, Some(&Timespec::default()));
        looking.is_ok() && looked.iter().all(|relay| relay.revents().contains(PollFlags::HUP))
    }

    /// Offers its relays to the next process.
    pub(super) fn offer(&self, address: SocketAddr) {
        let name = relay_name(&self.ids, address);
        self.relays.iter().for_each(|way| handover::offer(&name, &way.relay));
    }

    /// The key of its ids.
    pub(super) fn ids(&self) -> &CidKey {
        &self.ids
    }

    /// Its worker that made an id, if that one still runs.
    pub(super) fn worker(&self, id: &[u8]) -> Option<u8> {
        let worker = self.ids.worker(id)?;
        self.relays.get(usize::from(worker)).filter(|way| !way.gone.load(Relaxed)).map(|_| worker)
    }

    /// Returns a datagram to it. False if there is no room, or the worker has ended.
    pub(super) fn relay(&self, worker: u8, meta: &RecvMeta, datagram: &[u8]) -> bool {
        let head = head(meta);
        let parts = [IoSlice::new(&head), IoSlice::new(datagram)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let way = &self.relays[usize::from(worker)];
        match sendmsg(&way.relay, &parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => true,
            Err(error) => {
                let ended = matches!(error, rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET);
                way.gone.fetch_or(ended, Relaxed);
                false
            }
        }
    }
}

/// Datagrams that a worker gets back once another process reads its sockets.
#[derive(Debug)]
pub(super) struct Relay(UnixDatagram);

impl Relay {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        // A different socket type, but read in the same way.
        UnixDatagram::from_std(fd.into()).map(Self)
    }

    /// Receives one datagram. Pending forever once the other process has closed its end.
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
                    // A datagram without a head is not from the other process, the only sender.
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
    // Two addresses and a digit take at most 100 bytes.
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

    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 443);

    /// This many relays, by name, and their workers' ends.
    fn relays(ids: &CidKey, workers: usize) -> (Vec<(String, OwnedFd)>, Vec<OwnedFd>) {
        let made = (0..workers).map(|_| relay().expect("descriptors"));
        made.map(|(theirs, ours)| ((relay_name(ids, ADDRESS), theirs), ours)).unzip()
    }

    fn id(ids: &CidKey, worker: u8) -> quinn::ConnectionId {
        quinn::ConnectionIdGenerator::generate_cid(&mut ids.generator(worker, Vec::new()))
    }

    async fn received(relay: &Relay) -> (Vec<u8>, SocketAddr) {
        let (mut buf, mut read) = ([0; 100], RecvMeta::default());
        let mut slice = IoSliceMut::new(&mut buf);
        std::future::poll_fn(|cx| relay.poll_recv(cx, &mut slice, &mut read)).await.expect("a datagram");
        (buf[..read.len].to_vec(), read.addr)
    }

    #[tokio::test]
    async fn datagrams_come_back_until_the_worker_is_gone() {
        let ids = CidKey::default();
        let (mut handed, mut ends) = relays(&ids, 2);
        let other = "[::]:443".parse().expect("an address");
        handed.push((relay_name(&CidKey::default(), other), relay().expect("descriptors").0));
        let mut predecessors = Predecessor::of(handed, ADDRESS);
        assert_eq!(predecessors.len(), 1, "what is of another address is left out");
        let predecessor = predecessors.pop().expect("there is a relay");
        let [first, second] = [0, 1].map(|worker| id(&ids, worker));
        assert_eq!(predecessor.worker(&first), Some(0));
        let from = meta("192.0.2.1:443", None, None);
        assert!(predecessor.relay(0, &from, b"payload"));
        let relay = Relay::new(ends.remove(0)).expect("a runtime");
        assert_eq!(received(&relay).await, (b"payload".to_vec(), from.addr));
        drop(relay);
        assert!(!predecessor.relay(0, &from, b"payload"));
        assert_eq!(predecessor.worker(&first), None, "nobody is there any more");
        // A worker has ended, but not the process.
        assert!(predecessor.relay(1, &from, b"more") && !predecessor.has_ended());
        assert_eq!(predecessor.worker(&second), Some(1));
        let relay = Relay::new(ends.remove(0)).expect("a runtime");
        assert_eq!(received(&relay).await.0, b"more");
        drop(relay);
        assert!(predecessor.has_ended());
    }

    #[test]
    fn who_has_ended_is_left_out() {
        let [oldest, older, old] = [(); 3].map(|()| CidKey::default());
        let (mut handed, _old_ends) = relays(&old, 1);
        let (of_older, older_ends) = relays(&older, 1);
        let (of_oldest, _oldest_ends) = relays(&oldest, 1);
        handed.extend(of_older);
        handed.extend(of_oldest);
        drop(older_ends);
        let known = Predecessor::of(handed, ADDRESS);
        assert!(known.iter().map(Predecessor::ids).eq([&old, &oldest]), "the last comes first");
    }
}
