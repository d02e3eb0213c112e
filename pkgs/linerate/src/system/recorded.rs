//! A machine written down in a text file, changed in memory only.
//!
//! ```text
//! # A comment.
//! /sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:05.0/net/eth0
//! /sys/devices/pci0000:00/0000:00:05.0/numa_node = 0
//! /proc/interrupts:
//! |            CPU0       CPU1
//! |  24:          7          0  PCI-MSIX-0000:00:05.0   0-edge      eth0-Tx-Rx-0
//! channels eth0 combined=2 max_combined=4
//! refuse /proc/irq/24/smp_affinity_list EIO
//! ```
//!
//! `=` gives a file one line, `:` as many as follow behind `|`, `->` is a symbolic link, `channels` what netlink
//! would tell and `refuse` the errno of writing to a file. Directories are where files are. A `[a-b]` in a path
//! stands for every number from `a` to `b`.
//!
//! Writes do what the kernel does: masks and lists read back the way it spells them, and an interrupt moves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;

use super::{Channels, System, name_of};
use crate::cpus::Cpus;

/// Symbolic links on a path before it counts as a loop, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// The errnos a machine can be told to refuse with, by name.
const ERRNOS: [(&str, Errno); 8] = [
    ("EACCES", Errno::ACCESS),
    ("EAGAIN", Errno::AGAIN),
    ("EBUSY", Errno::BUSY),
    ("EINVAL", Errno::INVAL),
    ("EIO", Errno::IO),
    ("ENOMEM", Errno::NOMEM),
    ("ENOSPC", Errno::NOSPC),
    ("EPERM", Errno::PERM),
];

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
    refusals: BTreeMap<String, Refusal>,
    writes: Vec<(String, String)>,
}

/// Why and how often a file refuses what is written to it.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    errno: Errno,
    times: usize,
}

/// Why a text is no machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl Recorded {
    /// Puts a file there, or other content into it.
    pub fn set(&self, path: &str, content: &str) {
        self.state.borrow_mut().files.insert(path.to_owned(), content.to_owned());
    }

    /// Takes a file away.
    pub fn remove(&self, path: &str) {
        self.state.borrow_mut().files.remove(path);
    }

    /// Refuses what is written to a file, so many times.
    pub fn refuse(&self, path: &str, errno: Errno, times: usize) {
        self.state.borrow_mut().refusals.insert(path.to_owned(), Refusal { errno, times });
    }

    /// All that was written so far: paths and contents, in order.
    pub fn writes(&self) -> Vec<(String, String)> {
        self.state.borrow().writes.clone()
    }

    /// Every file and what is in it.
    pub fn files(&self) -> BTreeMap<String, String> {
        self.state.borrow().files.clone()
    }
}

impl State {
    /// Follows symbolic links and `..`, as the kernel walks a path.
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

    /// Whether there is anything at or below a resolved path.
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

    /// Stores what is written the way the kernel spells it.
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

/// A mask as wide as the one before it, whose width is the number of possible CPUs.
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

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        let state = self.state.borrow();
        state.channels.get(interface).copied().ok_or_else(|| Errno::OPNOTSUPP.into())
    }

    /// Nothing changes while nobody writes, so there is nothing to wait for.
    fn pause(&self, _: Duration) {}
}

impl FromStr for Recorded {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut state = State::default();
        let mut open: Vec<String> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |what| ParseError { line: index + 1, what };
            if let Some(content) = line.strip_prefix('|') {
                if open.is_empty() {
                    return Err(wrong("a line of a file that has not begun"));
                }
                for path in &open {
                    let file = state.files.entry(path.clone()).or_default();
                    file.push_str(content);
                    file.push('\n');
                }
                continue;
            }
            open.clear();
            if line.trim().is_empty() || line.starts_with('#') {
            } else if let Some((path, target)) = line.split_once(" -> ") {
                for path in expanded(path).map_err(wrong)? {
                    state.links.insert(path, target.to_owned());
                }
            } else if let Some((path, value)) = line.split_once(" = ").filter(|_| line.starts_with('/')) {
                for path in expanded(path).map_err(wrong)? {
                    state.files.insert(path, format!("{value}\n"));
                }
            } else if let Some(path) = line.strip_suffix(" =").filter(|_| line.starts_with('/')) {
                for path in expanded(path).map_err(wrong)? {
                    state.files.insert(path, "\n".to_owned());
                }
            } else if let Some(path) = line.strip_suffix(':').filter(|_| line.starts_with('/')) {
                open = expanded(path).map_err(wrong)?;
                for path in &open {
                    state.files.insert(path.clone(), String::new());
                }
            } else if let Some(told) = line.strip_prefix("channels ") {
                let (interface, channels) = channels(told).map_err(wrong)?;
                state.channels.insert(interface, channels);
            } else if let Some(told) = line.strip_prefix("refuse ") {
                let (path, name) = told.split_once(' ').ok_or(wrong("refuse PATH ERRNO is needed"))?;
                let errno = ERRNOS.iter().find(|(known, _)| *known == name);
                let (_, errno) = errno.ok_or(wrong("an errno that is not known"))?;
                for path in expanded(path).map_err(wrong)? {
                    state.refusals.insert(path, Refusal { errno: *errno, times: usize::MAX });
                }
            } else {
                return Err(wrong("neither a file, a link, channels, a refusal nor a comment"));
            }
        }
        Ok(Self { state: RefCell::new(state) })
    }
}

/// `eth0 combined=8 max_combined=8`
fn channels(told: &str) -> Result<(String, Channels), &'static str> {
    let mut words = told.split_whitespace();
    let interface = words.next().ok_or("channels of which interface")?;
    let mut channels = Channels::default();
    for word in words {
        let (name, count) = word.split_once('=').ok_or("NAME=COUNT is needed")?;
        let count = count.parse().map_err(|_| "NAME=COUNT is needed")?;
        *match name {
            "rx" => &mut channels.rx,
            "tx" => &mut channels.tx,
            "combined" => &mut channels.combined,
            "max_rx" => &mut channels.max_rx,
            "max_tx" => &mut channels.max_tx,
            "max_combined" => &mut channels.max_combined,
            _ => return Err("channels that are not known"),
        } = count;
    }
    Ok((interface.to_owned(), channels))
}

/// Every path that a `[a-b]` stands for.
fn expanded(path: &str) -> Result<Vec<String>, &'static str> {
    let Some((before, rest)) = path.split_once('[') else { return Ok(vec![path.to_owned()]) };
    let (range, after) = rest.split_once(']').ok_or("a [ without ]")?;
    let numbers: Cpus = range.parse().map_err(|_| "[a-b] is needed")?;
    Ok(numbers.iter().map(|number| format!("{before}{number}{after}")).collect())
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
    }

    #[test]
    fn a_text_that_is_no_machine_is_refused_with_its_line() {
        for (text, line) in [("|x", 1), ("/a = 1\nhello", 2), ("channels e x=1", 1), ("refuse /a EX", 1)] {
            assert_eq!(text.parse::<Recorded>().unwrap_err().line, line, "{text}");
        }
    }
}
