//! The ways to send a file's bytes to a socket.
//!
//! `sendfile` and `splice` pass on the kernel's own pages; `copy` uses a worker's buffer; `auto` sends frequently
//! requested files from [copies](crate::cache::pipe_copy). A transfer's turn is limited, so that a client with a fast
//! line doesn't keep a worker from the others.

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
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The buffer of `copy`.
const BUFFER_BYTES: usize = 1 << 20;

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// Everything is sent.
    Done,
    /// The socket is full.
    Blocked,
    /// It is others' turn.
    Yield,
    /// This has to be read from the disk first.
    Cold(Range<u64>),
    /// The start of this has to be fetched from the origin first.
    Missing(Range<u64>),
    /// The ring is reading the next part, or has no room for it yet.
    AwaitingRing,
}

/// Why a transfer can't continue, so that its connection has to be cut.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The client is gone, or the disk failed.
    #[error(transparent)]
    Failed(#[from] Errno),
    /// The file isn't what the head said.
    #[error("the file changed while it was sent")]
    Changed,
    /// The origin failed.
    #[error(transparent)]
    Origin(#[from] origin::Error),
}

/// What the transfers of a worker share.
#[derive(Debug)]
pub struct EngineState {
    pub(super) engine: Engine,
    /// How long a file that was found in the page cache is assumed to stay there, in ticks.
    pub(super) resident_for: u32,
    pub(super) buffer: Vec<u8>,
    /// The pipes to send through.
    pub pipes: PipePool,
    pub(super) responses: ResponseCache,
    /// Reads cold files; none if threads do.
    pub ring: Option<Ring>,
    /// The files that workers have read around the page cache.
    pub(super) ghosts: Arc<GhostQueue>,
    /// The transfer whose turn it is.
    pub token: Token,
}

impl EngineState {
    /// The state for an engine.
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

    /// Drops what is no longer requested.
    pub fn tidy(&mut self, tick: u32) {
        self.responses.tidy(tick);
    }

    /// Whether bytes of files are kept: small files in memory, others in pipes.
    pub fn keeps_bytes(&self) -> bool {
        self.engine == Engine::Auto
    }
}
