//! Entries of the audit log.
//!
//! A digest is the SHA-256 of a user's or a key's representation, exactly as GET sends it. The digest `before` is that
//! of the version that was replaced or deleted. In a batch of deletions, it is that of the version read just before.
//!
//! If a client leaves, the listener drops its request, but the database commits a write that has begun all the same. So
//! what is left of the request then goes on elsewhere, up to the entry.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::response::Response;
use postgres::{Comment, comment, commented};
use service::access_log::{Actor, AuditLog, AuditRecord, digest};
use service::request_id::RequestId;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::keys::KeyInfo;
use crate::user::{Record, UserId};

/// The audit log, and the writes whose clients have left.
#[derive(Debug)]
pub struct Auditor {
    log: AuditLog,
    /// It outlives the listener's runtimes.
    runtime: Handle,
    abandoned: Mutex<JoinSet<()>>,
}

/// The audit log of a request; none without an audit log.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Auditing>>);

struct Auditing {
    auditor: Arc<Auditor>,
    id: RequestId,
    actor: Actor,
    /// Whether a write may have been committed.
    begun: AtomicBool,
}

/// What is left of a request.
type Handling = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler that goes on elsewhere if it is dropped after its write has begun.
struct Finishing {
    /// None once it has ended.
    handler: Option<Handling>,
    auditing: Arc<Auditing>,
    /// The comment for its statements.
    comment: Option<Comment>,
}

/// A user or a key that was written.
pub struct Written {
    id: String,
    before: Option<String>,
    after: Option<String>,
}

impl Written {
    /// A user before and after a write.
    pub fn new(id: UserId, before: Option<&Record>, after: Option<&Record>) -> Self {
        let of = |record: &Record| digest("sha256", &Sha256::digest(&record.body));
        Self { id: id.to_string(), before: before.map(of), after: after.map(of) }
    }

    /// A key before and after a write.
    pub fn key(id: i64, before: Option<&KeyInfo>, after: Option<&KeyInfo>) -> Self {
        let of = |key: &KeyInfo| {
            // A key's use is not a write to it.
            let unused = KeyInfo { last_used_at: None, ..key.clone() };
            digest("sha256", &Sha256::digest(serde_json::to_vec(&unused).unwrap_or_default()))
        };
        Self { id: id.to_string(), before: before.map(of), after: after.map(of) }
    }
}

impl Auditor {
    /// Writes to `log`, and continues abandoned writes on `runtime`.
    pub fn new(log: AuditLog, runtime: Handle) -> Self {
        Self { log, runtime, abandoned: Mutex::default() }
    }

    /// Waits for abandoned writes, and until everything is in the log. The listeners have to have ended.
    pub async fn finish(&self) {
        let mut abandoned = std::mem::take(&mut *self.abandoned());
        while abandoned.join_next().await.is_some() {}
        self.log.finish();
    }

    fn proceed(&self, work: impl Future<Output = Response> + Send + 'static) {
        let mut abandoned = self.abandoned();
        // Only those under way are kept.
        while abandoned.try_join_next().is_some() {}
        abandoned.spawn_on(async move { drop(work.await) }, &self.runtime);
    }

    fn abandoned(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for Finishing {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Response> {
        // It is out of here while it runs, so that one that panics does not go on.
        let Some(mut handler) = self.handler.take() else { return Poll::Pending };
        let polled = handler.as_mut().poll(context);
        if polled.is_pending() {
            self.handler = Some(handler);
        }
        polled
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take()
            && self.auditing.begun.load(Ordering::Relaxed)
        {
            self.auditing.auditor.proceed(commented(self.comment.take(), handler));
        }
    }
}

impl Audit {
    /// Logs writes of the request `id`, made by `actor`.
    pub fn new(auditor: Arc<Auditor>, id: RequestId, actor: Actor) -> Self {
        Self(Some(Arc::new(Auditing { auditor, id, actor, begun: AtomicBool::new(false) })))
    }

    /// The handler's answer. A write that has begun is logged even if nobody waits for the answer any more.
    pub async fn answer(self, handler: Handling) -> Response {
        match self.0 {
            Some(auditing) => Finishing { handler: Some(handler), auditing, comment: comment() }.await,
            None => handler.await,
        }
    }

    /// To be called before each write, which may be committed from now on.
    pub fn begin(&self) {
        if let Some(auditing) = &self.0 {
            auditing.begun.store(true, Ordering::Relaxed);
        }
    }

    /// Whether there is an audit log.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Logs that users or keys were written. `written` is called only if there is an audit log.
    pub async fn wrote<W: IntoIterator<Item = Written>>(&self, action: &str, written: impl FnOnce() -> W) {
        let Some(auditing) = &self.0 else { return };
        let written: Vec<Written> = written().into_iter().collect();
        let records = written.iter().map(|written| AuditRecord {
            action,
            target: Some(&written.id),
            before: written.before.as_deref(),
            after: written.after.as_deref(),
            count: 1,
        });
        auditing.auditor.log.write(&auditing.id, &auditing.actor, records).await;
    }
}
