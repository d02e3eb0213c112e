//! The machine behind one small interface.
//!
//! Whatever is decided here is decided from what [`System`] tells, so that every rule is tested against
//! [`recorded`] machines, and the [`real`] one needs no test double.

pub mod real;
pub mod recorded;

use std::io;
use std::time::Duration;

use serde::Serialize;

pub use real::Real;
pub use recorded::Recorded;

/// A machine: its sysfs and procfs, and what has to be asked by netlink.
pub trait System {
    /// The whole content of a file.
    fn read(&self, path: &str) -> io::Result<String>;

    /// Writes a whole file in one call, which is what sysfs and procfs ask for.
    fn write(&self, path: &str, content: &str) -> io::Result<()>;

    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// The path without symbolic links and `..`.
    fn canonical(&self, path: &str) -> io::Result<String>;

    /// Channels of an interface; [`io::ErrorKind::Unsupported`] where its driver has none to tell of.
    fn channels(&self, interface: &str) -> io::Result<Channels>;

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

/// The last part of a path.
pub fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
