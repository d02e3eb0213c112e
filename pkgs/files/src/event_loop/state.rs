//! The state that a worker's connections share.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::ring::Token;
use crate::response::pending::PendingWork;
use crate::site::Site;
use crate::transfer::engine::EngineState;
use crate::worker::completions::CompletionQueue;
use crate::worker::context::{WorkerContext, ticks};

/// The state that a worker's connections share.
pub struct WorkerState {
    pub context: WorkerContext,
    pub completions: Arc<CompletionQueue>,
    pub engine: EngineState,
    /// What to wait for after connections with open files have had their answers.
    pub waits: VecDeque<(Token, PendingWork, Arc<Site>)>,
}

/// Buffers for a turn of any connection.
pub struct TurnBuffers {
    /// Received bytes.
    pub scratch: Box<[u8]>,
    /// Answers.
    pub out: Vec<u8>,
    /// The position of the request being answered among the received bytes; empty if there is none.
    pub asked: Range<usize>,
}

impl WorkerState {
    /// Resets what is kept between turns, since it may be half changed.
    pub fn reset(&mut self) {
        let settings = &self.context.shared.settings;
        // The ring's running reads are consistent.
        let ring = self.engine.ring.take();
        self.engine =
            EngineState::new(settings.engine, ticks(settings.revalidate), ring, &self.context.shared.ghosts);
        self.context.reset();
    }
}
