//! Who else has a say in whom to let in.

use std::any::Any;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

/// Lets clients in by their addresses, next to [`Limits`](crate::Limits): for what a service counts across several listeners.
pub trait Admission: Debug + Send + Sync {
    /// Lets in a connection from `address`, or does not. Its permit is kept for as long as the connection, and is in the
    /// [`Peer`](crate::Peer) of its requests.
    fn admit(&self, address: IpAddr) -> Option<AdmissionPermit>;
}

/// What a connection holds while it is open, of a service's own type: dropping it makes room for the next.
pub type AdmissionPermit = Arc<dyn Any + Send + Sync>;
