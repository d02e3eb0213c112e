//! The plain listener: HTTP/1.1, one thread per core. If the kernel encrypts, HTTP/1.1 over TLS is served here too.
//!
//! Each worker has its own epoll instance, sockets, cache and counters, and shares next to nothing.
//! - [`worker`]: its loop; [`state`]: the parts that a connection may use.
//! - [`connection`]: the life of a connection.
//! - [`write_queue`]: what a connection still has to send.
//! - [`ktls`]: TLS connections that the kernel encrypts.
//! - [`attempts`]: which look-ups a worker tries itself.

mod attempts;
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

/// A guard of an essential thread: if it ends unexpectedly, the server fails.
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

/// Starts one thread per set of sockets: `listeners[i]` belong to worker `i`. With `pinned`, worker `i` stays on this
/// process's `i`-th CPU. A thread ends once its connections have drained.
///
/// # Errors
/// When no thread can be started.
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
