//! This machine.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::netlink::{Changes, Netlink};
use super::{Channels, Clock, Coalescing, Free, Rings, System, TcpListener, Verity, clock, ioctl, mapper};

/// The longest file, in bytes: enough for `/proc/interrupts` with a thousand CPUs.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// How long a service may take to answer a readiness request.
const READY: Duration = Duration::from_secs(5);

/// This machine. No socket is opened until the first request needs it.
#[derive(Debug, Default)]
pub struct Real {
    netlink: Netlink,
    changes: RefCell<Option<Changes>>,
}

impl System for Real {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
        Ok(text)
    }

    fn write(&self, path: &str, content: &str) -> io::Result<()> {
        // Write in one call, and don't create the file: a missing setting must not become a file.
        let written = OpenOptions::new().write(true).open(path)?.write(content.as_bytes())?;
        if written == content.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn canonical(&self, path: &str) -> io::Result<String> {
        Ok(fs::canonicalize(path)?.to_string_lossy().into_owned())
    }

    fn modified(&self, path: &str) -> io::Result<u64> {
        let modified = fs::symlink_metadata(path)?.modified()?;
        modified.duration_since(UNIX_EPOCH).map(|time| time.as_secs()).map_err(io::Error::other)
    }

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        self.netlink.channels(interface)
    }

    fn set_channels(&self, interface: &str, combined: u32) -> io::Result<()> {
        self.netlink.set_channels(interface, combined)
    }

    fn rings(&self, interface: &str) -> io::Result<Rings> {
        self.netlink.rings(interface)
    }

    fn set_rings(&self, interface: &str, rings: &Rings) -> io::Result<()> {
        self.netlink.set_rings(interface, rings)
    }

    fn coalescing(&self, interface: &str) -> io::Result<Coalescing> {
        self.netlink.coalescing(interface)
    }

    fn offloads(&self, interface: &str) -> io::Result<BTreeMap<String, bool>> {
        self.netlink.offloads(interface)
    }

    fn statistics(&self, interface: &str) -> io::Result<BTreeMap<String, u64>> {
        ioctl::statistics(interface)
    }

    fn indirection(&self, interface: &str) -> io::Result<Vec<u32>> {
        ioctl::indirection(interface)
    }

    fn set_indirection(&self, interface: &str, table: &[u32]) -> io::Result<()> {
        ioctl::set_indirection(interface, table)
    }

    fn rss_rings(&self, interface: &str) -> io::Result<u32> {
        ioctl::rss_rings(interface)
    }

    fn qdiscs(&self, interface: &str) -> io::Result<Vec<String>> {
        self.netlink.qdiscs(interface)
    }

    fn listeners(&self) -> io::Result<Vec<TcpListener>> {
        self.netlink.listeners()
    }

    fn free(&self, path: &str) -> io::Result<Free> {
        let told = rustix::fs::statvfs(path)?;
        let percent =
            |free: u64, all: u64| free.saturating_mul(100).checked_div(all).unwrap_or(100).min(100) as u8;
        // As in df(1), blocks reserved for root count neither as free nor as part of the total.
        let used = told.f_blocks - told.f_bfree;
        Ok(Free {
            bytes: percent(told.f_bavail, used + told.f_bavail),
            inodes: percent(told.f_favail, told.f_files),
        })
    }

    fn verity(&self, name: &str) -> io::Result<Verity> {
        mapper::verity(name)
    }

    fn clock(&self) -> io::Result<Clock> {
        clock::read()
    }

    fn now(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |time| time.as_secs().try_into().unwrap_or(i64::MAX))
    }

    fn get(&self, url: &str) -> io::Result<u16> {
        if !url.starts_with("http://") {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only http URLs are asked for"));
        }
        let agent = ureq::Agent::config_builder();
        // A proxy from the environment is for the web and not for this machine.
        let agent =
            agent.timeout_global(Some(READY)).http_status_as_error(false).max_redirects(0).proxy(None);
        let answer = ureq::Agent::new_with_config(agent.build()).get(url).call();
        answer.map(|answer| answer.status().as_u16()).map_err(ureq::Error::into_io)
    }

    fn changes(&self, patience: Duration) -> io::Result<BTreeSet<String>> {
        let mut changes = self.changes.borrow_mut();
        let listening = match changes.take() {
            Some(listening) => listening,
            None => Changes::listen()?,
        };
        changes.insert(listening).wait(patience)
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}
