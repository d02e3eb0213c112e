//! HTTP: from a request to an answer.
//!
//! - [`routes`]: the table of routes, from which the router and the API's description are made.
//! - [`front`]: the first code for every request: its route, client, rate and origin. It answers cached users at once.
//! - `operations`: operations on users, single, in batches and in lists.
//! - [`access`]: keys, hosts, rates and origins.
//! - [`request`], `response`: what operations read and answer; `call`, `document`, [`failure`]: their foundations.
//! - `audit`: entries of the audit log.
//! - [`openapi`], [`admin`], [`metrics`]: the API's description, health and counters.

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

use crate::user::Limits;
use crate::users::Users;

use access::cors::Cors;
use access::guard::Guard;
use metrics::Metrics;
use routes::Described;

pub use audit::Auditor;
pub use front::Front;

/// The state of operations. Clones share it.
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

/// Where requests and writes are logged.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Whether the listener logs requests, and so needs their keys.
    pub access: bool,
    /// The audit log.
    pub audit: Option<Arc<Auditor>>,
    /// Whether statements carry the traces of recorded requests.
    pub trace: bool,
}

/// Settings that can change while the service runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Limits of bodies.
    pub limits: Limits,
    /// The allowed origins.
    pub cors: Cors,
    /// Whether a write has to name its version; otherwise it is 428.
    pub conditional_writes: bool,
}

impl Api {
    /// An API over these users. `keys` says whether API keys are required.
    pub fn new(users: Users, keys: bool, settings: Settings) -> Self {
        Self::logging(users, (keys, None), settings, Logs::default())
    }

    /// Like [`new`](Self::new), with these logs. If keys are required, accepts this issuer's tokens too.
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

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The API's description, with the settings that the service started with.
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
