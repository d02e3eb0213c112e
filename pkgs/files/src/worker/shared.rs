//! The state that all workers of every listener share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use service::access_log::AccessLog;
use service::address_limits::{AddressLimits, AddressPermit, AddressRate};
use service::panics;
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
use crate::site::root::{Error, LookupMode};
use crate::stream::pool::StreamPool;
use crate::threads::health::STUCK;
use crate::variants::VariantCache;

/// An address has too many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// What the workers share, those of the TLS listener too (see [`crate::tls::service`]).
#[derive(Debug)]
pub struct SharedState {
    /// How they behave.
    pub settings: Settings,
    /// The threads that wait for the disk.
    pub disk: DiskThreads,
    /// Those that write listings and archives.
    pub streams: StreamPool,
    /// Codings that were made of files.
    pub variants: Arc<VariantCache>,
    /// What finds out what is in archives.
    pub archives: ArchivePlanner,
    /// What is known of passwords.
    pub auth: Arc<Authenticator>,
    /// Copies of files that are asked for often, to be sent as they are.
    pub pipe_copies: Arc<CopyCache<PipeCopy>>,
    /// The same, to be encrypted.
    pub memory_copies: Arc<CopyCache<MemoryCopy>>,
    /// Which cold files they have read.
    pub ghosts: Arc<GhostQueue>,
    /// What they count.
    pub metrics: Arc<Metrics>,
    /// Where requests are logged; none where they are not.
    pub access_log: Option<AccessLog>,
    /// What one address may take; none where there are no limits.
    pub limits: Option<Arc<AddressLimits>>,
    /// Ends them.
    pub shutdown: Shutdown,
    /// What is served, and how often it was changed.
    site: Mutex<Arc<Site>>,
    changes: AtomicU64,
    /// By worker of the plain listener.
    pub completions: Vec<Arc<CompletionQueue>>,
    /// Connections that came from the TLS listener.
    pub offloaded: AtomicUsize,
    /// Those who may yet bring some.
    pub handovers: AtomicUsize,
    /// That the workers go on.
    heartbeats: Heartbeats,
}

impl SharedState {
    /// One for `workers` workers.
    ///
    /// # Errors
    /// When there are no file descriptors for their completions.
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
            // What is large is what it is for: one of 4 MiB costs a tenth less by HTTP/3.
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

    /// Counts a connection from `address` as its own; nothing where there are no limits, or no address.
    ///
    /// # Errors
    /// When it has too many.
    pub fn let_in(&self, address: Option<IpAddr>) -> Result<Option<AddressPermit>, TooMany> {
        let Some((limits, address)) = self.limits.as_ref().zip(address) else { return Ok(None) };
        limits.enter(address).map(Some).ok_or(TooMany)
    }

    /// Whether there may be another request now of whose connection has this `rate`, or of the client of a trusted proxy.
    pub fn may_ask(&self, rate: Option<&AddressRate>, by_proxy: Option<IpAddr>) -> bool {
        match rate {
            Some(rate) => rate.may_ask(),
            None => self.limits.as_ref().zip(by_proxy).is_none_or(|(limits, client)| limits.may_ask(client)),
        }
    }

    /// Where the client of a request is that has this head, on a connection from `remote` of which `source` tells.
    pub fn client(&self, source: Source, remote: Option<IpAddr>, head: &[u8]) -> Option<IpAddr> {
        match source {
            Source::Fields => self.settings.proxies.client_of_head(remote, head),
            _ => remote,
        }
    }

    /// Whether the threads go on that workers have wait for them, for the watchdog.
    pub fn is_waited_for(&self) -> bool {
        self.disk.is_alive()
            && [self.streams.health(), self.archives.health(), self.auth.health(), self.variants.health()]
                .iter()
                .all(|health| health.is_alive(STUCK))
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
        self.completions.iter().for_each(|queue| queue.wake());
    }

    /// Has done about `site` what an answer waits for. `done` is called on the thread that did it, or at once.
    pub fn resolve(
        &self,
        work: PendingWork,
        site: Arc<Site>,
        done: impl FnOnce(WorkOutcome) + Send + 'static,
    ) {
        match (work, &site.origin) {
            (PendingWork::Lookup(path, _), Some(origin)) => {
                origin.find(path, move |path, found| done(WorkOutcome::Found(path, found)));
            }
            (PendingWork::LookupFirst { paths, asked }, Some(origin)) => {
                origin.find_first(paths, asked, move |path, found| done(WorkOutcome::Found(path, found)));
            }
            (PendingWork::Lookup(path, codings), None) => {
                self.disk
                    .find(site, (path, codings), move |path, found| done(WorkOutcome::Found(path, found)));
            }
            (PendingWork::LookupFirst { paths, asked }, None) => self.disk.run(move |_| {
                let first = panics::catch(|| site.first(paths, &asked, LookupMode::MayBlock));
                let (path, found) = first.unwrap_or_else(|panic| {
                    panic.log("lookup", &String::from_utf8_lossy(&asked));
                    (asked.clone(), Err(Error::Failed(Errno::IO)))
                });
                done(WorkOutcome::Found(path, found));
            }),
            (PendingWork::Encode { fd, identity, coding }, _) => {
                self.variants.make(fd, identity, coding, move || done(WorkOutcome::Encoded));
            }
            (PendingWork::PlanArchive(request), _) => {
                let plan = move |plan: Result<_, _>| done(WorkOutcome::Archive(plan.map(Box::new)));
                self.archives.plan(site, *request, plan);
            }
            (PendingWork::Password(this), _) => {
                let realm = Arc::clone(&this.realm);
                self.auth
                    .verify_in_background(*this, move |verdict| done(WorkOutcome::Password(realm, verdict)));
            }
        }
    }
}
