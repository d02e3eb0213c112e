//! What the console's pages share.

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

/// How long it counts what a key may: each page and each piece of an upload asks. A key that is revoked may do what the
/// console itself decides for so long, and nothing of what services do.
const MAY: Duration = Duration::from_secs(5);

/// How long clicks that were counted are shown.
const CLICKS: Duration = Duration::from_secs(10);

/// What pages share.
pub(crate) struct App {
    /// The services that are shown.
    pub(crate) sampler: Sampler,
    /// Links, whose keys let people in.
    pub(crate) links: Option<Upstream>,
    /// Files, and who writes them.
    pub(crate) files: Option<Upstream>,
    pub(crate) writer: Option<Upstream>,
    /// The users of the API, whose keys do too.
    pub(crate) users: Option<Upstream>,
    /// Whether users are for everybody who is signed in, where the API asks for no keys.
    pub(crate) users_without_key: bool,
    /// What services write down of writes, where the console is told.
    pub(crate) audits: Vec<AuditFile>,
    /// What everybody works by where nobody signs in.
    pub(crate) open: Option<Grant>,
    /// By which names requests are taken; by any where absent.
    pub(crate) hosts: Option<AllowedHosts>,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) sessions: Sessions,
    /// Where people sign in who have no key.
    pub(crate) single_sign_on: Option<SingleSignOn>,
    pub(crate) session_seconds: u64,
    pub(crate) secret: Secret,
    pub(crate) sign_in_limits: SignInLimits,
    pub(crate) live: Live,
    /// Whether a key of links may write at all domains.
    pub(crate) may_all: AnswerCache<bool>,
    /// The clicks of all links that a key may see.
    pub(crate) clicks: AnswerCache<Arc<Stats>>,
    pub(crate) shutdown: Shutdown,
    pub(crate) known: Known,
    /// Who had what done.
    pub(crate) audit_log: Option<AuditLog>,
    /// What was seen of processes.
    pub(crate) profiles: Profiles,
    /// Links that come from files.
    pub(crate) imports: Imports,
}

/// What was found out of the machine lately.
#[derive(Default)]
pub(crate) struct Known {
    doctor: SharedLookup<Result<Examined, String>>,
    host: SharedLookup<Host>,
    queues: SharedLookup<Result<Queues, String>>,
    /// The queues as they were the time before, to tell what came since.
    queues_before: Mutex<Option<(Queues, Queues)>>,
}

/// Nothing yet of what keys may, and of their clicks.
pub(crate) fn answer_caches() -> (AnswerCache<bool>, AnswerCache<Arc<Stats>>) {
    (AnswerCache::new(MAY), AnswerCache::new(CLICKS))
}

impl App {
    /// The audit log of a service.
    pub(crate) fn audit_of(&self, service: &str) -> Option<&AuditFile> {
        self.audits.iter().find(|file| file.service == service)
    }

    /// What doctor found, no longer ago than this, and when.
    pub(crate) async fn doctor(&self, fresh: Duration) -> Arc<(Instant, Result<Examined, String>)> {
        let machine = Arc::clone(&self.machine);
        self.known.doctor.at(fresh, move || machine.doctor()).await
    }

    /// What doctor found the last time it looked, if it has; it looks again meanwhile where that is longer ago than this.
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

    /// The machine in a few figures.
    pub(crate) async fn host(&self) -> Host {
        let machine = Arc::clone(&self.machine);
        self.known.host.at(Duration::from_secs(1), move || machine.host()).await.1.clone()
    }

    /// The queues as they are right now.
    pub(crate) async fn queues_anew(&self) -> Result<Queues, String> {
        let machine = Arc::clone(&self.machine);
        self.known.queues.at(Duration::ZERO, move || machine.queues()).await.1.clone()
    }

    /// The queues, and as they were some time before.
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

/// Something that takes a while to find out, on a thread that may block, and is found out once however many ask.
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

    /// What was found no longer ago than `fresh`, or is found now.
    async fn at(&self, fresh: Duration, look: impl FnOnce() -> T + Send + 'static) -> Arc<(Instant, T)> {
        let _looking = self.looking.lock().await;
        if let Some(last) = self.last().filter(|last| last.0.elapsed() <= fresh) {
            return last;
        }
        // A panic in there is logged by its hook, and ends this request and nothing else.
        let found = tokio::task::spawn_blocking(look).await.expect("the look has ended");
        let found = Arc::new((Instant::now(), found));
        self.last.send_replace(Some(Arc::clone(&found)));
        found
    }
}
