//! This machine.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

use ethtool::{EthtoolAttr, EthtoolChannelAttr, EthtoolError, EthtoolHandle};
use futures_util::TryStreamExt;
use tokio::runtime::Runtime;

use super::{Channels, System};

/// The longest file that is read, in bytes: `/proc/interrupts` of a thousand CPUs fits.
const MAX_FILE: u64 = 64 * 1024 * 1024;

/// How long the kernel may take to answer over netlink. Setting channels restarts a port.
const NETLINK: Duration = Duration::from_secs(30);

/// This machine.
#[derive(Debug)]
pub struct Real {
    runtime: Runtime,
}

impl Real {
    /// Makes it reachable; asks nothing yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()? })
    }

    /// Asks over ethtool's netlink and waits for the answer.
    fn ask<T, F>(&self, question: impl FnOnce(EthtoolHandle) -> F) -> io::Result<T>
    where
        F: Future<Output = Result<T, EthtoolError>>,
    {
        self.runtime.block_on(async {
            let (connection, handle, _) = ethtool::new_connection()?;
            let connection = tokio::spawn(connection);
            let answer = tokio::time::timeout(NETLINK, question(handle)).await;
            connection.abort();
            answer?.map_err(refused)
        })
    }
}

/// What netlink refuses, with its errno where there is one.
fn refused(error: EthtoolError) -> io::Error {
    match error {
        EthtoolError::NetlinkError(message) => message.to_io(),
        error => io::Error::other(error),
    }
}

impl System for Real {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
        Ok(text)
    }

    fn write(&self, path: &str, content: &str) -> io::Result<()> {
        // One write, and no creation: a setting that is not there must not become a file.
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

    fn channels(&self, interface: &str) -> io::Result<Channels> {
        let told = self.ask(|mut handle| async move {
            handle.channel().get(Some(interface)).execute().await?.try_collect::<Vec<_>>().await
        })?;
        let mut channels = Channels::default();
        for attribute in told.into_iter().flat_map(|message| message.payload.nlas) {
            let EthtoolAttr::Channel(attribute) = attribute else { continue };
            match attribute {
                EthtoolChannelAttr::RxCount(count) => channels.rx = count,
                EthtoolChannelAttr::TxCount(count) => channels.tx = count,
                EthtoolChannelAttr::CombinedCount(count) => channels.combined = count,
                EthtoolChannelAttr::RxMax(count) => channels.max_rx = count,
                EthtoolChannelAttr::TxMax(count) => channels.max_tx = count,
                EthtoolChannelAttr::CombinedMax(count) => channels.max_combined = count,
                _ => {}
            }
        }
        Ok(channels)
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}
