//! The admin API in this process.

use std::path::Path;
use std::thread::JoinHandle;

use links::admin::{self, Requests, State, Timeouts};
use links::store::{Options, Scope, Store};
use links::target::TargetPolicy;
use listener::Listener;
use service::metrics::Registry;
use service::ready::Readiness;
use service::shutdown::Shutdown;

use super::PUBLIC_URL;

/// The admin API on its own port, until dropped.
pub struct Api {
    /// Its URL.
    pub url: String,
    /// A token that may write.
    pub token: String,
    store: Store,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    /// Serves a new database.
    pub fn start(database: &Path) -> Self {
        let host = PUBLIC_URL.trim_start_matches("https://").to_owned();
        let store = Store::open(Options {
            targets: TargetPolicy { own_hosts: vec![host], ..TargetPolicy::default() },
            ..Options::new(database)
        })
        .expect("a new database");
        let (_, token) = store.create_token("test".to_owned(), Scope::Write).wait().expect("a token");
        let shutdown = Shutdown::new();
        let requests = Requests::default();
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::new(admin::config(address, Timeouts::default(), &requests)).expect("a port");
        let url = format!("http://{}", listener.addresses()[0]);
        let state = State::new(store.clone(), PUBLIC_URL, Readiness::new(), requests, Registry::default());
        let service = admin::service(state.expect("readable"));
        let thread = listener.start("links-admin", service, &shutdown).expect("a thread");
        Self { url, token, store, shutdown, thread: Some(thread) }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.shutdown.trigger();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        self.store.close();
    }
}
