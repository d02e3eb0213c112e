//! Addresses to listen on: TCP, Unix or handed over, by systemd or [another process](crate::handover).

mod accept_error;
mod activated;
mod address;
mod bind;
mod handed;
mod kept;
mod listener;
mod network;

pub use accept_error::is_about_one_connection;
pub use address::{Address, AddressError, distinct};
pub use bind::{TcpOptions, bind_tcp, bind_udp_each, bind_unix};
pub use kept::{forget_the_rest, keep_what_was_handed_over, keeps};
pub use listener::Listener;
pub use network::network;

use std::io;
use std::path::PathBuf;

/// Why listening on an address failed. Each variant names the address.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("cannot listen on {address}: {}", reason(error))]
    Bind {
        /// The requested address.
        address: String,
        /// The reason. The text contains it, so it is not a source.
        error: io::Error,
    },
    /// Another process answers at the Unix socket.
    #[error("cannot listen on unix:{}: another process answers there", .0.display())]
    Taken(PathBuf),
    /// Something other than a socket is at the Unix socket's path.
    #[error("cannot listen on unix:{}: the file there is no socket", .0.display())]
    NotSocket(PathBuf),
    /// systemd passed no such socket.
    #[error("no socket named {0:?} was passed by systemd (LISTEN_FDS, LISTEN_FDNAMES)")]
    NotPassed(String),
    /// systemd passed something that does not accept connections.
    #[error("what systemd passed as {0:?} is no listening stream socket")]
    NotListening(String),
}

impl Error {
    /// Whether another process listens there.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Bind { error, .. } if error.kind() == io::ErrorKind::AddrInUse)
    }
}

/// The kernel's reason in words, without its number, and a remedy.
fn reason(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    let words = text.split_once(" (os error").map_or(&*text, |(words, _)| words);
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; stop what listens there ('ss -ltunp' names it), or choose another port"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE, a lower net.ipv4.ip_unprivileged_port_start, or a socket from \
             systemd (systemd:NAME), and Unix sockets a directory that can be written"
        }
        _ => "",
    };
    format!("{words}{remedy}")
}
