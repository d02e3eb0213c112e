//! Entries of the audit log.
//!
//! A digest is the SHA-256 of a link as JSON, without its clicks, and of the end of its password's hash. Its first 24
//! digits are the link's `ETag`. The digest before a write is taken within the write's transaction.

use std::sync::{Arc, OnceLock};

use actix_web::{HttpMessage, HttpRequest};
use service::access_log::{Actor, AuditLog, AuditRecord, RequestContext};
use service::request_id::RequestId;
use sha2::{Digest, Sha256};

use super::State;
use crate::domains::{Domain, LinkKey};
use crate::link::Link;
use crate::store::{Grant, TokenInfo};

/// The audit context of a request; `None` if there is no audit log.
pub(super) struct Audit(Option<AuditContext>);

struct AuditContext {
    log: AuditLog,
    id: RequestId,
    actor: Actor,
}

/// A link, a domain or a key that was written.
pub(super) struct Written {
    /// A link's code, after its domain unless that is the default one; a domain's host; or a key's id.
    pub target: String,
    /// Its digest before the write.
    pub before: Option<String>,
    /// Its digest after the write.
    pub after: Option<String>,
}

/// A link's name in the log.
pub(super) fn target_of(link: &Link) -> String {
    named(link.domain.as_deref(), &link.code)
}

/// Like [`target_of`], from the link's key.
pub(super) fn target(state: &State, key: &LinkKey) -> String {
    let domain = state.store.domains().get(key.domain).map(|domain| domain.host.clone());
    named(domain.as_deref(), &key.code)
}

fn named(domain: Option<&str>, code: &str) -> String {
    domain.map_or_else(|| code.to_owned(), |domain| format!("{domain}/{code}"))
}

/// The digest of a link before a write. The writer's thread computes it.
#[derive(Clone, Default)]
pub(super) struct Before(Arc<OnceLock<String>>);

impl Before {
    /// Computes the digest of a link.
    pub fn take(&self, link: &Link) {
        let _ = self.0.set(digest(link));
    }

    /// The digest.
    pub fn get(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

/// SHA-256 of everything that an edit can change.
pub(super) fn sum(link: &Link) -> [u8; 32] {
    let edited = Link { clicks: 0, ..link.clone() };
    let mut sum = Sha256::new_with_prefix(serde_json::to_vec(&edited).unwrap_or_default());
    sum.update(edited.password_end.unwrap_or_default());
    sum.finalize().into()
}

/// [`sum`] in the audit log's form.
pub(super) fn digest(link: &Link) -> String {
    service::access_log::digest("sha256", &sum(link))
}

/// The digest of a domain's JSON.
pub(super) fn digest_of_domain(domain: &Domain) -> String {
    let sum: [u8; 32] = Sha256::digest(serde_json::to_vec(domain).unwrap_or_default()).into();
    service::access_log::digest("sha256", &sum)
}

/// The digest of a key's JSON, which contains no secret, without its last use.
pub(super) fn digest_of_key(key: &TokenInfo) -> String {
    let unused = TokenInfo { last_used_at: None, ..key.clone() };
    let sum: [u8; 32] = Sha256::digest(serde_json::to_vec(&unused).unwrap_or_default()).into();
    service::access_log::digest("sha256", &sum)
}

impl Audit {
    /// The audit context of a request.
    pub fn of(request: &HttpRequest, state: &State) -> Self {
        let auditing = state.audit_log.clone().map(|log| {
            let extensions = request.extensions();
            let token = extensions.get::<Grant>();
            let context = extensions.get::<RequestContext>();
            AuditContext {
                log,
                id: context.map_or_else(RequestId::generate, |context| context.id().clone()),
                actor: Actor {
                    key: token.and_then(|token| token.id),
                    name: token.map(|token| token.name.clone()),
                    client: request.peer_addr().map(|peer| peer.ip()),
                },
            }
        });
        Self(auditing)
    }

    /// Where the writer's thread puts the digest before the write; `None` if there is no audit log.
    pub fn before(&self) -> Option<Before> {
        self.0.as_ref().map(|_| Before::default())
    }

    /// Whether there is an audit log.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Logs that links, domains or keys were written.
    pub async fn wrote(&self, action: &str, written: &[Written]) {
        let Some(AuditContext { log, id, actor }) = &self.0 else { return };
        let records = written.iter().map(|written| AuditRecord {
            action,
            target: Some(&written.target),
            before: written.before.as_deref(),
            after: written.after.as_deref(),
            count: 1,
        });
        log.write(id, actor, records).await;
    }

    /// Logs the number of links that were written, if they are too many for one line each.
    pub async fn wrote_many(&self, action: &str, count: u64) {
        let Some(AuditContext { log, id, actor }) = &self.0 else { return };
        log.write(id, actor, [AuditRecord { action, count, ..AuditRecord::default() }]).await;
    }
}
