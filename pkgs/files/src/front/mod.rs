//! The plain listener: HTTP/1.1, one thread a core. Where the kernel encrypts, HTTP/1.1 over TLS comes here too.
//!
//! Each worker has an epoll instance, sockets, a cache and counters of its own, and shares next to nothing.
//! - [`worker`]: its loop.
//! - [`connection`]: what one connection goes through.
//! - [`sending`]: what a connection has yet to send.
//! - [`limits`]: what one address may take.
//! - [`seal`]: connections of TLS that the kernel encrypts.

mod connection;
pub mod limits;
pub mod seal;
mod sending;
#[cfg(test)]
mod tests;
mod worker;

use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use service::access_log::AccessLog;
use service::descriptors::HighWater;
use service::proxies::{Proxies, Source};
use service::ready::Heartbeats;
use service::shutdown::Shutdown;

use crate::copies::{Loaded, Piped};
use crate::disk::{Disk, Mailbox, STUCK};
use crate::engine::Engine;
use crate::guard::Guard;
use crate::metrics::Metrics;
use crate::shelf::Shelf;
use crate::site::Site;
use crate::variants::Variants;

/// How the workers behave.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How bytes get from files into sockets.
    pub engine: Engine,
    /// Memory of each worker for what its io_uring reads; none where threads read.
    pub ring: Option<usize>,
    /// Files that each worker keeps open.
    pub open_files: usize,
    /// Memory of each worker for bytes of small files.
    pub memory: usize,
    /// The longest file whose bytes are kept in memory.
    pub memory_max: u64,
    /// Memory for copies in pipes of files that are asked for often, of all workers together.
    pub pipe_memory: u64,
    /// The same for copies that are encrypted from.
    pub tls_memory: u64,
    /// Memory for codings that are made of files, of all workers together.
    pub variant_memory: u64,
    /// How long a file counts as what its name stands for.
    pub revalidate: Duration,
    /// Which proxies are in front, by whom clients come.
    pub proxies: Proxies,
    /// Connections of one worker; further ones are closed at once.
    pub connections: usize,
    /// From how many file descriptors on accepting pauses.
    pub high_water: HighWater,
    /// A head must be complete this long after its first byte.
    pub head_timeout: Duration,
    /// A connection may be idle this long between requests.
    pub idle_timeout: Duration,
    /// A client may take nothing for this long.
    pub write_timeout: Duration,
    /// At shutdown, answers under way have this long.
    pub drain_timeout: Duration,
}

/// What the workers share, those of the TLS listener too (see [`crate::secure`]).
#[derive(Debug)]
pub struct Front {
    /// How they behave.
    pub settings: Settings,
    /// The threads that wait for the disk.
    pub disk: Disk,
    /// Codings that were made of files.
    pub variants: Arc<Variants>,
    /// What is known of passwords.
    pub guard: Arc<Guard>,
    /// Copies of files that are asked for often, to be sent as they are.
    pub piped: Arc<Shelf<Piped>>,
    /// The same, to be encrypted.
    pub loaded: Arc<Shelf<Loaded>>,
    /// What they count.
    pub metrics: Arc<Metrics>,
    /// Where requests are logged; none where they are not.
    pub access_log: Option<AccessLog>,
    /// What one address may take; none where there are no limits.
    pub limits: Option<Arc<limits::Limits>>,
    /// Ends them.
    pub shutdown: Shutdown,
    /// What is served, and how often it was changed.
    site: Mutex<Arc<Site>>,
    changes: AtomicU64,
    mailboxes: Vec<Arc<Mailbox>>,
    /// Connections that came from the TLS listener.
    offloaded: AtomicUsize,
    /// Those who may yet bring some.
    givers: AtomicUsize,
    /// That the workers go on.
    heartbeats: Heartbeats,
}

/// What a thread has that the server cannot do without: where it ends of itself, so does the server, as one that failed.
struct Needed {
    front: Arc<Front>,
    drained: bool,
}

impl Drop for Needed {
    fn drop(&mut self) {
        if !self.drained {
            self.front.shutdown.fail();
            self.front.wake();
        }
    }
}

impl Front {
    /// One for `workers` workers.
    ///
    /// # Errors
    /// When there are no file descriptors for their mailboxes.
    pub fn new(
        settings: Settings,
        site: Site,
        disk: Disk,
        access_log: Option<AccessLog>,
        limits: Option<Arc<limits::Limits>>,
        shutdown: Shutdown,
        workers: usize,
    ) -> std::io::Result<Arc<Self>> {
        let mailboxes = (0..workers).map(|_| Mailbox::new().map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            piped: Arc::new(Shelf::new(settings.pipe_memory, settings.pipe_memory / 4)),
            // What is large is what it is for: one of 4 MiB costs a tenth less by HTTP/3.
            loaded: Arc::new(Shelf::new(settings.tls_memory, settings.tls_memory / 2)),
            variants: Arc::new(Variants::new(settings.variant_memory)),
            guard: Arc::default(),
            settings,
            disk,
            metrics: Arc::default(),
            access_log,
            limits,
            shutdown,
            site: Mutex::new(Arc::new(site)),
            changes: AtomicU64::new(0),
            mailboxes,
            offloaded: AtomicUsize::new(0),
            givers: AtomicUsize::new(0),
            heartbeats: Heartbeats::new(workers),
        }))
    }

    /// Starts one thread per set of sockets: `listeners[i]` are those of worker `i`. With `pinned`, worker `i`
    /// stays on the `i`-th CPU of this process. A thread ends when its connections have drained.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(
        self: &Arc<Self>,
        listeners: Vec<Vec<TcpListener>>,
        pinned: bool,
    ) -> std::io::Result<Vec<JoinHandle<()>>> {
        let start = |(index, sockets)| {
            let front = Arc::clone(self);
            std::thread::Builder::new().name(service::workers::name("files", index)).spawn(move || {
                if pinned && !service::workers::pin(index) {
                    tracing::warn!(worker = index, "cannot pin a worker to its CPU");
                }
                let mut needed = Needed { front: Arc::clone(&front), drained: false };
                match worker::run(&front, index, sockets) {
                    Ok(()) => needed.drained = true,
                    Err(error) => tracing::error!(worker = index, %error, "a worker ended"),
                }
            })
        };
        listeners.into_iter().enumerate().map(start).collect()
    }

    /// Counts a connection from `address` as its own; nothing where there are no limits, or no address.
    fn let_in(&self, address: Option<IpAddr>) -> Result<Option<Arc<limits::Guest>>, limits::TooMany> {
        let Some((limits, address)) = self.limits.as_ref().zip(address) else { return Ok(None) };
        limits.enter(address).map(|guest| Some(Arc::new(guest))).ok_or(limits::TooMany)
    }

    /// Whether there may be another request now of who was let in as `guest`, or of the client of a trusted proxy.
    pub fn may_ask(&self, guest: Option<&limits::Guest>, by_proxy: Option<IpAddr>) -> bool {
        match guest {
            Some(guest) => guest.may_ask(),
            None => self.limits.as_ref().zip(by_proxy).is_none_or(|(limits, client)| limits.may_ask(client)),
        }
    }

    /// Where the client of a request is that has this head, on a connection from `remote` of which `source` tells.
    fn client(&self, source: Source, remote: Option<IpAddr>, head: &[u8]) -> Option<IpAddr> {
        match source {
            Source::Fields => self.settings.proxies.client_of_head(remote, head),
            _ => remote,
        }
    }

    /// Whether the threads go on that workers have wait for them, for the watchdog.
    pub fn is_waited_for(&self) -> bool {
        self.disk.is_alive()
            && [self.guard.busy(), self.variants.busy()].iter().all(|busy| busy.is_alive(STUCK))
    }

    /// That the workers go on: each beats four times a second from when it serves until it has drained.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// Serves this from now on.
    pub fn replace(&self, site: Site) {
        *self.site.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(site);
        self.changes.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// How often that was changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What is served.
    pub fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has all workers look up: at a shutdown, or a new site.
    pub fn wake(&self) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.ring());
    }
}
