//! The certificates of all listeners of a service.

use std::sync::Arc;

use service::metrics::{Family, Registry};

use super::Store;

/// Certificates with the name of the listener that shows them: `public`, `admin`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stores(Vec<(&'static str, Arc<Store>)>);

impl Stores {
    /// Adds the certificates of another listener, if it has any.
    #[must_use]
    pub fn with(mut self, listener: &'static str, store: Option<&Arc<Store>>) -> Self {
        self.0.extend(store.map(|store| (listener, Arc::clone(store))));
        self
    }

    /// Reloads all certificates, as at SIGHUP, and logs the result. If one cannot be used, its listener keeps all
    /// previous ones.
    pub fn reload(&self) {
        for (listener, store) in &self.0 {
            match store.reload() {
                Ok(()) => tracing::info!(listener, "certificates were read again"),
                Err(error) => {
                    let error = service::exit::chain(&error);
                    tracing::error!(listener, error, "certificates stay as they are");
                }
            }
        }
    }

    /// Registers how long the certificates are still valid, as `PREFIX_certificate_not_after_seconds`; `prefix` is
    /// `linerate_<service>`.
    pub fn register(&self, registry: &mut Registry, prefix: &str) {
        if self.0.is_empty() {
            return;
        }
        let stores = self.clone();
        Family::new(
            "certificate_not_after_seconds",
            "Seconds until the certificate of a name ends, of several the first; below zero where it has ended",
        )
        .with_changing(move || {
            let of = |(listener, store): &(&'static str, Arc<Store>)| {
                let listener = (*listener).to_owned();
                let series =
                    |(name, left)| (vec![("listener", listener.clone()), ("name", name)], left);
                store.left().into_iter().map(series).collect::<Vec<_>>()
            };
            stores.0.iter().flat_map(of).collect()
        })
        .register(registry.sub_registry_with_prefix(prefix));
    }
}
