//! Who else has a say in whom to let in.

use std::any::Any;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

/// Lets clients in by their addresses, next to [`Limits`](crate::Limits): for what a service counts across several listeners.
pub trait Admission: Debug + Send + Sync {
    /// Lets in a connection from `address`, or does not. What it is let in as is kept for as long as the
    /// connection registry, and is in the [`Peer`](crate::Peer) of its requests.
    fn admit(&self, address: IpAddr) -> Option<Guest>;
}

/// What a connection was let in as.
pub type Guest = Arc<dyn Any + Send + Sync>;
