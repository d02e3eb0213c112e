//! The life of a listener: bind, serve, drain.

mod accept;
mod connection;
mod sockets;
mod worker;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use service::access_log::AccessLog;
use service::ready::{Heartbeats, drains_for};
use service::shutdown::Shutdown;
use service::socket::Address;
use service::{panics, workers};

use crate::config::{Config, EndpointProtocol};
use crate::http_service::{BoxedService, HttpService};
use crate::lifecycle::drain;
use crate::lifecycle::{ConnectionRegistry, DrainTimes};
use crate::limits::{BodyBudget, ConnectionLimiter, ResponseBudget};
use crate::metrics::Metrics;

use crate::error::Error;
use crate::tls::{self, Tls};
use crate::worker_context::WorkerContext;
use sockets::BoundSockets;

/// The default name of workers.
const NAME: &str = "listener";

/// Listening sockets, and what is needed to serve on them.
#[derive(Debug)]
pub struct Listener {
    config: Arc<Config>,
    sockets: BoundSockets,
    tls: Option<Tls>,
    metrics: Metrics,
    heartbeats: Heartbeats,
}

impl Listener {
    /// Listens on all endpoints. From here on, clients can connect and wait.
    ///
    /// # Errors
    /// When an address cannot be listened on or a certificate cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        let tls = match &config.tls {
            Some(files) => Some(Tls::new(files, config.offload.is_some())?),
            None if config.endpoints.iter().any(|endpoint| endpoint.protocol == EndpointProtocol::Tls) => {
                return Err(tls::Error::None.into());
            }
            None => None,
        };
        let workers = workers::count(config.workers);
        let sockets = BoundSockets::new(&config, tls.as_ref(), workers)?;
        let metrics = Metrics::new(workers, ResponseBudget::new(&config.limits));
        let heartbeats = Heartbeats::new(workers);
        Ok(Self { config: Arc::new(config), sockets, tls, metrics, heartbeats })
    }

    /// The addresses in the order of the endpoints, with the ports that the kernel chose.
    pub fn addresses(&self) -> &[Address] {
        &self.sockets.addresses
    }

    /// The workers' counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The workers' heartbeats: each beats four times a second from its start until it has drained. For
    /// [`service::ready::watchdog`].
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// Whether the kernel encrypts connections for [`Config::offload`].
    pub fn offloads(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.offloaded.any())
    }

    /// The certificates, for [`tls::Store::reload`].
    pub fn certificates(&self) -> Option<&Arc<tls::Store>> {
        self.tls.as_ref().map(|tls| &tls.store)
    }

    /// [Serves](Self::serve) on a separate thread called `name`; its workers are `name-0` and so on. A failure, now or
    /// later, is logged and [ends](Shutdown::fail) the process's other listeners too; [`Shutdown::outcome`] returns it.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        self,
        name: &str,
        service: impl HttpService,
        shutdown: &Shutdown,
    ) -> io::Result<thread::JoinHandle<()>> {
        let shutdown = shutdown.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let called = thread::current();
            let called = called.name().unwrap_or(NAME);
            let served = panics::catch(|| self.serve_as(called, service, shutdown.clone()));
            let error: Box<dyn std::error::Error> = match served {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.into(),
                Err(panic) => panic.into(),
            };
            tracing::error!(error = service::exit::chain(&*error), "a listener ended");
            shutdown.fail();
        })
    }

    /// [Starts](Self::start) a service that gets so few requests that an additional allocation or two cost nothing. The
    /// code for all such services is compiled once, in this crate, rather than in each service's crate.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start_boxed(
        self,
        name: &str,
        service: impl HttpService,
        shutdown: &Shutdown,
    ) -> io::Result<thread::JoinHandle<()>> {
        self.start_pointed(name, BoxedService::new(service), shutdown)
    }

    /// Uses no type of the caller, so it is compiled once, in this crate.
    #[inline(never)]
    fn start_pointed(
        self,
        name: &str,
        service: BoxedService,
        shutdown: &Shutdown,
    ) -> io::Result<thread::JoinHandle<()>> {
        self.start(name, service, shutdown)
    }

    /// Serves until `shutdown`, then until running requests have ended, at most [`Config::drain`].
    ///
    /// # Errors
    /// When a worker cannot be started, or ends unexpectedly; the others have drained by then.
    pub fn serve(self, service: impl HttpService, shutdown: Shutdown) -> Result<(), Error> {
        self.serve_as(NAME, service, shutdown)
    }

    fn serve_as(self, name: &str, service: impl HttpService, shutdown: Shutdown) -> Result<(), Error> {
        drains_for(self.config.drain);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Worker)?;
        let (control, drain) = drain::pair();
        let connections = ConnectionLimiter::new(&self.config.limits, self.config.addresses.clone());
        let bodies = BodyBudget::new(&self.config.limits);
        let (ended, mut running) = tokio::sync::mpsc::channel::<()>(1);
        let mut outcome = Ok(());
        let pinned = workers::pinnable(self.sockets.workers.len());
        let times = DrainTimes::new(self.config.drain, self.config.drain_grace);
        let mut threads = Vec::new();
        for (index, sockets) in self.sockets.workers.into_iter().enumerate() {
            let worker = Arc::new(WorkerContext {
                index,
                config: Arc::clone(&self.config),
                connections: Arc::clone(&connections),
                bodies: Arc::clone(&bodies),
                answers: Arc::clone(self.metrics.answers()),
                metrics: self.metrics.clone(),
                drain: drain.clone(),
                registry: ConnectionRegistry::new(times),
                tls: self.tls.clone(),
                heartbeats: self.heartbeats.clone(),
                log: self.config.access_log.as_ref().map(AccessLog::lines),
            });
            let (service, ended) = (service.clone(), Alarm(Some(ended.clone())));
            let runtime = worker::runtime().map_err(Error::Worker)?;
            let thread = thread::Builder::new().name(workers::name(name, index)).spawn(move || {
                if pinned && !workers::pin(index) {
                    tracing::warn!(worker = index, "cannot pin a worker to its CPU");
                }
                let ended = ended;
                let outcome = runtime.block_on(worker::run(worker, sockets, service));
                if outcome.is_ok() {
                    ended.disarm();
                }
                runtime.shutdown_background();
            });
            threads.push(thread.map_err(Error::Worker)?);
        }
        drop(ended);
        runtime.block_on(async {
            tokio::select! {
                () = shutdown.wait() => {}
                // Only sent by a worker that ends before it was told to.
                _ = running.recv() => {
                    tracing::error!("a worker ended by itself");
                    outcome = Err(Error::Ended);
                }
                () = poll_certificates(self.tls.as_ref(), &self.config) => {}
            }
            control.drain(self.config.drain);
            let ended = async { while running.recv().await.is_some() {} };
            if tokio::time::timeout(self.config.drain, ended).await.is_err() {
                control.cut();
            }
        });
        for thread in threads {
            if thread.join().is_err() {
                // The hook of `service::panics` has logged it.
                outcome = Err(Error::Ended);
            }
        }
        outcome
    }
}

/// Reports a worker that ends unexpectedly, even by a panic.
struct Alarm(Option<tokio::sync::mpsc::Sender<()>>);

impl Alarm {
    /// The worker ended as expected.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(ended) = self.0.take() {
            // One report suffices to end all.
            let _ = ended.try_send(());
        }
    }
}

/// Reloads certificates when their files change; never returns.
async fn poll_certificates(tls: Option<&Tls>, config: &Config) {
    let poll = config.tls.as_ref().map(|tls| tls.poll).filter(|poll| *poll > Duration::ZERO);
    let (Some(tls), Some(poll)) = (tls, poll) else { return std::future::pending().await };
    tls.store.poll(poll).await
}
