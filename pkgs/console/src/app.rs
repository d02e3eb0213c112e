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

/// How long the console goes by what it found out about a key's permissions, since every page and every piece of an
/// upload needs to know. For that long, a revoked key still passes the console's own checks, but not those of the
/// services.
const MAY: Duration = Duration::from_secs(5);

/// How long click counts are shown before they are fetched again.
const CLICKS: Duration = Duration::from_secs(10);

/// State that pages share.
pub(crate) struct App {
    /// The services that are shown.
    pub(crate) sampler: Sampler,
    /// linerate-links, whose keys let people sign in.
    pub(crate) links: Option<Upstream>,
    /// linerate-files, for those who may write to it.
    pub(crate) files: Option<Upstream>,
    pub(crate) writer: Option<Upstream>,
    /// linerate-api's users, whose keys let people sign in too.
    pub(crate) users: Option<Upstream>,
    /// Whether everybody who is signed in sees users, since linerate-api asks for no keys.
    pub(crate) users_without_key: bool,
    /// The services' own audit logs, where the console is told of them.
    pub(crate) audits: Vec<AuditFile>,
    /// The grant that everybody uses where nobody has to sign in.
    pub(crate) open: Option<Grant>,
    /// The host names that requests may use; any where absent.
    pub(crate) hosts: Option<AllowedHosts>,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) sessions: Sessions,
    /// Where people without a key sign in.
    pub(crate) single_sign_on: Option<SingleSignOn>,
    pub(crate) session_seconds: u64,
    pub(crate) secret: Secret,
    pub(crate) sign_in_limits: SignInLimits,
    pub(crate) live: Live,
    /// Whether a links key may write to all domains.
    pub(crate) may_all: AnswerCache<bool>,
    /// The clicks of all links that a key may see.
    pub(crate) clicks: AnswerCache<Arc<Stats>>,
    pub(crate) shutdown: Shutdown,
    pub(crate) known: Known,
    /// The console's own audit log, of who did what.
    pub(crate) audit_log: Option<AuditLog>,
    /// Recorded profiles of processes.
    pub(crate) profiles: Profiles,
    /// Imports of links from files.
    pub(crate) imports: Imports,
}

/// What was recently found out about the machine.
#[derive(Default)]
pub(crate) struct Known {
    doctor: SharedLookup<Result<Examined, String>>,
    host: SharedLookup<Host>,
    queues: SharedLookup<Result<Queues, String>>,
    /// The last two readings of the queues, to tell what has changed between them.
    queues_before: Mutex<Option<(Queues, Queues)>>,
}

/// Empty caches for what keys may do, and for their clicks.
pub(crate) fn answer_caches() -> (AnswerCache<bool>, AnswerCache<Arc<Stats>>) {
    (AnswerCache::new(MAY), AnswerCache::new(CLICKS))
}

impl App {
    /// A service's audit log.
    pub(crate) fn audit_of(&self, service: &str) -> Option<&AuditFile> {
        self.audits.iter().find(|file| file.service == service)
    }

    /// The doctor's findings, at most this old, and when they were made.
    pub(crate) async fn doctor(&self, fresh: Duration) -> Arc<(Instant, Result<Examined, String>)> {
        let machine = Arc::clone(&self.machine);
        self.known.doctor.at(fresh, move || machine.doctor()).await
    }

    /// The doctor's last findings, if there are any; when they are older than this, it looks again in the background.
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

    /// The queues, and how they were some time before.
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

/// Something that takes a while to find out: it runs on a thread that may block, and only once however many ask for it.
struct SharedLookup<T> {
    last: watch::Sender<Option<Arc<(Instant, T)>>>,
    looking: tokio::sync::Mutex<()>,
}

impl<T> Default for SharedLookup<T> {
    fn default() -> Self {
        Self { last: watch::Sender::new(None), looking: tokio::sync::Mutex::default() }
    }
}

impl<T: Send + Sync + 'static> SharedLookup<T> {
    fn last(&self) -> Option<Arc<(Instant, T)>> {
        self.last.borrow().clone()
    }

    /// The last result if it is no older than `fresh`, or else a new one.
    async fn at(&self, fresh: Duration, look: impl FnOnce() -> T + Send + 'static) -> Arc<(Instant, T)> {
        let _looking = self.looking.lock().await;
        if let Some(last) = self.last().filter(|last| last.0.elapsed() <= fresh) {
            return last;
        }
        // A panic in there is logged by its hook, and ends only this request.
        let found = tokio::task::spawn_blocking(look).await.expect("the look has ended");
        let found = Arc::new((Instant::now(), found));
        self.last.send_replace(Some(Arc::clone(&found)));
        found
    }
}
