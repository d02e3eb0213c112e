//! Notes what a rule wasn't allowed to read. Without root, the doctor still works, but it may find less.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use crate::system::{Channels, Clock, Coalescing, Free, Rings, System, TcpListener, Verity};

/// A machine that remembers the first thing that was refused.
pub struct Noticing<'a> {
    system: &'a dyn System,
    denied: RefCell<Option<String>>,
}

impl<'a> Noticing<'a> {
    /// Wraps a machine; nothing has been refused yet.
    pub fn new(system: &'a dyn System) -> Self {
        Self { system, denied: RefCell::new(None) }
    }

    /// What was refused first.
    pub fn denied(self) -> Option<String> {
        self.denied.into_inner()
    }

    fn noticed<T>(&self, what: &str, of: &str, asked: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &asked
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            let why = || if what.is_empty() { of.to_owned() } else { format!("{what} of {of}") };
            self.denied.borrow_mut().get_or_insert_with(why);
        }
        asked
    }
}

impl System for Noticing<'_> {
    fn read(&self, path: &str) -> io::Result<String> {
        self.noticed("", path, self.system.read(path))
    }

    fn write(&self, path: &str, content: &str) -> io::Result<()> {
        self.system.write(path, content)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.noticed("", path, self.system.list(path))
    }

    fn canonical(&self, path: &str) -> io::Result<String> {
        self.noticed("", path, self.system.canonical(path))
    }

    fn modified(&self, path: &str) -> io::Result<u64> {
        self.noticed("", path, self.system.modified(path))
    }

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        self.noticed("channels", interface, self.system.channels(interface))
    }

    fn set_channels(&self, interface: &str, combined: u32) -> io::Result<()> {
        self.system.set_channels(interface, combined)
    }

    fn rings(&self, interface: &str) -> io::Result<Rings> {
        self.noticed("rings", interface, self.system.rings(interface))
    }

    fn set_rings(&self, interface: &str, rings: &Rings) -> io::Result<()> {
        self.system.set_rings(interface, rings)
    }

    fn coalescing(&self, interface: &str) -> io::Result<Coalescing> {
        self.noticed("coalescing", interface, self.system.coalescing(interface))
    }

    fn offloads(&self, interface: &str) -> io::Result<BTreeMap<String, bool>> {
        self.noticed("offloads", interface, self.system.offloads(interface))
    }

    fn statistics(&self, interface: &str) -> io::Result<BTreeMap<String, u64>> {
        self.noticed("counters", interface, self.system.statistics(interface))
    }

    fn indirection(&self, interface: &str) -> io::Result<Vec<u32>> {
        self.noticed("the RSS table", interface, self.system.indirection(interface))
    }

    fn set_indirection(&self, interface: &str, table: &[u32]) -> io::Result<()> {
        self.system.set_indirection(interface, table)
    }

    fn rss_rings(&self, interface: &str) -> io::Result<u32> {
        self.noticed("the queues for RSS", interface, self.system.rss_rings(interface))
    }

    fn qdiscs(&self, interface: &str) -> io::Result<Vec<String>> {
        self.noticed("queueing disciplines", interface, self.system.qdiscs(interface))
    }

    fn listeners(&self) -> io::Result<Vec<TcpListener>> {
        self.noticed("", "the sockets that listen", self.system.listeners())
    }

    fn free(&self, path: &str) -> io::Result<Free> {
        self.noticed("room", path, self.system.free(path))
    }

    fn verity(&self, name: &str) -> io::Result<Verity> {
        self.noticed("dm-verity", name, self.system.verity(name))
    }

    fn clock(&self) -> io::Result<Clock> {
        self.noticed("", "the clock", self.system.clock())
    }

    fn now(&self) -> i64 {
        self.system.now()
    }

    fn get(&self, url: &str) -> io::Result<u16> {
        self.noticed("", url, self.system.get(url))
    }

    fn changes(&self, patience: Duration) -> io::Result<BTreeSet<String>> {
        self.system.changes(patience)
    }

    fn pause(&self, time: Duration) {
        self.system.pause(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    #[test]
    fn what_is_refused_first_is_told_and_what_is_not_there_is_not() {
        let machine: Recorded = "/proc/version = 1\n".parse().expect("a machine");
        let noticing = Noticing::new(&machine);
        assert!(noticing.read("/proc/version").is_ok() && noticing.read("/absent").is_err());
        let ask = |what, of, kind: io::ErrorKind| noticing.noticed::<()>(what, of, Err(kind.into())).is_err();
        assert!(ask("", "/absent", io::ErrorKind::NotFound));
        assert!(ask("dm-verity", "store", io::ErrorKind::PermissionDenied));
        assert!(ask("", "/run/credentials", io::ErrorKind::PermissionDenied));
        assert_eq!(noticing.denied().as_deref(), Some("dm-verity of store"));
        assert_eq!(Noticing::new(&machine).denied(), None);
    }
}
