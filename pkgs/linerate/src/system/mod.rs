//! The machine behind one small trait.
//!
//! All decisions depend only on what [`System`] reports. Every rule is therefore tested against [`recorded`] machines,
//! and [`real`] needs no mock.

pub mod clock;
pub mod ioctl;
pub mod mapper;
pub mod memory;
pub mod netlink;
pub mod real;
pub mod recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use real::Real;
pub use recorded::Recorded;

/// Why a machine can't be examined.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The recording can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file isn't a recorded machine.
    #[error("{}: {source}; --machine takes a recorded machine, and --profile what a machine should be like", path.display())]
    Machine {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: recorded::ParseError,
    },
    /// The kernel can't be asked.
    #[error("netlink: {0}")]
    Netlink(#[source] io::Error),
}

impl OpenError {
    /// Whether other arguments would have helped.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Netlink(_))
    }
}

/// This machine, or the one recorded in a file.
pub fn open(recorded: Option<&Path>) -> Result<Box<dyn System>, OpenError> {
    let Some(path) = recorded else {
        return Ok(Box::new(Real::default()));
    };
    let file = |source| OpenError::File { path: path.to_owned(), source };
    let machine = fs::read_to_string(path).map_err(file)?.parse::<Recorded>();
    Ok(Box::new(machine.map_err(|source| OpenError::Machine { path: path.to_owned(), source })?))
}

/// A machine: its sysfs and procfs, and requests over netlink and system calls.
///
/// If an interface's driver can't report or do something, the error is [`io::ErrorKind::Unsupported`].
pub trait System {
    /// The whole content of a file.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Writes a whole file in one call, as sysfs and procfs require.
    fn write(&self, path: &str, content: &str) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// The path without symbolic links and `..`.
    fn canonical(&self, path: &str) -> io::Result<String>;

    /// When a file, or a link itself, was last changed, in seconds since 1970.
    fn modified(&self, path: &str) -> io::Result<u64>;

    /// Channels of an interface.
    fn channels(&self, interface: &str) -> io::Result<Channels>;

    /// Sets the combined channels of an interface, which restarts its queues.
    fn set_channels(&self, interface: &str, combined: u32) -> io::Result<()>;

    /// Rings of an interface.
    fn rings(&self, interface: &str) -> io::Result<Rings>;

    /// Sets the given rings of an interface, which restarts its queues.
    fn set_rings(&self, interface: &str, rings: &Rings) -> io::Result<()>;

    /// How long an interface collects packets before it interrupts.
    fn coalescing(&self, interface: &str) -> io::Result<Coalescing>;

    /// The offloads that an interface supports, by the kernel's names, and whether each is on.
    fn offloads(&self, interface: &str) -> io::Result<BTreeMap<String, bool>>;

    /// An interface's own driver counters, as `ethtool -S` names them.
    fn statistics(&self, interface: &str) -> io::Result<BTreeMap<String, u64>>;

    /// The queue in each entry of an interface's RSS table.
    fn indirection(&self, interface: &str) -> io::Result<Vec<u32>>;

    /// Sets an interface's RSS table, which must have as many entries as the current one; an empty one restores the
    /// default, which is even. While a table is set, the kernel refuses fewer channels than it names
    /// (`net/ethtool/channels.c`).
    fn set_indirection(&self, interface: &str, table: &[u32]) -> io::Result<()>;

    /// How many queues of an interface its RSS table may name; a card may have more queues.
    fn rss_rings(&self, interface: &str) -> io::Result<u32>;

    /// The queueing disciplines at the leaves of an interface: one, or one per queue.
    fn qdiscs(&self, interface: &str) -> io::Result<Vec<String>>;

    /// Listening TCP sockets.
    fn listeners(&self) -> io::Result<Vec<TcpListener>>;

    /// How much is free on the file system that a path is on.
    fn free(&self, path: &str) -> io::Result<Free>;

    /// A device-mapper device whose blocks dm-verity checks on reading. Only root may ask.
    fn verity(&self, name: &str) -> io::Result<Verity>;

    /// The clock.
    fn clock(&self) -> io::Result<Clock>;

    /// The time, in seconds since 1970.
    fn now(&self) -> i64;

    /// The status of the response to a URL.
    fn get(&self, url: &str) -> io::Result<u16>;

    /// Waits for the kernel's notifications about changed interfaces, at most for `patience`, and returns their names.
    /// The first call starts listening.
    fn changes(&self, patience: Duration) -> io::Result<BTreeSet<String>>;

    /// Waits before another attempt.
    fn pause(&self, time: Duration);
}

/// Counts of an interface's channels (`ETHTOOL_MSG_CHANNELS_GET`, `Documentation/networking/ethtool-netlink.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Channels {
    /// Receive only.
    pub rx: u32,
    /// Transmit only.
    pub tx: u32,
    /// Both.
    pub combined: u32,
    /// The maximum of `rx`.
    pub max_rx: u32,
    /// The maximum of `tx`.
    pub max_tx: u32,
    /// The maximum of `combined`.
    pub max_combined: u32,
}

/// Rings of a network card (`ETHTOOL_MSG_RINGS_GET`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rings {
    /// Descriptors of a receive ring.
    pub rx: Option<u32>,
    /// Descriptors of a send ring.
    pub tx: Option<u32>,
}

/// How long a network card collects packets before it interrupts, with `ethtool -C`'s names
/// (`ETHTOOL_MSG_COALESCE_GET`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Coalescing {
    /// Whether the driver adapts the values for received packets by itself.
    pub adaptive_rx: Option<bool>,
    /// Whether the driver adapts the values for sent packets by itself.
    pub adaptive_tx: Option<bool>,
    /// How long after the first received packet it interrupts, in microseconds. For ixgbe, 1 means adaptive.
    pub rx_usecs: Option<u32>,
    /// How long after the first sent packet it interrupts, in microseconds.
    pub tx_usecs: Option<u32>,
    /// After how many received packets it interrupts.
    pub rx_frames: Option<u32>,
    /// After how many sent packets it interrupts.
    pub tx_frames: Option<u32>,
}

/// A listening TCP socket (`NETLINK_SOCK_DIAG`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TcpListener {
    /// Its address.
    pub address: SocketAddr,
    /// How many connections may wait to be accepted: the service's own limit, capped by `net.core.somaxconn`.
    pub backlog: u32,
    /// How many are waiting.
    pub waiting: u32,
}

/// A device that dm-verity checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verity {
    /// The root hash of the device, in hexadecimal. Reads are checked against it.
    pub root: String,
    /// Whether dm-verity has found a block that doesn't match.
    pub corrupt: bool,
}

/// What is free on a file system, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Free {
    /// The percentage of its bytes that are free, without those reserved for root.
    pub bytes: u8,
    /// The percentage of its inodes that are free; 100 if the file system has no fixed number of inodes.
    pub inodes: u8,
}

/// The kernel's view of its clock (adjtimex(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// Whether something synchronises it.
    pub synchronised: bool,
    /// How far it may be off at most.
    pub max_error: Duration,
}

/// The last part of a path.
pub fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
