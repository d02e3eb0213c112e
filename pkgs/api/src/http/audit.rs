//! Entries of the audit log.
//!
//! A digest is the SHA-256 of a user's or a key's representation, exactly as GET sends it. The digest `before` is that
//! of the version that was replaced or deleted. In a batch of deletions, it is that of the version read just before.

use std::sync::Arc;

use service::access_log::{Actor, AuditLog, AuditRecord, digest};
use service::request_id::RequestId;
use sha2::{Digest, Sha256};

use crate::keys::KeyInfo;
use crate::user::{Record, UserId};

/// The audit log of a request; none without an audit log.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Auditing>>);

struct Auditing {
    log: AuditLog,
    id: RequestId,
    actor: Actor,
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

impl Audit {
    /// Logs writes of the request `id`, made by `actor`.
    pub fn new(log: AuditLog, id: RequestId, actor: Actor) -> Self {
        Self(Some(Arc::new(Auditing { log, id, actor })))
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
        auditing.log.write(&auditing.id, &auditing.actor, records).await;
    }
}
