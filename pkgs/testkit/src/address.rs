//! Addresses for services that a test starts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port.
const FIRST: u16 = 7000;

/// An address of this machine that no other process uses, and that nobody was given before.
#[must_use]
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST);
    let [.., third, fourth] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 79, third, fourth], NEXT.fetch_add(1, Ordering::Relaxed)))
}
