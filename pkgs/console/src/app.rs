//! State that all of the console's pages share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use service::access_log::AuditLog;
use service::allowed_hosts::AllowedHosts;
use service::shutdown::Shutdown;
use tokio::sync::watch;

use crate::answer_cache::AnswerCache;
use crate::audit::AuditFile;
use crate::csrf::Secret;
use crate::imports::Imports;
use crate::links::Stats;
use crate::live::Live;
use crate::machine::{Examined, Host, Machine, Queues};
use crate::overview::Sampler;
use crate::profiles::Profiles;
use crate::session::{Grant, Sessions};
use crate::sign_in_limits::SignInLimits;
use crate::single_sign_on::SingleSignOn;
use crate::upstream::Upstream;

/// How long a key's permissions are cached, since every page and every piece of an upload needs them. During that time,
/// a revoked key still passes the console's own checks, but not those of the services.
const MAY: Duration = Duration::from_secs(5);

/// How long click counts are cached.
const CLICKS: Duration = Duration::from_secs(10);

/// State that pages share.
pub(crate) struct App {
    /// Asks the services for the overview.
    pub(crate) sampler: Sampler,
    /// linerate-links, whose keys let people sign in.
    pub(crate) links: Option<Upstream>,
    /// linerate-files, for users who may write everything.
    pub(crate) files: Option<Upstream>,
    pub(crate) writer: Option<Upstream>,
    /// linerate-api's users. Their keys let people sign in too.
    pub(crate) users: Option<Upstream>,
    /// Whether every signed-in user sees users, because linerate-api requires no keys.
    pub(crate) users_without_key: bool,
    /// The services' own audit logs whose paths are configured.
    pub(crate) audits: Vec<AuditFile>,
    /// The grant that everybody uses if nobody has to sign in.
    pub(crate) open: Option<Grant>,
    /// The host names that requests may use; any if absent.
    pub(crate) hosts: Option<AllowedHosts>,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) sessions: Sessions,
    /// The issuer where people without a key sign in.
    pub(crate) single_sign_on: Option<SingleSignOn>,
    pub(crate) session_seconds: u64,
    pub(crate) secret: Secret,
    pub(crate) sign_in_limits: SignInLimits,
    pub(crate) live: Live,
    /// Caches whether a links key may write to all domains.
    pub(crate) may_all: AnswerCache<bool>,
    /// Caches the clicks of all links that a key may see.
    pub(crate) clicks: AnswerCache<Arc<Stats>>,
    pub(crate) shutdown: Shutdown,
    pub(crate) known: Known,
    /// The console's own audit log.
    pub(crate) audit_log: Option<AuditLog>,
    /// Each running write has a receiver.
    pub(crate) writes: watch::Sender<()>,
    /// Recorded profiles of processes.
    pub(crate) profiles: Profiles,
    /// Imports of links from files.
    pub(crate) imports: Imports,
}

/// Recent results about the machine.
#[derive(Default)]
pub(crate) struct Known {
    doctor: Arc<SharedLookup<Result<Examined, String>>>,
    host: Arc<SharedLookup<Host>>,
    queues: Arc<SharedLookup<Result<Queues, String>>>,
    /// The last two readings of the queues, for the changes between them.
    queues_before: Mutex<Option<(Queues, Queues)>>,
}

/// Empty caches for the permissions of keys, and for clicks.
pub(crate) fn answer_caches() -> (AnswerCache<bool>, AnswerCache<Arc<Stats>>) {
    (AnswerCache::new(MAY), AnswerCache::new(CLICKS))
}

impl App {
    /// A service's audit log.
    pub(crate) fn audit_of(&self, service: &str) -> Option<&AuditFile> {
        self.audits.iter().find(|file| file.service == service)
    }

    /// The doctor's findings, at most this old, and the time of the check.
    pub(crate) async fn doctor(&self, fresh: Duration) -> Arc<(Instant, Result<Examined, String>)> {
        let machine = Arc::clone(&self.machine);
        self.known.doctor.at(fresh, move || machine.doctor()).await
    }

    /// The doctor's last findings, if there are any. If they are older than this, a new check starts in the background.
    pub(crate) fn doctor_lately(
        self: &Arc<Self>,
        fresh: Duration,
    ) -> Option<Arc<(Instant, Result<Examined, String>)>> {
        let last = self.known.doctor.last();
        if last.as_ref().is_none_or(|last| last.0.elapsed() > fresh) {
            let app = Arc::clone(self);
            tokio::spawn(async move { app.doctor(fresh).await });
        }
        last
    }

    /// A summary of the machine.
    pub(crate) async fn host(&self) -> Host {
        let machine = Arc::clone(&self.machine);
        self.known.host.at(Duration::from_secs(1), move || machine.host()).await.1.clone()
    }

    /// The queues right now.
    pub(crate) async fn queues_anew(&self) -> Result<Queues, String> {
        let machine = Arc::clone(&self.machine);
        self.known.queues.at(Duration::ZERO, move || machine.queues()).await.1.clone()
    }

    /// The queues, and an earlier reading of them.
    pub(crate) async fn queues(&self) -> Result<(Option<Queues>, Queues), String> {
        let machine = Arc::clone(&self.machine);
        let now =
            self.known.queues.at(Duration::from_millis(900), move || machine.queues()).await.1.clone()?;
        let mut before = self.known.queues_before.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = match before.take() {
            Some((older, newer)) if newer.at_millis == now.at_millis => (older, newer),
            Some((_, newer)) => (newer, now.clone()),
            None => (now.clone(), now.clone()),
        };
        let older = (pair.0.at_millis < now.at_millis).then(|| pair.0.clone());
        *before = Some(pair);
        Ok((older, now))
    }
}

/// A lookup that takes a while. It runs on a blocking thread, and only once at a time for everybody who needs it.
struct SharedLookup<T> {
    last: watch::Sender<Option<Arc<(Instant, T)>>>,
    looking: Arc<tokio::sync::Mutex<()>>,
}

impl<T> Default for SharedLookup<T> {
    fn default() -> Self {
        Self { last: watch::Sender::new(None), looking: Arc::default() }
    }
}

impl<T: Send + Sync + 'static> SharedLookup<T> {
    fn last(&self) -> Option<Arc<(Instant, T)>> {
        self.last.borrow().clone()
    }

    /// The last result if it is no older than `fresh`, or else a new one.
    async fn at(
        self: &Arc<Self>,
        fresh: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Arc<(Instant, T)> {
        let looking = Arc::clone(&self.looking).lock_owned().await;
        if let Some(last) = self.last().filter(|last| last.0.elapsed() <= fresh) {
            return last;
        }
        let this = Arc::clone(self);
        // It goes on if nobody waits for it any more, so it keeps the lock, and what it finds is there for others.
        let looked = tokio::task::spawn_blocking(move || {
            let _looking = looking;
            let found = look();
            let found = Arc::new((Instant::now(), found));
            this.last.send_replace(Some(Arc::clone(&found)));
            found
        });
        // The panic hook logs a panic, and only this request fails.
        looked.await.expect("the look has ended")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn who_leaves_begins_no_look_beside_the_one_under_way() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let shared = Arc::new(SharedLookup::<()>::default());
        let look = || {
            MOST.fetch_max(NOW.fetch_add(1, Relaxed) + 1, Relaxed);
            std::thread::sleep(Duration::from_millis(30));
            NOW.fetch_sub(1, Relaxed);
        };
        for _ in 0..10 {
            let _ = timeout(Duration::from_millis(3), shared.at(Duration::ZERO, look)).await;
        }
        shared.at(Duration::ZERO, look).await;
        assert_eq!(MOST.load(Relaxed), 1);
    }
}
