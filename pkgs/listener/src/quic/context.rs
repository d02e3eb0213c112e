//! What the requests of one connection share.

use std::sync::Arc;

use super::stall::Stall;
use crate::peer::Peer;
use crate::worker::Worker;

/// A connection, as its requests see it.
pub(super) struct Context {
    pub(super) worker: Arc<Worker>,
    pub(super) peer: Peer,
    pub(super) stall: Stall,
}
