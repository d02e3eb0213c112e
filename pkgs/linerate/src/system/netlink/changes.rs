//! Notifications about interfaces that changed.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::ethtool::{self, Ethtool};
use super::message::{Message, Messages};
use super::socket::{Socket, readable};

/// `RTNLGRP_LINK`: interfaces that come, go or change (`include/uapi/linux/rtnetlink.h`).
const LINKS: u32 = 1;
/// `RTM_NEWLINK` and `RTM_DELLINK`.
const LINK_CHANGED: [u16; 2] = [16, 17];
/// Bytes of `struct ifinfomsg`: family (8 bits), padding (8), type (16), index, flags and a mask (32 each).
const LINK_HEADER: usize = 16;
/// `IFLA_IFNAME` (`include/uapi/linux/if_link.h`).
const LINK_NAME: u16 = 3;

/// How many notifications of one kind are read at once. The kernel's socket buffer holds the rest. If that overflows,
/// the kernel reports it, which counts as a change.
const AT_ONCE: usize = 256;

/// Stands for an interface whose name isn't known.
pub const UNKNOWN: &str = "";

/// Listens for notifications about interfaces that changed.
#[derive(Debug)]
pub struct Changes {
    links: Socket,
    settings: Socket,
}

impl Changes {
    /// Starts listening.
    pub fn listen() -> io::Result<Self> {
        let links = Socket::open(NETLINK_ROUTE)?;
        links.join(LINKS)?;
        Ok(Self { links, settings: Ethtool::open()?.monitored()? })
    }

    /// Waits for changes.
    pub fn wait(&mut self, patience: Duration) -> io::Result<BTreeSet<String>> {
        let mut changed = BTreeSet::new();
        let [links, settings] = readable([self.links.as_fd(), self.settings.as_fd()], patience)?;
        if links {
            gather(&mut self.links, &mut changed, |message| {
                let concerned = LINK_CHANGED.contains(&message.kind);
                concerned.then(|| message.attributes(LINK_HEADER).text(LINK_NAME))
            })?;
        }
        if settings {
            // The kind of change doesn't matter, since checking an interface is cheap.
            gather(&mut self.settings, &mut changed, |message| Some(ethtool::changed(message)))?;
        }
        Ok(changed)
    }
}

/// Reads the waiting notifications. `name` returns none for a notification that doesn't count, and otherwise the
/// interface's name if it has one.
fn gather(
    socket: &mut Socket,
    changed: &mut BTreeSet<String>,
    name: impl Fn(&Message<'_>) -> Option<Option<String>>,
) -> io::Result<()> {
    for _ in 0..AT_ONCE {
        match socket.receive() {
            Ok(None) => break,
            Ok(Some(datagram)) => {
                let names = Messages(datagram).filter_map(|message| name(&message));
                changed.extend(names.map(|name| name.unwrap_or_else(|| UNKNOWN.to_owned())));
            }
            Err(error) => {
                changed.insert(lost(error)?);
                break;
            }
        }
    }
    Ok(())
}

/// After an overflow, notifications are lost, so anything may have changed. Other errors are failures.
fn lost(error: io::Error) -> io::Result<String> {
    match error.raw_os_error() {
        Some(libc::ENOBUFS) => Ok(UNKNOWN.to_owned()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_is_a_change_of_anything_and_other_errors_are_errors() {
        assert_eq!(lost(io::Error::from_raw_os_error(libc::ENOBUFS)).expect("a change"), UNKNOWN);
        lost(io::Error::from_raw_os_error(libc::ENOMEM)).expect_err("an error");
    }
}
