//! The admin listener: health, including the database's, and metrics.

use service::admin::Admin;
use service::metrics::Registry;
use service::ready::Readiness;

use crate::users::Users;

/// The admin pages of every service. `/readyz` queries the database.
pub fn admin(users: Users, readiness: Readiness, registry: Registry) -> Admin {
    Admin::new(readiness, registry).checking(move || {
        let users = users.clone();
        async move {
            users.ping().await.map_err(|error| {
                tracing::debug!(error = service::exit::chain(&error), "the database did not answer");
                error.to_string()
            })
        }
    })
}
