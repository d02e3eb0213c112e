//! The state from which a thread of either listener answers: the site, open files, the time, its counters and its
//! access log lines.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use listener::{TICK, ticks};
use rustix::time::{ClockId, clock_gettime};
use service::access_log::{AccessLog, Lines};

use super::shared::SharedState;
use crate::cache::open_files::OpenFileCache;
use crate::cache::plain_directories::PlainDirectories;
use crate::cache::watch::Watcher;
use crate::http::head::Request;
use crate::metrics::WorkerMetrics;
use crate::response::builder::ResponseBuilder;
use crate::response::built::Payload;
use crate::response::common_headers::CommonHeaders;
use crate::site::Site;
use crate::site::hosts::VirtualHosts;

/// If many clients start to read a file, the file that follows it is read ahead at most once in this time.
const PREFETCH_EVERY: Duration = Duration::from_secs(5);

/// The state from which a thread answers.
#[derive(Debug)]
pub struct WorkerContext {
    /// The state that all threads share.
    pub shared: Arc<SharedState>,
    /// The site that is served. Each request has a clone of the outer pointer, which no other thread has: a shared
    /// counter would move between the caches of all CPUs.
    pub site: Rc<Arc<Site>>,
    /// The thread's counters.
    pub metrics: Arc<WorkerMetrics>,
    /// The thread's counters for connections with TLS.
    pub tls_metrics: Arc<WorkerMetrics>,
    /// The last lines of each head during this second.
    pub tail: CommonHeaders,
    /// Ticks since the thread started.
    pub tick: u32,
    /// The current time, in whole seconds.
    pub now: SystemTime,
    /// Whether each answer is its connection's last.
    pub draining: bool,
    cache: OpenFileCache,
    memory_max: u64,
    /// The access log's lines, if there is a log. The TLS listener logs its own requests.
    pub log: Option<Lines>,
    changes: u64,
    /// The number of descriptor shortages at the last check.
    shortages: u64,
    /// The number of evicted variants at the last check.
    variants_evicted: u64,
    /// The number of evicted files of an origin at the last check.
    origin_evicted: u64,
    /// The path that was last read ahead, and the tick from which it may be read ahead again.
    prefetched: (Vec<u8>, u32),
}

impl WorkerContext {
    /// The context of this thread, which keeps `memory` bytes of small files. It counts in `metrics`, and in
    /// `tls_metrics` for connections with TLS.
    pub fn new(
        shared: &Arc<SharedState>,
        metrics: Arc<WorkerMetrics>,
        tls_metrics: Arc<WorkerMetrics>,
        memory: usize,
    ) -> Self {
        let settings = &shared.settings;
        let fresh_for = ticks(settings.revalidate).max(1);
        let now = present();
        // Read before the site, so that a change between the two is seen twice rather than missed.
        let changes = shared.changes();
        let watched = Watcher::new().map(|watcher| (watcher, PlainDirectories::new(shared.disk.clone())));
        let memory_max = if memory == 0 { 0 } else { settings.memory_max };
        Self {
            site: Rc::new(shared.site()),
            tail: CommonHeaders::at(now),
            tick: 1,
            now,
            draining: false,
            cache: OpenFileCache::new(settings.open_files, fresh_for, (memory, memory_max), watched),
            memory_max,
            log: shared.access_log.as_ref().map(AccessLog::lines),
            changes,
            shortages: shared.disk.shortages(),
            variants_evicted: 0,
            origin_evicted: 0,
            prefetched: Default::default(),
            metrics,
            tls_metrics,
            shared: Arc::clone(shared),
        }
    }

    /// The tick `time` from now.
    pub fn after(&self, time: Duration) -> u32 {
        self.tick.saturating_add(ticks(time))
    }

    /// The tick by which a client has to take a part of its answer.
    pub fn write_deadline(&self) -> u32 {
        self.after(self.shared.settings.write_timeout)
    }

    /// Whether any site has rules that announce further resources (103 Early Hints).
    pub fn hints_early(&self) -> bool {
        self.site.has_early_hints() || self.site.hosts.as_ref().is_some_and(VirtualHosts::hints_early)
    }

    /// A builder of answers for `site`.
    pub fn builder<'d>(&'d mut self, site: &'d Arc<Site>) -> ResponseBuilder<'d> {
        let SharedState { auth, variants, .. } = &*self.shared;
        let time = (self.tick, self.now);
        let mut builder = ResponseBuilder::new(site, &mut self.cache, time, &self.tail, auth, variants);
        builder.memory_max = self.memory_max;
        builder.last = self.draining;
        builder
    }

    /// Whether there is an entry for a path, however old.
    pub fn knows(&self, site: &Site, path: &[u8]) -> bool {
        self.cache.last(site, path).is_some()
    }

    /// The counters of connections with TLS, or of the others.
    pub fn counts(&self, tls: bool) -> &WorkerMetrics {
        if tls { &self.tls_metrics } else { &self.metrics }
    }

    /// If a manifest lists a file after this one, has that file read ahead when this one starts to be sent.
    pub fn prefetch(&mut self, site: &Arc<Site>, payload: &Payload) {
        let Payload::File { file, range, .. } = payload else { return };
        if !site.has_manifests() || range.start != 0 {
            return;
        }
        let Some(next) = site.next(file.path()) else { return };
        if self.prefetched.0 != next || self.prefetched.1 <= self.tick {
            self.prefetched = (next.to_vec(), self.after(PREFETCH_EVERY));
            self.metrics.prefetched.add(self.shared.disk.prefetch(Arc::clone(site), next.to_vec()).into());
        }
    }

    /// Advances the clock, flushes the log, and reacts to shortages and evictions.
    pub fn tick(&mut self) {
        self.tick = self.tick.saturating_add(1);
        let now = present();
        if now != self.now {
            self.now = now;
            self.tail = CommonHeaders::at(now);
        }
        self.flush_log();
        let shortages = self.shared.disk.shortages();
        if shortages != self.shortages {
            self.shortages = shortages;
            self.close_all();
            self.shared.disk.look_again();
        }
        let evictions = self.shared.variants.evictions();
        if evictions != self.variants_evicted {
            self.variants_evicted = evictions;
            self.cache.forget_made();
        }
        if let Some(origin) = &self.site.origin
            && origin.evictions() != self.origin_evicted
        {
            self.origin_evicted = origin.evictions();
            self.cache.close_evicted();
        }
        self.metrics.open_files.store(self.cache.len() as u64, Ordering::Relaxed);
    }

    /// Passes on the log lines.
    pub fn flush_log(&self) {
        if let Some(lines) = &self.log {
            lines.flush();
        }
    }

    /// Switches to the current site if it was replaced.
    pub fn refresh(&mut self) {
        let changes = self.shared.changes();
        if changes != self.changes {
            self.changes = changes;
            self.site = Rc::new(self.shared.site());
            self.cache.clear();
        }
    }

    /// Closes this thread's cached files, except for those being sent.
    pub fn close_files(&mut self) {
        self.cache.clear();
    }

    /// Closes all cached files, except for those being sent.
    fn close_all(&mut self) {
        self.cache.clear();
        self.shared.pipe_copies.clear();
        self.shared.variants.clear();
    }

    /// Resets what a panic may have left half changed.
    pub fn reset(&mut self) {
        self.cache.reset();
        self.prefetched = Default::default();
    }

    /// Processes changes below the root.
    pub fn watched(&mut self) {
        self.cache.watched();
    }

    /// Signals when [`watched`](Self::watched) has work; none if only time decides.
    pub fn watcher(&self) -> Option<&Watcher> {
        self.cache.watcher()
    }
}

/// The site that a request is for: `first`, or one of its other sites. None if no site has the request's host.
pub fn site_of<'s>(first: &'s Arc<Site>, request: &Request<'_>) -> Option<&'s Arc<Site>> {
    match &first.hosts {
        None => Some(first),
        Some(hosts) => hosts.of(request.host(), first),
    }
}

/// The current time, in whole seconds.
fn present() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(clock_gettime(ClockId::RealtimeCoarse).tv_sec as u64)
}
