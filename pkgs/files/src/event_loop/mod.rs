//! The plain listener: HTTP/1.1, one thread a core. Where the kernel encrypts, HTTP/1.1 over TLS comes here too.
//!
//! Each worker has an epoll instance, sockets, a cache and counters of its own, and shares next to nothing.
//! - [`worker`]: its loop; [`state`]: what a connection may use of it.
//! - [`connection`]: what one connection goes through.
//! - [`write_queue`]: what a connection has yet to send.
//! - [`ktls`]: connections of TLS that the kernel encrypts.

mod connection;
pub mod ktls;
mod state;
#[cfg(test)]
mod tests;
mod worker;
mod write_queue;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::worker::shared::SharedState;

/// What a thread has that the server cannot do without: where it ends of itself, so does the server, as one that failed.
struct Needed {
    shared: Arc<SharedState>,
    drained: bool,
}

impl Drop for Needed {
    fn drop(&mut self) {
        if !self.drained {
            self.shared.shutdown.fail();
            self.shared.wake();
        }
    }
}

/// Starts one thread per set of sockets: `listeners[i]` are those of worker `i`. With `pinned`, worker `i`
/// stays on the `i`-th CPU of this process. A thread ends when its connections have drained.
///
/// # Errors
/// When the system has no more threads.
pub fn start(
    shared: &Arc<SharedState>,
    listeners: Vec<Vec<TcpListener>>,
    pinned: bool,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let start = |(index, sockets)| {
        let shared = Arc::clone(shared);
        std::thread::Builder::new().name(service::workers::name("files", index)).spawn(move || {
            if pinned && !service::workers::pin(index) {
                tracing::warn!(worker = index, "cannot pin a worker to its CPU");
            }
            let mut needed = Needed { shared: Arc::clone(&shared), drained: false };
            match worker::run(&shared, index, sockets) {
                Ok(()) => needed.drained = true,
                Err(error) => tracing::error!(worker = index, %error, "a worker ended"),
            }
        })
    };
    listeners.into_iter().enumerate().map(start).collect()
}
