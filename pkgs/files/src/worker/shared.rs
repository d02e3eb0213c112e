//! The state that all workers of every listener share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use service::access_log::AccessLog;
use service::address_limits::{AddressLimits, AddressPermit, AddressRate};
use service::proxies::Source;
use service::ready::Heartbeats;
use service::shutdown::Shutdown;

use super::completions::CompletionQueue;
use super::settings::Settings;
use crate::archive::planner::ArchivePlanner;
use crate::auth::Authenticator;
use crate::cache::copies::CopyCache;
use crate::cache::memory_copy::MemoryCopy;
use crate::cache::pipe_copy::PipeCopy;
use crate::disk::admission::{self, GhostQueue};
use crate::disk::threads::DiskThreads;
use crate::metrics::Metrics;
use crate::response::pending::{PendingWork, WorkOutcome};
use crate::site::Site;
use crate::stream::pool::StreamPool;
use crate::threads::health::STUCK;
use crate::threads::interest::Interest;
use crate::variants::VariantCache;

/// An address has too many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// The state that all workers share, including those of the TLS listener (see [`crate::tls::service`]).
#[derive(Debug)]
pub struct SharedState {
    /// The workers' settings.
    pub settings: Settings,
    /// The threads that wait for the disk.
    pub disk: DiskThreads,
    /// The threads that write listings and archives.
    pub streams: StreamPool,
    /// Encodings that were made from files.
    pub variants: Arc<VariantCache>,
    /// Finds out what archives contain.
    pub archives: ArchivePlanner,
    /// The state of passwords.
    pub auth: Arc<Authenticator>,
    /// Copies of frequently requested files, to be sent without encryption.
    pub pipe_copies: Arc<CopyCache<PipeCopy>>,
    /// The same, to be encrypted.
    pub memory_copies: Arc<CopyCache<MemoryCopy>>,
    /// The cold files that were read recently.
    pub ghosts: Arc<GhostQueue>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The access log, if requests are logged.
    pub access_log: Option<AccessLog>,
    /// The limits per client address, if there are any.
    pub limits: Option<Arc<AddressLimits>>,
    /// Ends the workers.
    pub shutdown: Shutdown,
    /// The site, and how often it was replaced.
    site: Mutex<Arc<Site>>,
    changes: AtomicU64,
    /// One queue per worker of the plain listener.
    pub completions: Vec<Arc<CompletionQueue>>,
    /// Connections that came from the TLS listener.
    pub offloaded: AtomicUsize,
    /// How many `event_loop::ktls::Handover`s may still bring connections.
    pub handovers: AtomicUsize,
    /// The workers' signs of life.
    heartbeats: Heartbeats,
}

impl SharedState {
    /// The state for `workers` workers.
    ///
    /// # Errors
    /// When there are no file descriptors for the completion queues, or a thread cannot be started.
    pub fn new(
        settings: Settings,
        site: Site,
        disk: DiskThreads,
        access_log: Option<AccessLog>,
        limits: Option<Arc<AddressLimits>>,
        shutdown: Shutdown,
        workers: usize,
    ) -> std::io::Result<Arc<Self>> {
        let completions =
            (0..workers).map(|_| CompletionQueue::new().map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            pipe_copies: Arc::new(CopyCache::new(settings.pipe_memory, settings.pipe_memory / 4)),
            // This cache is for large files, so one file may take half of it: a copy of 4 MiB saves a tenth of HTTP/3's
            // cost.
            memory_copies: Arc::new(CopyCache::new(settings.tls_memory, settings.tls_memory / 2)),
            variants: Arc::new(VariantCache::new(settings.variant_memory)),
            archives: ArchivePlanner::default(),
            auth: Arc::default(),
            settings,
            disk,
            streams: StreamPool::start()?,
            ghosts: Arc::new(GhostQueue::new(admission::memory())),
            metrics: Arc::default(),
            access_log,
            limits,
            shutdown,
            site: Mutex::new(Arc::new(site)),
            changes: AtomicU64::new(0),
            completions,
            offloaded: AtomicUsize::new(0),
            handovers: AtomicUsize::new(0),
            heartbeats: Heartbeats::new(workers),
        }))
    }

    /// Counts a connection of `address`. None if there are no limits, or no address.
    ///
    /// # Errors
    /// When the address has too many connections.
    pub fn let_in(&self, address: Option<IpAddr>) -> Result<Option<AddressPermit>, TooMany> {
        let Some((limits, address)) = self.limits.as_ref().zip(address) else { return Ok(None) };
        limits.enter(address).map(Some).ok_or(TooMany)
    }

    /// Whether another request is allowed now: by its connection's `rate`, or by that of a trusted proxy's client.
    pub fn may_ask(&self, rate: Option<&AddressRate>, by_proxy: Option<IpAddr>) -> bool {
        match rate {
            Some(rate) => rate.may_ask(),
            None => self.limits.as_ref().zip(by_proxy).is_none_or(|(limits, client)| limits.may_ask(client)),
        }
    }

    /// The client of the request with this `head`. The connection comes from `remote`, and `source` says what names its
    /// client.
    pub fn client(&self, source: Source, remote: Option<IpAddr>, head: &[u8]) -> Option<IpAddr> {
        match source {
            Source::Fields => self.settings.proxies.client_of_head(remote, head),
            _ => remote,
        }
    }

    /// Whether the threads that workers wait for are alive, for the watchdog.
    pub fn is_waited_for(&self) -> bool {
        self.disk.is_alive()
            && [self.streams.health(), self.archives.health(), self.auth.health(), self.variants.health()]
                .iter()
                .all(|health| health.is_alive(STUCK))
    }

    /// The workers' signs of life: each worker beats four times a second from when it serves until it has drained.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// Serves `site` from now on.
    pub fn replace(&self, site: Site) {
        *self.site.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(site);
        self.changes.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// How often the site was replaced.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The current site.
    pub fn site(&self) -> Arc<Site> {
        Arc::clone(&self.site.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes all workers, so that they notice a shutdown or a new site.
    pub fn wake(&self) {
        self.completions.iter().for_each(|queue| queue.wake());
    }

    /// Does the `work` on `site` that an answer waits for. Calls `done` on the thread that did the work, or at once. If
    /// nobody is interested any more, it may drop `done` instead.
    pub fn resolve(
        &self,
        work: PendingWork,
        site: Arc<Site>,
        interest: Interest,
        done: impl FnOnce(WorkOutcome) + Send + 'static,
    ) {
        match work {
            PendingWork::Lookup(lookup) => {
                let done = move |path, found| done(WorkOutcome::Found(path, found));
                match &site.origin {
                    Some(origin) => origin.find(lookup, interest, done),
                    None => self.disk.find(site, lookup, interest, done),
                }
            }
            PendingWork::Encode { fd, identity, coding } => {
                self.variants.make(fd, identity, coding, move || done(WorkOutcome::Encoded));
            }
            PendingWork::PlanArchive(request) => {
                let plan = move |plan: Result<_, _>| done(WorkOutcome::Archive(plan.map(Box::new)));
                self.archives.plan(site, *request, plan);
            }
            PendingWork::Password(this) => {
                let realm = Arc::clone(&this.realm);
                self.auth
                    .verify_in_background(*this, move |verdict| done(WorkOutcome::Password(realm, verdict)));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use service::descriptors::HighWater;
    use service::proxies::Proxies;

    use super::*;
    use crate::site::Options;
    use crate::site::root::Symlinks;
    use crate::transfer::engine::Engine;

    /// A directory, and perhaps rules for it, as a site.
    pub fn load(root: &Path, rules: Option<PathBuf>) -> Site {
        let options = Options {
            origin: None,
            root: root.to_owned(),
            rules,
            symlinks: Symlinks::Beneath,
            hidden: false,
            listing: true,
            precompressed: true,
            charset: String::new(),
        };
        Site::load(&options).expect("a site")
    }

    /// The state for one worker.
    pub fn serving(site: Site) -> Arc<SharedState> {
        let settings = Settings {
            engine: Engine::Auto,
            ring: Some(1 << 20),
            open_files: 100,
            memory: 1 << 20,
            memory_max: 4096,
            pipe_memory: 1 << 20,
            tls_memory: 1 << 20,
            variant_memory: 1 << 20,
            revalidate: Duration::from_secs(1),
            proxies: Proxies::default(),
            connections: 100,
            high_water: HighWater::default(),
            head_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(20),
        };
        let disk = DiskThreads::start().expect("threads");
        SharedState::new(settings, site, disk, None, None, Shutdown::new(), 1).expect("a front")
    }
}
