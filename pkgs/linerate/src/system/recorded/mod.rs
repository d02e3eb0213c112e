//! A machine recorded in a text file. Changes are made only in memory.
//!
//! ```text
//! # A comment.
//! /sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:05.0/net/eth0
//! /sys/devices/pci0000:00/0000:00:05.0/numa_node = 0
//! /proc/interrupts:
//! |            CPU0       CPU1
//! |  24:          7          0  PCI-MSIX-0000:00:05.0   0-edge      eth0-Tx-Rx-0
//! refuse /proc/irq/24/smp_affinity_list EIO
//! channels eth0 combined=2 max_combined=4
//! rings eth0 rx=512 tx=512
//! coalescing eth0 rx_usecs=1 adaptive_rx=true
//! offloads eth0 rx-gro=true rx-lro=false
//! statistics eth0 rx_missed_errors=7
//! indirection eth0 0 1 0 1
//! rss_rings eth0 2
//! qdiscs eth0 fq fq
//! listener 0.0.0.0:80 backlog=128 waiting=0
//! free / bytes=50 inodes=90
//! verity usr root=0123 corrupt=false
//! clock synchronised=true max_error_us=1200
//! now 1767225600
//! get http://127.0.0.1:8081/readyz 200
//! later
//! statistics eth0 rx_missed_errors=9
//! ```
//!
//! `=` gives a file one line, and `:` the lines that follow with `|`. `->` is a symbolic link. `refuse` is the errno of
//! writes to a file. The other words are answers of netlink or system calls. Directories exist where files do. A
//! `[a-b]` in a path stands for every number from `a` to `b`. Lines after `later` replace earlier ones once time has
//! passed.
//!
//! Writes have the same effects as on a kernel: masks and lists read back in the kernel's format, and an interrupt
//! moves. Other channels restart the queues: queues that disappear take their files and interrupts along, the others
//! have the driver's initial settings, and rings have their initial length.

mod parse;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::{Channels, Clock, Coalescing, Free, Rings, System, TcpListener, Verity, name_of};
use crate::cpus::Cpus;
pub use parse::ParseError;

/// How many symbolic links a path may have before it counts as a loop, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// A machine in memory.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    state: RefCell<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    channels: BTreeMap<String, Channels>,
    rings: BTreeMap<String, Rings>,
    coalescing: BTreeMap<String, Coalescing>,
    offloads: BTreeMap<String, BTreeMap<String, bool>>,
    statistics: BTreeMap<String, BTreeMap<String, u64>>,
    indirection: BTreeMap<String, Vec<u32>>,
    rss_rings: BTreeMap<String, u32>,
    /// Interfaces with an RSS table that was set and isn't the default.
    set_tables: BTreeSet<String>,
    qdiscs: BTreeMap<String, Vec<String>>,
    listeners: Vec<TcpListener>,
    free: BTreeMap<String, Free>,
    verity: BTreeMap<String, Verity>,
    clock: Option<Clock>,
    now: i64,
    answers: BTreeMap<String, u16>,
    changes: Vec<BTreeSet<String>>,
    later: Option<Box<State>>,
    fresh: Rc<Fresh>,
    refusals: BTreeMap<String, Refusal>,
    writes: Vec<(String, String)>,
}

/// The initial state, which a restart of an interface's queues restores.
#[derive(Clone, Debug, Default)]
struct Fresh {
    files: BTreeMap<String, String>,
    rings: BTreeMap<String, Rings>,
}

/// The errno of writes to a file, and how many writes it applies to.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    errno: Errno,
    times: usize,
}

impl Recorded {
    /// Creates a file, or replaces its content.
    pub fn set(&self, path: &str, content: &str) {
        self.state.borrow_mut().files.insert(path.to_owned(), content.to_owned());
    }

    /// Adds another machine's lines to this one. They replace lines for the same file or subject.
    pub fn amend(&self, other: Self) {
        self.state.borrow_mut().overlay(other.state.into_inner());
    }

    /// Removes a file.
    pub fn remove(&self, path: &str) {
        self.state.borrow_mut().files.remove(path);
    }

    /// Refuses this many writes to a file.
    pub fn refuse(&self, path: &str, errno: Errno, times: usize) {
        self.state.borrow_mut().refusals.insert(path.to_owned(), Refusal { errno, times });
    }

    /// Sets the interfaces that each following call of `changes` reports.
    pub fn tell(&self, changes: &[&[&str]]) {
        let names = |names: &&[&str]| names.iter().map(|&name| name.to_owned()).collect();
        self.state.borrow_mut().changes = changes.iter().rev().map(names).collect();
    }

    /// All writes so far: paths and contents, in order.
    pub fn writes(&self) -> Vec<(String, String)> {
        self.state.borrow().writes.clone()
    }

    /// Every file and its content.
    pub fn files(&self) -> BTreeMap<String, String> {
        self.state.borrow().files.clone()
    }
}

impl State {
    /// Resolves symbolic links and `..` as the kernel does.
    fn resolve(&self, path: &str) -> io::Result<String> {
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut done = String::new();
        let mut followed = 0;
        while let Some(part) = todo.pop() {
            match part.as_str() {
                "" | "." => {}
                ".." => done.truncate(done.rfind('/').unwrap_or(0)),
                part => {
                    let here = format!("{done}/{part}");
                    match self.links.get(&here) {
                        None => done = here,
                        Some(_) if followed == MAX_LINKS => return Err(Errno::LOOP.into()),
                        Some(target) => {
                            followed += 1;
                            if target.starts_with('/') {
                                done.clear();
                            }
                            todo.extend(target.split('/').rev().map(str::to_owned));
                        }
                    }
                }
            }
        }
        Ok(done)
    }

    /// Whether anything exists at or below a resolved path.
    fn exists(&self, path: &str) -> bool {
        self.files.contains_key(path) || !self.below(path).is_empty()
    }

    /// The names directly below a resolved path.
    fn below(&self, path: &str) -> BTreeSet<String> {
        let prefix = format!("{path}/");
        let paths = self.files.keys().chain(self.links.keys());
        let names = paths.filter_map(|path| path.strip_prefix(&prefix)?.split('/').next());
        names.map(str::to_owned).collect()
    }

    /// Restarts an interface's queues with another number of channels.
    fn restart(&mut self, interface: &str, combined: u32) {
        let fresh = Rc::clone(&self.fresh);
        let base = self.resolve(&format!("/sys/class/net/{interface}")).unwrap_or_default();
        let queues = format!("{base}/queues/");
        let number = |path: &str| {
            let queue = path.strip_prefix(&queues)?.split('/').next()?;
            queue.rsplit('-').next()?.parse::<u32>().ok()
        };
        // Restore the initial files of the queues that are still in use.
        self.files.retain(|path, _| number(path).is_none());
        for (path, content) in &fresh.files {
            let ours = path == "/proc/interrupts" || path.starts_with("/proc/irq/");
            if ours || number(path).is_some_and(|queue| queue < combined) {
                self.files.insert(path.clone(), content.clone());
            }
        }
        let beyond = |line: &str| {
            let action = line.split_whitespace().last().unwrap_or_default();
            let ours = action.starts_with(&format!("{interface}-"));
            ours && action.rsplit(['-', '.']).next().and_then(|queue| queue.parse::<u32>().ok())
                >= Some(combined)
        };
        if let Some(interrupts) = self.files.get_mut("/proc/interrupts") {
            let left = interrupts.lines().filter(|line| !beyond(line)).map(|line| format!("{line}\n"));
            *interrupts = left.collect();
        }
        if let Some(channels) = self.channels.get_mut(interface) {
            channels.combined = combined;
        }
        if let Some(rings) = fresh.rings.get(interface) {
            self.rings.insert(interface.to_owned(), rings.clone());
        }
        let named = self.named(interface, combined);
        if let Some(table) =
            self.indirection.get_mut(interface).filter(|_| !self.set_tables.contains(interface))
        {
            table.iter_mut().zip(0..).for_each(|(queue, entry)| *queue = entry % named);
        }
    }

    /// How many of an interface's queues its RSS table may name.
    fn named(&self, interface: &str, combined: u32) -> u32 {
        self.rss_rings.get(interface).map_or(combined, |&rings| rings.min(combined))
    }

    /// Adds the entries of the later state, replacing those that both have.
    fn overlay(&mut self, later: Self) {
        self.files.extend(later.files);
        self.links.extend(later.links);
        self.channels.extend(later.channels);
        self.rings.extend(later.rings);
        self.coalescing.extend(later.coalescing);
        self.offloads.extend(later.offloads);
        self.statistics.extend(later.statistics);
        self.indirection.extend(later.indirection);
        self.rss_rings.extend(later.rss_rings);
        self.qdiscs.extend(later.qdiscs);
        self.free.extend(later.free);
        self.verity.extend(later.verity);
        self.answers.extend(later.answers);
        self.refusals.extend(later.refusals);
        self.clock = later.clock.or(self.clock);
        self.now = self.now.max(later.now);
        self.later = later.later;
        if !later.listeners.is_empty() {
            self.listeners = later.listeners;
        }
    }

    /// Stores a written value in the kernel's format.
    fn store(&mut self, path: &str, content: &str) -> io::Result<()> {
        let invalid = |_| io::Error::from(Errno::INVAL);
        let stored = match name_of(path) {
            "smp_affinity_list" => {
                let cpus: Cpus = content.parse().map_err(invalid)?;
                let moved = path.replace("smp_affinity_list", "effective_affinity_list");
                if let Some(effective) = self.files.get_mut(&moved) {
                    let first = cpus.iter().next().ok_or(Errno::INVAL)?;
                    *effective = format!("{first}\n");
                }
                format!("{cpus}\n")
            }
            "rps_cpus" | "xps_cpus" => {
                let cpus = Cpus::from_mask(content).map_err(invalid)?;
                let before = &self.files[path];
                format!("{}\n", padded(&cpus.mask(), before.trim_end()))
            }
            _ => content.to_owned(),
        };
        self.files.insert(path.to_owned(), stored);
        Ok(())
    }
}

/// Pads a mask to the width of the previous one, which depends on the number of possible CPUs.
fn padded(mask: &str, like: &str) -> String {
    let digits: String = mask.chars().filter(|&digit| digit != ',').collect();
    let width = like.chars().filter(|&digit| digit != ',').count();
    let digits = format!("{digits:0>width$}");
    let first = digits.len() % 8;
    let mut text = digits[..first].to_owned();
    for start in (first..digits.len()).step_by(8) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&digits[start..start + 8]);
    }
    text
}

impl System for Recorded {
    fn read(&self, path: &str) -> io::Result<String> {
        let state = self.state.borrow();
        let path = state.resolve(path)?;
        state.files.get(&path).cloned().ok_or_else(|| Errno::NOENT.into())
    }

    fn write(&self, path: &str, content: &str) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let path = state.resolve(path)?;
        if !state.files.contains_key(&path) {
            return Err(Errno::NOENT.into());
        }
        if let Some(refusal) = state.refusals.get_mut(&path)
            && refusal.times > 0
        {
            refusal.times -= 1;
            return Err(refusal.errno.into());
        }
        state.store(&path, content)?;
        state.writes.push((path, content.to_owned()));
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let state = self.state.borrow();
        let names = state.below(&state.resolve(path)?);
        if names.is_empty() { Err(Errno::NOENT.into()) } else { Ok(names.into_iter().collect()) }
    }

    fn canonical(&self, path: &str) -> io::Result<String> {
        let state = self.state.borrow();
        let path = state.resolve(path)?;
        if state.exists(&path) { Ok(path) } else { Err(Errno::NOENT.into()) }
    }

    /// A recording contains no modification times.
    fn modified(&self, _: &str) -> io::Result<u64> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        told(self.state.borrow().channels.get(interface))
    }

    fn set_channels(&self, interface: &str, combined: u32) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let channels = state.channels.get(interface).copied().ok_or(Errno::OPNOTSUPP)?;
        let table = state.indirection.get(interface).filter(|_| state.set_tables.contains(interface));
        let beyond = table.is_some_and(|table| table.iter().any(|&queue| queue >= combined));
        if combined == 0 || combined > channels.max_combined || beyond {
            return Err(Errno::INVAL.into());
        }
        let key = format!("channels {interface}");
        if let Some(refusal) = state.refusals.get_mut(&key).filter(|refusal| refusal.times > 0) {
            refusal.times -= 1;
            return Err(refusal.errno.into());
        }
        state.restart(interface, combined);
        state.writes.push((key, combined.to_string()));
        Ok(())
    }

    fn rings(&self, interface: &str) -> io::Result<Rings> {
        told(self.state.borrow().rings.get(interface))
    }

    fn set_rings(&self, interface: &str, rings: &Rings) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let key = format!("rings {interface}");
        if let Some(refusal) = state.refusals.get_mut(&key).filter(|refusal| refusal.times > 0) {
            refusal.times -= 1;
            return Err(refusal.errno.into());
        }
        let now = state.rings.get_mut(interface).ok_or(Errno::OPNOTSUPP)?;
        *now = Rings { rx: rings.rx.or(now.rx), tx: rings.tx.or(now.tx) };
        let written = format!("{now:?}");
        state.writes.push((key, written));
        Ok(())
    }

    fn coalescing(&self, interface: &str) -> io::Result<Coalescing> {
        told(self.state.borrow().coalescing.get(interface))
    }

    fn offloads(&self, interface: &str) -> io::Result<BTreeMap<String, bool>> {
        told(self.state.borrow().offloads.get(interface))
    }

    fn statistics(&self, interface: &str) -> io::Result<BTreeMap<String, u64>> {
        told(self.state.borrow().statistics.get(interface))
    }

    fn indirection(&self, interface: &str) -> io::Result<Vec<u32>> {
        told(self.state.borrow().indirection.get(interface))
    }

    fn set_indirection(&self, interface: &str, table: &[u32]) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let key = format!("indirection {interface}");
        if let Some(refusal) = state.refusals.get_mut(&key).filter(|refusal| refusal.times > 0) {
            refusal.times -= 1;
            return Err(refusal.errno.into());
        }
        let combined = state.channels.get(interface).map_or(0, |channels| channels.combined);
        let queues = state.named(interface, combined);
        let now = state.indirection.get_mut(interface).ok_or(Errno::OPNOTSUPP)?;
        let written = (key, format!("{table:?}"));
        if table.is_empty() {
            now.iter_mut().zip(0..).for_each(|(queue, entry)| *queue = entry % queues);
            state.set_tables.remove(interface);
            state.writes.push(written);
            return Ok(());
        }
        if now.len() != table.len() || table.iter().any(|&queue| queue >= queues) {
            return Err(Errno::INVAL.into());
        }
        *now = table.to_vec();
        state.set_tables.insert(interface.to_owned());
        state.writes.push(written);
        Ok(())
    }

    fn rss_rings(&self, interface: &str) -> io::Result<u32> {
        told(self.state.borrow().rss_rings.get(interface))
    }

    fn qdiscs(&self, interface: &str) -> io::Result<Vec<String>> {
        told(self.state.borrow().qdiscs.get(interface))
    }

    fn listeners(&self) -> io::Result<Vec<TcpListener>> {
        Ok(self.state.borrow().listeners.clone())
    }

    fn free(&self, path: &str) -> io::Result<Free> {
        self.state.borrow().free.get(path).copied().ok_or_else(|| Errno::NOENT.into())
    }

    fn verity(&self, name: &str) -> io::Result<Verity> {
        self.state.borrow().verity.get(name).cloned().ok_or_else(|| Errno::NOENT.into())
    }

    fn clock(&self) -> io::Result<Clock> {
        told(self.state.borrow().clock.as_ref())
    }

    fn now(&self) -> i64 {
        self.state.borrow().now
    }

    fn get(&self, url: &str) -> io::Result<u16> {
        self.state.borrow().answers.get(url).copied().ok_or_else(|| Errno::CONNREFUSED.into())
    }

    fn changes(&self, _: Duration) -> io::Result<BTreeSet<String>> {
        self.state.borrow_mut().changes.pop().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Time passes, so the later state becomes the current one. Nothing else changes without writes, so there is no
    /// need to wait.
    fn pause(&self, _: Duration) {
        let mut state = self.state.borrow_mut();
        if let Some(later) = state.later.take() {
            state.overlay(*later);
        }
    }
}

/// The recorded answer. Without one, the driver doesn't support the request.
fn told<T: Clone>(told: Option<&T>) -> io::Result<T> {
    told.cloned().ok_or_else(|| Errno::OPNOTSUPP.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# synthetic
/sys/class/net/eth0 -> ../../devices/pci/0000:00:05.0/net/eth0
/sys/devices/pci/0000:00:05.0/net/eth0/device -> ../../../0000:00:05.0
/sys/devices/pci/0000:00:05.0/numa_node = -1
/sys/devices/pci/0000:00:05.0/net/eth0/queues/rx-[0-1]/rps_cpus = 0,00000000
/proc/irq/24/smp_affinity_list = 0-39
/proc/irq/24/effective_affinity_list = 3
/proc/two:
|a
|b
channels eth0 combined=2 max_combined=4
refuse /proc/two EIO
";

    fn machine() -> Recorded {
        TEXT.parse().expect("a machine")
    }

    #[test]
    fn links_and_parents_are_walked_as_the_kernel_walks_them() {
        let machine = machine();
        assert_eq!(machine.read("/sys/class/net/eth0/device/numa_node").unwrap(), "-1\n");
        assert_eq!(machine.canonical("/sys/class/net/eth0/device").unwrap(), "/sys/devices/pci/0000:00:05.0");
        assert_eq!(machine.list("/sys/class/net/eth0/queues").unwrap(), ["rx-0", "rx-1"]);
        assert_eq!(machine.list("/sys/class/net").unwrap(), ["eth0"]);
        assert_eq!(machine.read("/proc/two").unwrap(), "a\nb\n");
        assert_eq!(machine.read("/proc/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(machine.channels("eth0").unwrap().max_combined, 4);
    }

    #[test]
    fn what_is_written_reads_back_in_the_kernels_spelling() {
        let machine = machine();
        machine.write("/proc/irq/24/smp_affinity_list", "4,5").unwrap();
        assert_eq!(machine.read("/proc/irq/24/smp_affinity_list").unwrap(), "4-5\n");
        assert_eq!(machine.read("/proc/irq/24/effective_affinity_list").unwrap(), "4\n");
        machine.write("/sys/class/net/eth0/queues/rx-1/rps_cpus", "30").unwrap();
        assert_eq!(machine.read("/sys/class/net/eth0/queues/rx-1/rps_cpus").unwrap(), "0,00000030\n");
        assert_eq!(machine.writes().len(), 2);
    }

    #[test]
    fn refusals_have_their_errno_and_number() {
        let machine = machine();
        assert_eq!(
            machine.write("/proc/two", "").unwrap_err().raw_os_error(),
            Some(Errno::IO.raw_os_error())
        );
        machine.refuse("/proc/two", Errno::BUSY, 1);
        assert!(machine.write("/proc/two", "x").is_err());
        assert!(machine.write("/proc/two", "x").is_ok());
        machine.amend("refuse /proc/two EBUSY\n".parse().expect("a machine"));
        assert_eq!(
            machine.write("/proc/two", "").unwrap_err().raw_os_error(),
            Some(Errno::BUSY.raw_os_error())
        );
    }

    #[test]
    fn a_text_that_is_no_machine_is_refused_with_its_line() {
        for (text, line) in [("|x", 1), ("/a = 1\nhello", 2), ("channels e x=1", 1), ("refuse /a EX", 1)] {
            assert_eq!(text.parse::<Recorded>().unwrap_err().line, line, "{text}");
        }
    }
}
