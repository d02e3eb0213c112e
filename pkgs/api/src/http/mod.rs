//! HTTP: from a request to an answer.
//!
//! - [`routes`]: the table of what is served; the router and the API's description are made from it.
//! - [`front`]: what every request meets first: what it is for, who asks, how often, from which origin; and users that are
//!   cached, which are answered there and then.
//! - `operations`: what can be done with users, alone, in batches and in lists.
//! - [`access`]: who may ask, by which name, how often, and from where.
//! - [`request`], `response`: what the operations read and answer with; `call`, `document`, [`failure`]: what they stand on.
//! - `audit`: what the audit log is told of writes.
//! - [`openapi`], [`admin`], [`metrics`]: for people and their machines.

pub mod access;
pub mod admin;
mod audit;
mod call;
mod document;
pub mod failure;
pub mod front;
pub mod metrics;
pub mod openapi;
pub mod operations;
pub mod request;
mod response;
pub mod routes;

use std::sync::Arc;

use arc_swap::ArcSwap;
use oidc::jwt::Tokens;
use service::access_log::AuditLog;

use crate::user::Limits;
use crate::users::Users;

use access::cors::Cors;
use access::guard::Guard;
use metrics::Metrics;
use routes::Described;

pub use front::Front;

/// What the operations work with; clones share it.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

struct Shared {
    users: Users,
    guard: Guard,
    metrics: Metrics,
    described: Described,
    settings: ArcSwap<Settings>,
    logs: Logs,
}

/// What is told of requests, and where.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Whether the listener logs requests, for which it is told their keys.
    pub access: bool,
    /// Where writes are logged.
    pub audit: Option<AuditLog>,
    /// Whether the database is told the traces of requests that their callers record.
    pub trace: bool,
}

/// What can be changed while the service runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// What bodies may have.
    pub limits: Limits,
    /// Which origins may ask.
    pub cors: Cors,
    /// Whether a write has to say which version it is of: 428 where it does not.
    pub conditional_writes: bool,
}

impl Api {
    /// An API over these users; `keys`: whether it takes an API key to use it.
    pub fn new(users: Users, keys: bool, settings: Settings) -> Self {
        Self::logging(users, (keys, None), settings, Logs::default())
    }

    /// The same, which tells of its requests, and takes these tokens of an issuer where it takes keys.
    pub fn logging(
        users: Users,
        (keys, tokens): (bool, Option<Tokens>),
        settings: Settings,
        logs: Logs,
    ) -> Self {
        let guard = Guard::new(users.clone(), keys, tokens);
        Self(Arc::new(Shared {
            users,
            guard,
            metrics: Metrics::default(),
            described: Described::new(settings.limits.unknown),
            settings: ArcSwap::from_pointee(settings),
            logs,
        }))
    }

    /// Replaces the settings.
    pub fn set(&self, settings: Settings) {
        self.0.settings.store(Arc::new(settings));
    }

    /// What was counted.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// What it says of itself: as it was at the start, whatever settings have changed since.
    fn described(&self) -> &Described {
        &self.0.described
    }

    fn users(&self) -> &Users {
        &self.0.users
    }

    fn settings(&self) -> arc_swap::Guard<Arc<Settings>> {
        self.0.settings.load()
    }
}
