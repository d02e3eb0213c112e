//! What the connections of a worker share.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::ring::Token;
use crate::response::pending::PendingWork;
use crate::site::Site;
use crate::transfer::engine::EngineState;
use crate::worker::completions::CompletionQueue;
use crate::worker::context::{WorkerContext, ticks};

/// What the connections of a worker share.
pub struct WorkerState {
    pub context: WorkerContext,
    pub completions: Arc<CompletionQueue>,
    pub engine: EngineState,
    /// What is to be waited for when those have had their answers whose files are open.
    pub waits: VecDeque<(Token, PendingWork, Arc<Site>)>,
}

/// What a turn takes, whichever connection has it.
pub struct TurnBuffers {
    /// Received bytes.
    pub scratch: Box<[u8]>,
    /// Answers.
    pub out: Vec<u8>,
    /// Where among the received bytes the request begins that is being answered; empty where there is none.
    pub asked: Range<usize>,
}

impl WorkerState {
    /// Begins anew with what is kept between turns: it may be half changed.
    pub fn reset(&mut self) {
        let settings = &self.context.shared.settings;
        // What the ring has under way is whole.
        let ring = self.engine.ring.take();
        self.engine =
            EngineState::new(settings.engine, ticks(settings.revalidate), ring, &self.context.shared.ghosts);
        self.context.reset();
    }
}
