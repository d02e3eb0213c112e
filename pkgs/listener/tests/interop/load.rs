//! Clients that send requests without pause while something happens to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::client::{ClientProtocol, Failure, Target};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is requested.
#[derive(Clone, Copy, Debug)]
pub struct LoadRequest {
    pub path: &'static str,
    /// The answer's status.
    pub status: u16,
    /// The answer's body.
    pub body: &'static str,
    /// How often on a connection.
    pub times: u64,
}

impl LoadRequest {
    /// A path that is answered with 200, requested endlessly.
    pub fn of(path: &'static str, body: &'static str) -> Self {
        Self { path, status: 200, body, times: u64::MAX }
    }
}

/// What the clients share.
#[derive(Default)]
pub struct State {
    /// Requests that were answered as expected.
    pub answered: AtomicU64,
    /// Set when the server was told to stop: from then on, failures to connect are no surprise.
    leaving: AtomicBool,
    /// Set when the clients should end.
    done: AtomicBool,
}

/// Several clients with one protocol.
pub struct Load {
    pub state: Arc<State>,
    clients: JoinSet<Result<(), String>>,
}

impl Load {
    /// This many clients, each with one connection at a time, and one request on it.
    pub fn start(target: &Target, protocol: ClientProtocol, clients: usize, request: LoadRequest) -> Self {
        let state = Arc::new(State::default());
        let mut set = JoinSet::new();
        for _ in 0..clients {
            set.spawn(run(target.clone(), protocol, request, Arc::clone(&state)));
        }
        Self { state, clients: set }
    }

    /// Waits for this many more answers.
    pub async fn answers(&self, more: u64) {
        let until = self.state.answered.load(Relaxed) + more;
        let enough = async {
            while self.state.answered.load(Relaxed) < until {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, enough).await.expect("clients are answered");
    }

    /// From now on the server may refuse connections.
    pub fn leaving(&self) {
        self.state.leaving.store(true, Relaxed);
    }

    /// Ends the clients, and panics if one of their requests has failed.
    pub async fn end(mut self) {
        self.state.done.store(true, Relaxed);
        let ended = async {
            while let Some(client) = self.clients.join_next().await {
                client.expect("no client panics").expect("no request fails");
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("clients end");
    }
}

async fn run(
    target: Target,
    protocol: ClientProtocol,
    request: LoadRequest,
    state: Arc<State>,
) -> Result<(), String> {
    while !state.done.load(Relaxed) {
        let late = state.leaving.load(Relaxed);
        let mut connection = match target.connect(protocol).await {
            Ok(connection) => connection,
            // It was told to stop while this was in progress.
            Err(_) if state.leaving.load(Relaxed) => return Ok(()),
            Err(error) => return Err(format!("{protocol:?}: cannot connect: {error}")),
        };
        for _ in 0..request.times {
            if state.done.load(Relaxed) {
                break;
            }
            match connection.ask(request.path).await {
                Ok((status, told)) if status == request.status && told == request.body => {
                    state.answered.fetch_add(1, Relaxed);
                }
                Ok((status, told)) => return Err(format!("{protocol:?}: {status} and {} bytes", told.len())),
                Err(Failure::Unprocessed) => break,
                // Nobody was promised that this connection would be served.
                Err(Failure::Lost(_)) if late => return Ok(()),
                Err(Failure::Lost(error)) => return Err(format!("{protocol:?}: {error}")),
            }
        }
    }
    Ok(())
}
