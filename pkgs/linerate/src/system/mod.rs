//! The machine behind one small interface.
//!
//! Whatever is decided here is decided from what [`System`] tells, so that every rule is tested against
//! [`recorded`] machines, and the [`real`] one needs no test double.

pub mod clock;
pub mod ioctl;
pub mod mapper;
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

/// Why a machine cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What was recorded cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no recorded machine.
    #[error("{}: {source}; --machine takes a recorded machine, and --profile what a machine should be like", path.display())]
    Machine {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: recorded::ParseError,
    },
    /// The kernel cannot be asked.
    #[error("netlink: {0}")]
    Netlink(#[source] io::Error),
}

impl OpenError {
    /// Whether other arguments would have helped.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Netlink(_))
    }
}

/// This machine, or the one that was recorded in a file.
pub fn open(recorded: Option<&Path>) -> Result<Box<dyn System>, OpenError> {
    let Some(path) = recorded else {
        return Ok(Box::new(Real::default()));
    };
    let file = |source| OpenError::File { path: path.to_owned(), source };
    let machine = fs::read_to_string(path).map_err(file)?.parse::<Recorded>();
    Ok(Box::new(machine.map_err(|source| OpenError::Machine { path: path.to_owned(), source })?))
}

/// A machine: its sysfs and procfs, and what has to be asked by netlink or by a system call.
///
/// What an interface's driver cannot tell or do is [`io::ErrorKind::Unsupported`].
pub trait System {
    /// The whole content of a file.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Writes a whole file in one call, which is what sysfs and procfs ask for.
    fn write(&self, path: &str, content: &str) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// The path without symbolic links and `..`.
    fn canonical(&self, path: &str) -> io::Result<String>;

    /// When a file, or a link itself, was changed, in seconds since 1970.
    fn modified(&self, path: &str) -> io::Result<u64>;

    /// Channels of an interface.
    fn channels(&self, interface: &str) -> io::Result<Channels>;

    /// Sets the combined channels of an interface, which restarts its queues.
    fn set_channels(&self, interface: &str, combined: u32) -> io::Result<()>;

    /// Rings of an interface.
    fn rings(&self, interface: &str) -> io::Result<Rings>;

    /// Sets those rings of an interface that are given, which restarts its queues.
    fn set_rings(&self, interface: &str, rings: &Rings) -> io::Result<()>;

    /// How long an interface gathers packets before it interrupts.
    fn coalescing(&self, interface: &str) -> io::Result<Coalescing>;

    /// What an interface does for the kernel, by the kernel's names, and whether it does now.
    fn offloads(&self, interface: &str) -> io::Result<BTreeMap<String, bool>>;

    /// The driver's own counters of an interface, as `ethtool -S` names them.
    fn statistics(&self, interface: &str) -> io::Result<BTreeMap<String, u64>>;

    /// The queue that each entry of an interface's RSS table names.
    fn indirection(&self, interface: &str) -> io::Result<Vec<u32>>;

    /// Sets the RSS table of an interface, of as many entries as it has; of none: the default, which is even. With
    /// a table that was set, a kernel refuses fewer channels than it names (`net/ethtool/channels.c`).
    fn set_indirection(&self, interface: &str, table: &[u32]) -> io::Result<()>;

    /// The queueing disciplines at the leaves of an interface: one, or one for each queue.
    fn qdiscs(&self, interface: &str) -> io::Result<Vec<String>>;

    /// TCP sockets that listen.
    fn listeners(&self) -> io::Result<Vec<TcpListener>>;

    /// How much of the file system is free that a path is on.
    fn free(&self, path: &str) -> io::Result<Free>;

    /// A device of device-mapper's whose blocks are checked as they are read. Only root is told.
    fn verity(&self, name: &str) -> io::Result<Verity>;

    /// The clock.
    fn clock(&self) -> io::Result<Clock>;

    /// The time, in seconds since 1970.
    fn now(&self) -> i64;

    /// The status that a URL is answered with.
    fn get(&self, url: &str) -> io::Result<u16>;

    /// Waits until the kernel tells of changes to interfaces, at most so long; their names. The first call begins to
    /// listen.
    fn changes(&self, patience: Duration) -> io::Result<BTreeSet<String>>;

    /// Lets time pass before another attempt.
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
    /// The most of `rx`.
    pub max_rx: u32,
    /// The most of `tx`.
    pub max_tx: u32,
    /// The most of `combined`.
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

/// How long a network card gathers packets before it interrupts, as `ethtool -C` names it
/// (`ETHTOOL_MSG_COALESCE_GET`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Coalescing {
    /// Whether the driver finds out by itself, for packets that come.
    pub adaptive_rx: Option<bool>,
    /// Whether it does for packets that went.
    pub adaptive_tx: Option<bool>,
    /// How long after a packet came, in microseconds. To ixgbe 1 means adaptive.
    pub rx_usecs: Option<u32>,
    /// How long after a packet went, in microseconds.
    pub tx_usecs: Option<u32>,
    /// After how many packets that came.
    pub rx_frames: Option<u32>,
    /// After how many packets that went.
    pub tx_frames: Option<u32>,
}

/// A TCP socket that listens (`NETLINK_SOCK_DIAG`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TcpListener {
    /// Where.
    pub address: SocketAddr,
    /// Connections that may wait to be accepted: what the service asked for, capped by `net.core.somaxconn`.
    pub backlog: u32,
    /// Connections that wait.
    pub waiting: u32,
}

/// A device that dm-verity checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verity {
    /// The hash of all that is on it, in hexadecimal: what is read is checked by it.
    pub root: String,
    /// Whether a block was another one when it was read.
    pub corrupt: bool,
}

/// What is free of a file system, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Free {
    /// Of its bytes, those kept for root left out.
    pub bytes: u8,
    /// Of its inodes; 100 where they are not counted.
    pub inodes: u8,
}

/// What the kernel thinks of its clock (adjtimex(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// Whether something keeps it in time.
    pub synchronised: bool,
    /// How far it may be off at most.
    pub max_error: Duration,
}

/// The last part of a path.
pub fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
