//! One worker: a runtime, its sockets and everything it need not share.

use std::io;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::accept;
use crate::config::{Config, Runtime};
use crate::drain::Drain;
use crate::limits::Connections;
use crate::metrics::{Metrics, WorkerMetrics};
use crate::quic;
use crate::service_trait::HttpService;
use crate::sockets::Sockets;
use crate::tls::Tls;

/// What the connections of a worker share.
#[derive(Debug)]
pub struct Worker {
    /// Its number.
    pub index: usize,
    /// How the listener behaves.
    pub config: Arc<Config>,
    /// The connections of all workers.
    pub connections: Arc<Connections>,
    /// What all workers count.
    pub metrics: Metrics,
    /// Whether to go on.
    pub drain: Drain,
    /// Certificates.
    pub tls: Option<Tls>,
}

impl Worker {
    /// What this worker counts.
    pub fn counts(&self) -> &WorkerMetrics {
        self.metrics.worker(self.index)
    }
}

/// The runtime of a worker.
pub fn runtime(kind: &Runtime) -> io::Result<tokio::runtime::Runtime> {
    match kind {
        Runtime::PerCore(_) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        Runtime::MultiThread(threads) => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(service::workers::count(*threads))
            .thread_name("listener")
            .enable_all()
            .build(),
    }
}

/// Serves until draining has ended.
pub async fn run(worker: Arc<Worker>, sockets: Sockets, service: impl HttpService) {
    let mut serving = JoinSet::new();
    for socket in sockets.stream {
        serving.spawn(accept::run(Arc::clone(&worker), socket, service.clone()));
    }
    for socket in sockets.quic {
        serving.spawn(quic::serve(Arc::clone(&worker), socket, service.clone()));
    }
    while serving.join_next().await.is_some() {}
}
