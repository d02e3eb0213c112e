//! The ways to send a file's bytes to a socket.
//!
//! `sendfile` and `splice` pass on the kernel's own pages; `copy` uses a buffer of the worker; `auto` takes frequently
//! requested files from [copies](crate::cache::pipe_copy). A turn of a transfer is bounded, so that one client with a
//! fast line does not keep a worker from the others.

use std::ops::Range;
use std::sync::Arc;

use clap::ValueEnum;
use rustix::io::Errno;

use crate::cache::pipes::PipePool;
use crate::cache::responses::ResponseCache;
use crate::disk::admission::GhostQueue;
use crate::disk::ring::{Ring, Token};

/// How files' bytes are sent to sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Small files from memory together with their heads, frequently requested files from pipes, others by sendfile.
    /// The fastest in the bench.
    Auto,
    /// sendfile(2), for files of all sizes.
    Sendfile,
    /// splice(2) through a pipe.
    Splice,
    /// pread(2) and send(2).
    Copy,
}

impl Engine {
    /// As the command line has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The buffer of `copy`.
const BUFFER_BYTES: usize = 1 << 20;

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// All is sent.
    Done,
    /// The socket is full.
    Blocked,
    /// Others are due.
    Yield,
    /// This has to be read from the disk first.
    Cold(Range<u64>),
    /// What begins this has to be fetched from the origin first.
    Missing(Range<u64>),
    /// The ring is reading what is next, or has no room for that yet.
    AwaitingRing,
}

/// Why a transfer cannot go on: the connection has to be cut.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The client is gone, or the disk is.
    #[error(transparent)]
    Failed(#[from] Errno),
    /// The file is not what its head said.
    #[error("the file changed while it was sent")]
    Changed,
    /// The origin fails.
    #[error(transparent)]
    Origin(#[from] origin::Error),
}

/// What the transfers of a worker share.
#[derive(Debug)]
pub struct EngineState {
    pub(super) engine: Engine,
    /// How long a file that is found in the page cache is taken to stay there, in ticks.
    pub(super) resident_for: u32,
    pub(super) buffer: Vec<u8>,
    /// What is sent through.
    pub pipes: PipePool,
    pub(super) responses: ResponseCache,
    /// What reads what is cold; none where threads do.
    pub ring: Option<Ring>,
    /// What was read around the page cache, by any worker.
    pub(super) ghosts: Arc<GhostQueue>,
    /// Whose turn it is.
    pub token: Token,
}

impl EngineState {
    /// Those of an engine.
    pub fn new(engine: Engine, resident_for: u32, ring: Option<Ring>, ghosts: &Arc<GhostQueue>) -> Self {
        let buffer = if engine == Engine::Copy { vec![0; BUFFER_BYTES] } else { Vec::new() };
        let pipes = PipePool::new(engine == Engine::Splice);
        Self {
            engine,
            resident_for,
            buffer,
            pipes,
            responses: ResponseCache::default(),
            ring,
            ghosts: Arc::clone(ghosts),
            token: 0,
        }
    }

    /// Lets go of what nobody asks for any more.
    pub fn tidy(&mut self, tick: u32) {
        self.responses.tidy(tick);
    }

    /// Whether bytes of files are kept: of small ones in memory, of others in pipes.
    pub fn keeps_bytes(&self) -> bool {
        self.engine == Engine::Auto
    }
}
