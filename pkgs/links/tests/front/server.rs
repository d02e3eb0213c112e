//! The public listener in this process, with its own store and a free port.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use links::cache::Cache;
use links::clicks::ClickBuffer;
use links::front::{
    Attempts, Front, HttpService, Limits, Metrics, Retention, Settings, TlsPolicy, UnknownHost,
};
use links::link::NewLink;
use links::store::{Options, Store};
use listener::{Config, Endpoint, Listener, WithFastPath};
use service::shutdown::Shutdown;
use service::socket::Address;

use crate::http::{Answer, Client};

/// The number of workers.
const WORKERS: usize = 2;

/// A listener with two workers.
pub struct Server {
    pub address: SocketAddr,
    front: Arc<Front>,
    store: Store,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
    /// Triggered once the workers' last clicks are in the `click_buffer`.
    drained: Shutdown,
    flushing: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

/// The settings from which tests start: nothing is configured.
pub fn settings() -> Settings {
    Settings {
        root_target: None,
        unknown_host: UnknownHost::default(),
        favicon_target: None,
        robots: "User-agent: *\nDisallow:\n".to_owned(),
        redirect_body: false,
        redirect_max_age: 0,
        click_retention: Retention { days: None, hours: NonZero::<u32>::MIN },
    }
}

/// The limits from which tests start.
pub fn limits() -> Limits {
    Limits {
        connections: 1024,
        connections_per_address: 0,
        head_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(20),
        drain_timeout: Duration::from_secs(2),
    }
}

impl Server {
    /// Starts a server with these settings.
    pub fn start(settings: Settings) -> Self {
        Self::serve(settings, &limits())
    }

    /// Starts a server with these limits for visitors.
    pub fn limited(limits: &Limits) -> Self {
        Self::serve(settings(), limits)
    }

    fn serve(settings: Settings, limits: &Limits) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cache = Arc::new(Cache::new(1 << 20));
        let coherent = Arc::clone(&cache);
        let store = Store::open(Options {
            on_change: Box::new(move |change| coherent.changed(&change)),
            ..Options::new(&directory.path().join("links.db"))
        })
        .expect("a new database");
        let shutdown = Shutdown::new();
        let front = Arc::new(Front {
            settings,
            store: store.clone(),
            cache,
            click_buffer: ClickBuffer::default(),
            geoip: None,
            attempts: Attempts::default(),
            metrics: Arc::new(Metrics::new(WORKERS)),
            shutdown: shutdown.clone(),
        });
        let listener = Listener::new(Config {
            endpoints: vec![Endpoint::plain("127.0.0.1:0".parse().expect("an address"))],
            workers: NonZero::new(WORKERS),
            ..limits.config()
        })
        .expect("it listens");
        let Address::Tcp(address) = listener.addresses()[0] else { panic!("it is one of TCP") };
        let service = HttpService::new(Arc::clone(&front), WORKERS, TlsPolicy::default()).expect("readers");
        let service = WithFastPath { fast: service.clone(), service };
        let thread = listener.start("links", service, &shutdown).expect("a thread");
        let drained = Shutdown::new();
        let flushing = std::thread::spawn({
            let (front, drained) = (Arc::clone(&front), drained.clone());
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                runtime.expect("a clock").block_on(front.flush_until(drained.wait()));
            }
        });
        let (thread, flushing) = (Some(thread), Some(flushing));
        Self { address, front, store, shutdown, thread, drained, flushing, _directory: directory }
    }

    /// Adds a link to `https://t.example/`, changed by `adjust`.
    pub fn link(&self, code: &str, adjust: impl FnOnce(&mut NewLink)) {
        let mut link = NewLink {
            code: Some(code.to_owned()),
            target: "https://t.example/".to_owned(),
            ..NewLink::default()
        };
        adjust(&mut link);
        self.store.create(link, None).wait().expect("a valid link");
    }

    /// The server's store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.address).expect("the server listens")
    }

    /// The answer to `bytes` on a new connection.
    pub fn answer(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect();
        client.send(bytes).expect("the server reads");
        client.receive().expect("an answer")
    }

    /// Waits until all clicks so far are stored, and asserts how many a link has.
    pub fn assert_clicks(&self, code: &str, expected: u64) {
        // Once a worker has ticked twice from here on, it has put all its clicks into the click buffer. One tick may be
        // in progress now.
        let start = self.front.metrics.ticks();
        let ticked = |(then, now): (&u64, u64)| *then == 0 || now - then >= 2;
        while !start.iter().zip(self.front.metrics.ticks()).all(ticked) {
            std::thread::sleep(Duration::from_millis(20));
        }
        while self.front.click_buffer.pending() > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The last flush may still be running. The writer does its jobs one after the other.
        self.store.count(Arc::default()).wait().expect("a store that writes");
        let stored = self.store.reader().expect("a reader").get(code).expect("the link").clicks;
        assert_eq!(stored, expected, "clicks of {code}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.trigger();
        let ended = self.thread.take().map(JoinHandle::join);
        self.drained.trigger();
        let flushed = self.flushing.take().map(JoinHandle::join);
        self.store.close();
        let well = self.shutdown.outcome().is_ok() && [ended, flushed].iter().flatten().all(Result::is_ok);
        assert!(well || std::thread::panicking(), "a worker panicked");
    }
}
