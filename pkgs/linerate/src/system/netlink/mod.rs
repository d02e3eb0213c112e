//! What this machine reports over netlink: ethtool's family, rtnetlink and socket diagnosis.
//!
//! - [`message`]: encodes and decodes messages and their attributes.
//! - [`socket`]: sends requests and receives answers and notifications.
//! - [`ethtool`]: channels, rings, coalescing and offloads.
//! - [`changes`]: which interfaces changed.

mod changes;
mod ethtool;
mod message;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_SOCK_DIAG};
use rustix::net::netdevice::name_to_index;

pub use changes::{Changes, UNKNOWN};
use ethtool::Ethtool;
use message::{Message, u32_at};
use socket::Socket;

use super::{Channels, Coalescing, Rings, TcpListener};

/// `RTM_GETQDISC` (`include/uapi/linux/rtnetlink.h`).
const GET_QDISC: u16 = 38;
/// Bytes of `struct tcmsg`: family (8 bits) and three bytes of padding, interface (32), handle, parent, info.
const QDISC_HEADER: usize = 20;
/// `TCA_KIND`: a discipline's name.
const QDISC_KIND: u16 = 1;

/// Disciplines that only have one child discipline per queue (`net/sched/sch_mq.c`, `sch_mqprio.c`).
const BRANCHES: [&str; 2] = ["mq", "mqprio"];

/// Disciplines for incoming packets; outgoing packets don't use them.
const INWARD: [&str; 2] = ["ingress", "clsact"];

/// `SOCK_DIAG_BY_FAMILY` (`include/uapi/linux/sock_diag.h`).
const SOCKETS: u16 = 20;
/// Bytes of `struct inet_diag_req_v2` (`include/uapi/linux/inet_diag.h`): family, protocol, extensions and padding (8
/// bits each), states (32), and 48 bytes that identify a single socket, which are zero in a request for all.
const SOCKETS_QUESTION: usize = 56;
/// Only `TCP_LISTEN` (`include/net/tcp_states.h`).
const LISTENING: u32 = 1 << 10;
/// Offsets in `struct inet_diag_msg`: the port and address that a socket is bound to, and its queues.
const PORT: usize = 4;
const ADDRESS: usize = 8;
const RECEIVE_QUEUE: usize = 56;
const SEND_QUEUE: usize = 60;

/// Sends requests over netlink, each through its own socket.
#[derive(Debug, Default)]
pub struct Netlink;

impl Netlink {
    /// Channels of an interface.
    pub fn channels(&self, interface: &str) -> io::Result<Channels> {
        Ethtool::open()?.channels(interface)
    }

    /// Sets the combined channels of an interface.
    pub fn set_channels(&self, interface: &str, combined: u32) -> io::Result<()> {
        Ethtool::open()?.set_channels(interface, combined)
    }

    /// Rings of an interface.
    pub fn rings(&self, interface: &str) -> io::Result<Rings> {
        Ethtool::open()?.rings(interface)
    }

    /// Sets rings of an interface.
    pub fn set_rings(&self, interface: &str, rings: &Rings) -> io::Result<()> {
        Ethtool::open()?.set_rings(interface, rings)
    }

    /// Coalescing of an interface.
    pub fn coalescing(&self, interface: &str) -> io::Result<Coalescing> {
        Ethtool::open()?.coalescing(interface)
    }

    /// Offloads of an interface.
    pub fn offloads(&self, interface: &str) -> io::Result<BTreeMap<String, bool>> {
        Ethtool::open()?.offloads(interface)
    }

    /// The queueing disciplines at the leaves of an interface.
    pub fn qdiscs(&self, interface: &str) -> io::Result<Vec<String>> {
        let mut socket = Socket::open(NETLINK_ROUTE)?;
        let index = name_to_index(&socket, interface)?;
        socket.all(GET_QDISC, &[0; QDISC_HEADER], |message| {
            // The kernel lists the disciplines of all interfaces, whichever was requested.
            let kind = message.attributes(QDISC_HEADER).text(QDISC_KIND)?;
            let leaf = !BRANCHES.contains(&kind.as_str()) && !INWARD.contains(&kind.as_str());
            (leaf && u32_at(message.payload, 4) == Some(index)).then_some(kind)
        })
    }

    /// Listening TCP sockets.
    pub fn listeners(&self) -> io::Result<Vec<TcpListener>> {
        let mut socket = Socket::open(NETLINK_SOCK_DIAG)?;
        let mut all = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut question = [0; SOCKETS_QUESTION];
            question[0] = family as u8;
            question[1] = libc::IPPROTO_TCP as u8;
            question[4..8].copy_from_slice(&LISTENING.to_ne_bytes());
            all.extend(socket.all(SOCKETS, &question, listener)?);
        }
        Ok(all)
    }
}

/// Reads a listening socket. Its queues count connections (`net/ipv4/tcp_diag.c`).
fn listener(message: &Message<'_>) -> Option<TcpListener> {
    let told = message.payload;
    let address = told.get(ADDRESS..)?;
    let address = match i32::from(*told.first()?) {
        libc::AF_INET => IpAddr::from(*address.first_chunk::<4>()?),
        libc::AF_INET6 => IpAddr::from(*address.first_chunk::<16>()?),
        _ => return None,
    };
    let port = u16::from_be_bytes(*told.get(PORT..)?.first_chunk()?);
    Some(TcpListener {
        address: SocketAddr::new(address, port),
        backlog: u32_at(told, SEND_QUEUE)?,
        waiting: u32_at(told, RECEIVE_QUEUE)?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::socket::readable;
    use super::*;

    #[test]
    fn sockets_that_listen_are_told_with_who_waits() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listening) = std::net::TcpListener::bind(address) else {
                assert!(address.starts_with('['), "a machine without IPv6 has IPv4");
                continue;
            };
            let address = listening.local_addr().expect("an address");
            let find = || {
                let told = Netlink.listeners().expect("sockets");
                told.into_iter().find(|told| told.address == address).expect("the socket")
            };
            let before = find();
            let _waits = TcpStream::connect(address).expect("a connection");
            // The client may see its connection before the listening socket does.
            assert_eq!(readable([listening.as_fd()], Duration::from_secs(30)).expect("readable"), [true]);
            let after = find();
            assert_eq!((before.waiting, after.waiting), (0, 1));
            assert!(before.backlog >= 1 && after.backlog == before.backlog, "{before:?}");
        }
    }

    #[test]
    fn what_an_interface_cannot_is_unsupported_and_what_is_none_is_an_error() {
        assert_eq!(Netlink.rings("lo").expect_err("none").kind(), io::ErrorKind::Unsupported);
        match Netlink.offloads("lo") {
            Ok(told) => assert!(told.values().any(|on| *on), "{told:?}"),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return bench::skipped("netlink", &error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
        for error in [
            Netlink.channels("none-such").map(drop),
            Netlink.offloads("none-such").map(drop),
            Netlink.qdiscs("none-such").map(drop),
        ] {
            let error = error.expect_err("no interface").to_string();
            assert!(error.contains("No such device") || error.contains("no device"), "{error}");
        }
    }
}
