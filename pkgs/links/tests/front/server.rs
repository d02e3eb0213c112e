//! The public listener in this process, on a store and a free port of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use links::cache::Cache;
use links::clicks::Ledger;
use links::code::CodePolicy;
use links::front::{Attempts, Front, Metrics, Settings};
use links::link::NewLink;
use links::store::{Options, Store};
use links::target::TargetPolicy;
use listener::ConnectionLimit;
use service::proxies::Proxies;
use service::shutdown::Shutdown;
use service::socket::{Address, Listener, TcpOptions};

use crate::http::{Answer, Client};

/// A listener with two workers.
pub struct Server {
    pub address: SocketAddr,
    front: Arc<Front>,
    store: Store,
    shutdown: Shutdown,
    threads: Vec<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

/// What the tests start from: nothing configured, and short timeouts.
pub fn settings() -> Settings {
    Settings {
        root_target: None,
        favicon_target: None,
        robots: "User-agent: *\nDisallow:\n".to_owned(),
        redirect_body: false,
        redirect_max_age: 0,
        proxies: Proxies::default(),
        connections: ConnectionLimit::new(1024),
        head_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(20),
        drain_timeout: Duration::from_secs(2),
        click_retention: None,
    }
}

impl Server {
    /// Starts one that behaves like this.
    pub fn start(settings: Settings) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cache = Arc::new(Cache::new(1 << 20));
        let coherent = Arc::clone(&cache);
        let store = Store::open(Options {
            path: directory.path().join("links.db"),
            codes: CodePolicy::default(),
            targets: TargetPolicy::default(),
            queue: 1024,
            on_change: Box::new(move |change| coherent.changed(&change)),
        })
        .expect("a new database");
        let options = TcpOptions { reuse_port: true, ..TcpOptions::default() };
        let tcp = |address| match Address::Tcp(address).listen(&options) {
            Ok(Listener::Tcp(socket)) => socket,
            other => panic!("no TCP socket: {:?}", other.err()),
        };
        let first = tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = first.local_addr().expect("it is bound");
        let shutdown = Shutdown::new();
        let front = Arc::new(Front {
            settings,
            store: store.clone(),
            cache,
            ledger: Ledger::default(),
            attempts: Attempts::default(),
            metrics: Arc::new(Metrics::new(2, 0)),
            shutdown: shutdown.clone(),
        });
        let threads = front.start(vec![vec![first], vec![tcp(address)]], false).expect("readers");
        Self { address, front, store, shutdown, threads, _directory: directory }
    }

    /// Adds a link that differs from a plain one to `https://t.example/` as told.
    pub fn link(&self, code: &str, adjust: impl FnOnce(&mut NewLink)) {
        let mut link = NewLink {
            code: Some(code.to_owned()),
            target: "https://t.example/".to_owned(),
            ..NewLink::default()
        };
        adjust(&mut link);
        self.store.create(link, None).wait().expect("a valid link");
    }

    /// The store behind it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.address).expect("the server listens")
    }

    /// The answer to `bytes` on a connection of their own.
    pub fn answer(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect();
        client.send(bytes).expect("the server reads");
        client.receive().expect("an answer")
    }

    /// Waits until all clicks so far are stored, and asserts how many a link has.
    pub fn assert_clicks(&self, code: &str, expected: u64) {
        // Every worker has entered what it had in the ledger once it has ticked twice from here on: one tick may be
        // under way.
        let start = self.front.metrics.ticks();
        let since = |(now, then): (&u64, &u64)| now - then;
        while self.front.metrics.ticks().iter().zip(&start).map(since).any(|ticks| ticks < 2) {
            std::thread::sleep(Duration::from_millis(20));
        }
        while self.front.ledger.pending() > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The last flush may still be at it: the writer takes one after the other.
        self.store.count(Arc::default()).wait().expect("a store that writes");
        let stored = self.store.reader().expect("a reader").get(code).expect("the link").clicks;
        assert_eq!(stored, expected, "clicks of {code}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.trigger();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a worker panicked");
            }
        }
        self.store.close();
    }
}
