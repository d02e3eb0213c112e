//! The admin API in this process.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use links::admin::{self, State};
use links::code::CodePolicy;
use links::store::{Options, Scope, Store};
use links::target::TargetPolicy;
use service::metrics::Registry;
use service::ready::Readiness;
use service::shutdown::Shutdown;
use service::socket::{Listener, TcpOptions, bind_tcp};

use super::PUBLIC_URL;

/// The admin API on a port of its own, until dropped.
pub struct Api {
    /// Where it is.
    pub url: String,
    /// A token that may write.
    pub token: String,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    /// Serves a new database.
    pub fn start(database: &Path) -> Self {
        let host = PUBLIC_URL.trim_start_matches("https://").to_owned();
        let store = Store::open(Options {
            path: database.to_owned(),
            codes: CodePolicy::default(),
            targets: TargetPolicy { own_hosts: vec![host], ..TargetPolicy::default() },
            queue: 1024,
            on_change: Box::new(|_| {}),
        })
        .expect("a new database");
        let (_, token) = store.create_token("test".to_owned(), Scope::Write).wait().expect("a token");
        let shutdown = Shutdown::new();
        let until = shutdown.clone();
        let (address, addresses) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let listener = bind_tcp(([127, 0, 0, 1], 0).into(), &TcpOptions::default()).expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("bound"));
            let state = State::new(store.clone(), PUBLIC_URL, Readiness::new(), Registry::default());
            let state = Arc::new(state.expect("readable"));
            address.send(url).expect("the test waits");
            let serving = admin::serve(vec![Listener::Tcp(listener)], None, state, 1, until);
            actix_web::rt::System::new().block_on(serving).expect("serves");
            store.close();
        });
        let url = addresses.recv().expect("it starts");
        Self { url, token, shutdown, thread: Some(thread) }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.shutdown.trigger();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
