//! What this machine tells over netlink: ethtool's families, rtnetlink and socket diagnosis.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use nlink::netlink::events::NetworkEvent;
use nlink::netlink::{Connection, Ethtool, Route, RtnetlinkGroup, SockDiag};
use nlink::sockdiag::{SocketFilter, SocketInfo};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::{Channels, Coalescing, Rings, TcpListener};

/// How long the kernel may take to answer. Setting channels restarts a port.
const PATIENCE: Duration = Duration::from_secs(30);

/// The disciplines that only pass packets on to one of each queue (`net/sched/sch_mq.c`, `sch_mqprio.c`).
const BRANCHES: [&str; 2] = ["mq", "mqprio"];

/// Disciplines on the way in; packets on the way out do not meet them.
const INWARD: [&str; 2] = ["ingress", "clsact"];

/// Asks over netlink, one question at a time.
#[derive(Debug)]
pub struct Netlink {
    runtime: Runtime,
}

/// What the kernel refuses, with its errno where there is one.
fn refused(error: nlink::Error) -> io::Error {
    match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(error),
    }
}

impl Netlink {
    /// Asks nothing yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()? })
    }

    /// Waits for an answer.
    fn ask<T>(&self, question: impl Future<Output = nlink::Result<T>>) -> io::Result<T> {
        let answer = self.runtime.block_on(async { timeout(PATIENCE, question).await });
        answer?.map_err(refused)
    }

    /// Asks ethtool's family.
    fn ethtool<T>(
        &self,
        question: impl AsyncFnOnce(Connection<Ethtool>) -> nlink::Result<T>,
    ) -> io::Result<T> {
        self.ask(async { question(Connection::<Ethtool>::new_async().await?).await })
    }

    /// Channels of an interface.
    pub fn channels(&self, interface: &str) -> io::Result<Channels> {
        let told = self.ethtool(async |ethtool| ethtool.get_channels_by_name(interface).await)?;
        Ok(Channels {
            rx: told.rx_count.unwrap_or(0),
            tx: told.tx_count.unwrap_or(0),
            combined: told.combined_count.unwrap_or(0),
            max_rx: told.rx_max.unwrap_or(0),
            max_tx: told.tx_max.unwrap_or(0),
            max_combined: told.combined_max.unwrap_or(0),
        })
    }

    /// Sets the combined channels of an interface.
    pub fn set_channels(&self, interface: &str, combined: u32) -> io::Result<()> {
        self.ethtool(async |ethtool| {
            ethtool.set_channels_by_name(interface, |channels| channels.combined(combined)).await
        })
    }

    /// Rings of an interface.
    pub fn rings(&self, interface: &str) -> io::Result<Rings> {
        let told = self.ethtool(async |ethtool| ethtool.get_rings_by_name(interface).await)?;
        Ok(Rings { rx: told.rx, tx: told.tx })
    }

    /// Sets rings of an interface.
    pub fn set_rings(&self, interface: &str, rings: &Rings) -> io::Result<()> {
        self.ethtool(async |ethtool| {
            let set = ethtool.set_rings_by_name(interface, |builder| match (rings.rx, rings.tx) {
                (Some(rx), Some(tx)) => builder.rx(rx).tx(tx),
                (Some(rx), None) => builder.rx(rx),
                (None, Some(tx)) => builder.tx(tx),
                (None, None) => builder,
            });
            set.await
        })
    }

    /// Coalescing of an interface.
    pub fn coalescing(&self, interface: &str) -> io::Result<Coalescing> {
        let told = self.ethtool(async |ethtool| ethtool.get_coalesce_by_name(interface).await)?;
        Ok(Coalescing {
            adaptive_rx: told.use_adaptive_rx,
            adaptive_tx: told.use_adaptive_tx,
            rx_usecs: told.rx_usecs,
            tx_usecs: told.tx_usecs,
            rx_frames: told.rx_max_frames,
            tx_frames: told.tx_max_frames,
        })
    }

    /// Offloads of an interface.
    pub fn offloads(&self, interface: &str) -> io::Result<BTreeMap<String, bool>> {
        let (known, active) = self.ethtool(async |ethtool| {
            let features = ethtool.get_features_by_name(interface).await?;
            // The kernel names those that could be on in one set, and those that are in another.
            let mut known: Vec<String> = features.hw.iter().map(|(name, _)| name.to_owned()).collect();
            known.extend(features.nochange.iter().map(|(name, _)| name.to_owned()));
            known.extend(features.wanted.iter().map(|(name, _)| name.to_owned()));
            let active: BTreeSet<String> =
                features.active_features().into_iter().map(str::to_owned).collect();
            Ok((known, active))
        })?;
        let all = known.into_iter().chain(active.iter().cloned());
        Ok(all.map(|name| (name.clone(), active.contains(&name))).collect())
    }

    /// The queueing disciplines at the leaves of an interface.
    pub fn qdiscs(&self, interface: &str) -> io::Result<Vec<String>> {
        let told = self.ask(async { Connection::<Route>::new()?.get_qdiscs_by_name(interface).await })?;
        let kinds = told.iter().filter_map(|qdisc| qdisc.kind());
        Ok(kinds
            .filter(|kind| !BRANCHES.contains(kind) && !INWARD.contains(kind))
            .map(str::to_owned)
            .collect())
    }

    /// TCP sockets that listen.
    pub fn listeners(&self) -> io::Result<Vec<TcpListener>> {
        let told = self.ask(async {
            Connection::<SockDiag>::new()?.query(&SocketFilter::tcp().listening().build()).await
        })?;
        let listener = |socket: &SocketInfo| {
            let socket = socket.as_inet()?;
            // Of a socket that listens the queues are connections (`net/ipv4/tcp_diag.c`).
            Some(TcpListener { address: socket.local, backlog: socket.send_q, waiting: socket.recv_q })
        };
        Ok(told.iter().filter_map(listener).collect())
    }
}

/// Notifications of interfaces that changed.
#[derive(Debug)]
pub struct Changes {
    runtime: Runtime,
    names: tokio::sync::mpsc::Receiver<io::Result<String>>,
}

/// Changes that may wait to be looked at. Beyond that the kernel's socket holds them, and where that overflows the
/// kernel says so, which counts as a change.
const WAITING: usize = 256;

/// The name of no interface: that something changed and nobody knows what.
pub const UNKNOWN: &str = "";

impl Changes {
    /// Begins to listen.
    pub fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (send, names) = tokio::sync::mpsc::channel(WAITING);
        runtime
            .block_on(async {
                let links = Connection::<Route>::new()?;
                links.subscribe(&[RtnetlinkGroup::Link])?;
                let mut links = links.into_events().await;
                let to = send.clone();
                tokio::spawn(async move {
                    while let Some(event) = links.next().await {
                        let name = match event {
                            Ok(NetworkEvent::NewLink(link) | NetworkEvent::DelLink(link)) => {
                                Ok(link.name().unwrap_or(UNKNOWN).to_owned())
                            }
                            Ok(_) => continue,
                            Err(error) => lost(error),
                        };
                        if to.send(name).await.is_err() {
                            return;
                        }
                    }
                    let _ = to.send(Err(io::ErrorKind::BrokenPipe.into())).await;
                });
                let channels = Connection::<Ethtool>::new_async().await?;
                channels.subscribe()?;
                let mut channels = channels.into_events().await;
                tokio::spawn(async move {
                    while let Some(event) = channels.next().await {
                        // That something changed is all that counts, and to look at it is cheap. Of what kind it is
                        // cannot be told: nlink 0.33 numbers notifications as questions, the kernel as answers.
                        let name = event.map(|_| UNKNOWN.to_owned()).or_else(lost);
                        if send.send(name).await.is_err() {
                            return;
                        }
                    }
                    let _ = send.send(Err(io::ErrorKind::BrokenPipe.into())).await;
                });
                Ok::<(), nlink::Error>(())
            })
            .map_err(refused)?;
        Ok(Self { runtime, names })
    }

    /// Waits for changes.
    pub fn wait(&mut self, patience: Duration) -> io::Result<BTreeSet<String>> {
        let mut changed = BTreeSet::new();
        let names = &mut self.names;
        let first = self.runtime.block_on(async { timeout(patience, names.recv()).await });
        match first {
            Err(_) => return Ok(changed),
            Ok(None) => return Err(io::ErrorKind::BrokenPipe.into()),
            Ok(Some(name)) => changed.insert(name?),
        };
        while let Ok(name) = names.try_recv() {
            changed.insert(name?);
        }
        Ok(changed)
    }
}

/// A queue that overflowed has lost notifications, so anything may have changed; the rest is a failure.
fn lost(error: nlink::Error) -> io::Result<String> {
    match error.errno() {
        Some(libc::ENOBUFS) => Ok(UNKNOWN.to_owned()),
        _ => Err(refused(error)),
    }
}
