//! The generic netlink family of ethtool (`Documentation/networking/ethtool-netlink.rst`,
//! `include/uapi/linux/ethtool_netlink.h`).

use std::collections::BTreeMap;
use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;

use super::message::{Attributes, Message, Writer};
use super::socket::Socket;
use crate::system::{Channels, Coalescing, Rings};

/// `GENL_ID_CTRL`: the family that lists all others (`include/uapi/linux/genetlink.h`).
const CONTROLLER: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`, version 2.
const GET_FAMILY: [u8; 4] = [3, 2, 0, 0];
/// `CTRL_ATTR_…`: a family's number, its name and its groups.
mod family {
    pub const ID: u16 = 1;
    pub const NAME: u16 = 2;
    pub const GROUPS: u16 = 7;
    /// `CTRL_ATTR_MCAST_GRP_…` of each group.
    pub const GROUP_NAME: u16 = 1;
    pub const GROUP_ID: u16 = 2;
}
/// The size of `struct genlmsghdr`: command, version, two reserved bytes.
const HEADER: usize = 4;
/// `ETHTOOL_GENL_NAME`, `ETHTOOL_GENL_VERSION`, `ETHTOOL_MCGRP_MONITOR_NAME`.
const NAME: &str = "ethtool";
const VERSION: u8 = 1;
const MONITOR: &str = "monitor";

/// `ETHTOOL_A_…_HEADER`, the first attribute of all messages here, and `ETHTOOL_A_HEADER_DEV_NAME` in it.
const INTERFACE: u16 = 1;
const INTERFACE_NAME: u16 = 2;

/// `ETHTOOL_MSG_…`: requests.
mod command {
    pub const FEATURES_GET: u8 = 11;
    pub const RINGS_GET: u8 = 15;
    pub const RINGS_SET: u8 = 16;
    pub const CHANNELS_GET: u8 = 17;
    pub const CHANNELS_SET: u8 = 18;
    pub const COALESCE_GET: u8 = 19;
}

/// `ETHTOOL_A_CHANNELS_…`.
mod channels {
    pub const RX_MAX: u16 = 2;
    pub const TX_MAX: u16 = 3;
    pub const COMBINED_MAX: u16 = 5;
    pub const RX: u16 = 6;
    pub const TX: u16 = 7;
    pub const COMBINED: u16 = 9;
}

/// `ETHTOOL_A_RINGS_…`.
mod rings {
    pub const RX: u16 = 6;
    pub const TX: u16 = 9;
}

/// `ETHTOOL_A_COALESCE_…`.
mod coalescing {
    pub const RX_USECS: u16 = 2;
    pub const RX_FRAMES: u16 = 3;
    pub const TX_USECS: u16 = 6;
    pub const TX_FRAMES: u16 = 7;
    pub const ADAPTIVE_RX: u16 = 11;
    pub const ADAPTIVE_TX: u16 = 12;
}

/// `ETHTOOL_A_FEATURES_…`: features that the driver can switch, that are wanted, that are on, and that never change.
mod features {
    pub const SWITCHED: u16 = 2;
    pub const WANTED: u16 = 3;
    pub const ACTIVE: u16 = 4;
    pub const FIXED: u16 = 5;
}

/// `ETHTOOL_A_BITSET_…`: bits with names. The kernel writes these unless it is asked for the compact form.
mod bitset {
    pub const NO_MASK: u16 = 1;
    pub const BITS: u16 = 3;
    /// The attributes of each bit.
    pub const NAME: u16 = 2;
    pub const VALUE: u16 = 3;
}

/// A socket for requests to the family.
#[derive(Debug)]
pub struct Ethtool {
    socket: Socket,
    family: u16,
    monitor: Option<u32>,
}

impl Ethtool {
    /// Finds the family's number.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::open(NETLINK_GENERIC)?;
        let (mut family, mut monitor) = (None, None);
        let name = |question: Writer| question.text(family::NAME, NAME);
        let found = socket.ask(CONTROLLER, &GET_FAMILY, name, |message| {
            let told = message.attributes(HEADER);
            family = told.u16(family::ID);
            monitor = told.nested(family::GROUPS).map(|(_, group)| Attributes(group)).find_map(|group| {
                let name = group.text(family::GROUP_NAME)?;
                if name == MONITOR { group.u32(family::GROUP_ID) } else { None }
            });
        });
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "the kernel has no netlink of ethtool's");
        match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(unknown()),
            Err(error) => Err(error),
            Ok(()) => Ok(Self { socket, family: family.ok_or_else(unknown)?, monitor }),
        }
    }

    /// Starts listening for all changes, whoever makes them. The socket then sends no more requests.
    pub fn monitored(self) -> io::Result<Socket> {
        self.socket.join(self.monitor.ok_or(io::ErrorKind::Unsupported)?)?;
        Ok(self.socket)
    }

    /// Sends a request about an interface, and calls `each` with the answer.
    fn ask(
        &mut self,
        command: u8,
        interface: &str,
        write: impl FnOnce(Writer) -> Writer,
        told: impl FnMut(&Message<'_>),
    ) -> io::Result<()> {
        let header = [command, VERSION, 0, 0];
        let write = |question: Writer| {
            write(question.nested(INTERFACE, |header| header.text(INTERFACE_NAME, interface)))
        };
        self.socket.ask(self.family, &header, write, told)
    }

    /// Sends a request about an interface, and converts the answer to a value.
    fn get<T: Default>(
        &mut self,
        command: u8,
        interface: &str,
        read: impl Fn(Attributes<'_>) -> T,
    ) -> io::Result<T> {
        let mut told = T::default();
        self.ask(command, interface, |question| question, |message| told = read(message.attributes(HEADER)))?;
        Ok(told)
    }

    /// Channels of an interface.
    pub fn channels(&mut self, interface: &str) -> io::Result<Channels> {
        self.get(command::CHANNELS_GET, interface, |told| {
            let count = |kind| told.u32(kind).unwrap_or(0);
            Channels {
                rx: count(channels::RX),
                tx: count(channels::TX),
                combined: count(channels::COMBINED),
                max_rx: count(channels::RX_MAX),
                max_tx: count(channels::TX_MAX),
                max_combined: count(channels::COMBINED_MAX),
            }
        })
    }

    /// Sets the combined channels of an interface.
    pub fn set_channels(&mut self, interface: &str, combined: u32) -> io::Result<()> {
        let write = |question: Writer| question.u32(channels::COMBINED, combined);
        self.ask(command::CHANNELS_SET, interface, write, |_| ())
    }

    /// Rings of an interface.
    pub fn rings(&mut self, interface: &str) -> io::Result<Rings> {
        let read = |told: Attributes<'_>| Rings { rx: told.u32(rings::RX), tx: told.u32(rings::TX) };
        self.get(command::RINGS_GET, interface, read)
    }

    /// Sets the given rings of an interface.
    pub fn set_rings(&mut self, interface: &str, wanted: &Rings) -> io::Result<()> {
        let write = |question: Writer| question.some_u32(rings::RX, wanted.rx).some_u32(rings::TX, wanted.tx);
        self.ask(command::RINGS_SET, interface, write, |_| ())
    }

    /// Coalescing of an interface.
    pub fn coalescing(&mut self, interface: &str) -> io::Result<Coalescing> {
        self.get(command::COALESCE_GET, interface, |told| Coalescing {
            adaptive_rx: told.flag(coalescing::ADAPTIVE_RX),
            adaptive_tx: told.flag(coalescing::ADAPTIVE_TX),
            rx_usecs: told.u32(coalescing::RX_USECS),
            tx_usecs: told.u32(coalescing::TX_USECS),
            rx_frames: told.u32(coalescing::RX_FRAMES),
            tx_frames: told.u32(coalescing::TX_FRAMES),
        })
    }

    /// Offloads of an interface, and whether each is on.
    pub fn offloads(&mut self, interface: &str) -> io::Result<BTreeMap<String, bool>> {
        self.get(command::FEATURES_GET, interface, offloads)
    }
}

/// The name of the interface that a notification is about.
pub fn changed(message: &Message<'_>) -> Option<String> {
    message.attributes(HEADER).nested(INTERFACE).text(INTERFACE_NAME)
}

/// Reads offloads. The kernel lists the offloads that could be on in some bitsets, and those that are on in another
/// one.
fn offloads(told: Attributes<'_>) -> BTreeMap<String, bool> {
    let mut all = BTreeMap::new();
    for set in [features::SWITCHED, features::FIXED, features::WANTED] {
        all.extend(bits(told.nested(set)).map(|(name, _)| (name, false)));
    }
    all.extend(bits(told.nested(features::ACTIVE)).filter(|(_, on)| *on));
    all
}

/// The names of a bitset's bits, and whether each is set. In a bitset without a mask, a bit is set if it is listed.
fn bits(set: Attributes<'_>) -> impl Iterator<Item = (String, bool)> {
    let listed = set.get(bitset::NO_MASK).is_some();
    set.nested(bitset::BITS).filter_map(move |(_, bit)| {
        let bit = Attributes(bit);
        Some((bit.text(bitset::NAME)?, listed || bit.get(bitset::VALUE).is_some()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::Messages;
    use super::*;

    /// A bitset as the kernel would write it.
    fn set(written: Writer, kind: u16, listed: bool, bits: &[(&str, bool)]) -> Writer {
        written.nested(kind, |set| {
            let set = if listed { set.attribute(bitset::NO_MASK, &[]) } else { set };
            set.nested(bitset::BITS, |mut within| {
                for (name, on) in bits {
                    within = within.nested(1, |bit| {
                        let bit = bit.u32(1, 0).text(bitset::NAME, name);
                        if *on { bit.attribute(bitset::VALUE, &[]) } else { bit }
                    });
                }
                within
            })
        })
    }

    #[test]
    fn offloads_are_those_of_all_sets_and_on_where_they_are_active() {
        let written = Writer::new(20, 0, &[0; HEADER]);
        let hardware = [("rx-gro", true), ("tx-lro", true), ("tls-hw-tx-offload", false)];
        let written = set(written, features::SWITCHED, false, &hardware);
        let written = set(written, features::WANTED, true, &[("rx-gro", false)]);
        let written = set(written, features::ACTIVE, true, &[("rx-gro", false), ("netns-local", false)]);
        let bytes = set(written, features::FIXED, true, &[("netns-local", false)]).finish(1);
        let message = Messages(&bytes).next().expect("a message");
        let told: Vec<_> = offloads(message.attributes(HEADER)).into_iter().collect();
        let expected =
            [("netns-local", true), ("rx-gro", true), ("tls-hw-tx-offload", false), ("tx-lro", false)];
        assert_eq!(told, expected.map(|(name, on)| (name.to_owned(), on)));
    }

    #[test]
    fn a_notification_names_its_interface() {
        let named = Writer::new(20, 0, &[18, 1, 0, 0])
            .nested(INTERFACE, |header| header.u32(1, 2).text(INTERFACE_NAME, "eth0"))
            .finish(0);
        let nameless = Writer::new(20, 0, &[18, 1, 0, 0]).u32(9, 4).finish(0);
        for (bytes, expected) in [(named, Some("eth0")), (nameless, None)] {
            let message = Messages(&bytes).next().expect("a message");
            assert_eq!(changed(&message).as_deref(), expected);
        }
    }
}
