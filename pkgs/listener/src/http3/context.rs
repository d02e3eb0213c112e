//! The state that the requests of one connection share.

use std::sync::Arc;

use super::send_window::SendWindow;
use super::stall_detector::StallDetector;
use crate::peer::Peer;
use crate::response::SendBuffer;
use crate::worker_context::WorkerContext;

/// A connection, as its requests see it.
pub(super) struct Context {
    pub(super) worker: Arc<WorkerContext>,
    pub(super) peer: Peer,
    pub(super) window: SendWindow,
    /// The response data that its streams have not taken yet.
    pub(super) buffer: Arc<SendBuffer>,
    pub(super) stall: StallDetector,
}
