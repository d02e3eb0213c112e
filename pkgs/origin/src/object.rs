//! One version of an object in use: its open file, and which of its blocks are there.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::BLOCK_BYTES;
use crate::blocks::Blocks;
use crate::disk::Files;
use crate::error::Error;
use crate::metadata::Metadata;

/// The result of fetching a block; none while it is being fetched.
pub type Flight = watch::Receiver<Option<Result<Fetched, Error>>>;

/// A block that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// It is in the file.
    Stored,
    /// There is no room for it in the file. These are its bytes, and their offset in the object.
    Passed(u64, Bytes),
}

/// An object's place in the catalogue, which is given back when this is dropped.
pub trait Lease: Send + Sync {
    /// Whether the object was evicted or replaced.
    fn is_gone(&self) -> bool;
}

/// One version of an object.
pub struct Object {
    /// Its metadata.
    pub metadata: Arc<Metadata>,
    files: Files,
    blocks: Blocks,
    /// Its place in the catalogue; none if it isn't stored.
    lease: Option<Box<dyn Lease>>,
    flights: Mutex<HashMap<u32, Flight>>,
    changed: AtomicBool,
    /// Whether the last block that was fetched could not be stored.
    passing: AtomicBool,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whole = self.is_whole();
        f.debug_struct("Object")
            .field("metadata", &self.metadata)
            .field("whole", &whole)
            .finish_non_exhaustive()
    }
}

impl Object {
    /// An object with these files and blocks.
    pub fn new(
        metadata: Arc<Metadata>,
        files: Files,
        blocks: Blocks,
        lease: Option<Box<dyn Lease>>,
    ) -> Arc<Self> {
        let (flights, changed, passing) = Default::default();
        Arc::new(Self { metadata, files, blocks, lease, flights, changed, passing })
    }

    /// Its file. It is sparse if the object is incomplete, and has no bytes if the object isn't stored.
    pub fn file(&self) -> &OwnedFd {
        &self.files.data
    }

    /// Whether all of it is in the file. The file is then never written to again.
    pub fn is_whole(&self) -> bool {
        self.blocks.is_whole()
    }

    /// The end of the bytes that are in the file without a gap from the start of `range`.
    pub fn available(&self, range: &Range<u64>) -> u64 {
        self.blocks.available(range)
    }

    /// Whether a block is in the file.
    pub fn has(&self, index: u32) -> bool {
        self.blocks.has(index)
    }

    /// Whether the origin now has another version, so that missing blocks of this one can't be fetched.
    pub fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Whether it was evicted or replaced. Keeping it open then takes room on the disk from other objects.
    pub fn is_gone(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.is_gone())
    }

    /// Whether fetched blocks are written into its file.
    pub fn is_stored(&self) -> bool {
        self.lease.is_some()
    }

    /// Records that the origin has another version.
    pub(crate) fn change(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether blocks are only passed on at present: the last one that was fetched could not be stored.
    pub(crate) fn is_passing(&self) -> bool {
        self.passing.load(Ordering::Relaxed)
    }

    /// Records whether a block that was fetched could not be stored.
    pub(crate) fn set_passing(&self, passing: bool) {
        self.passing.store(passing, Ordering::Relaxed);
    }

    /// Joins the fetch of a block. If there is none, `begin` starts one and gets the sender of the result.
    pub(crate) fn join(
        &self,
        index: u32,
        begin: impl FnOnce(watch::Sender<Option<Result<Fetched, Error>>>),
    ) -> Flight {
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&index) {
            return flight.clone();
        }
        let (tell, flight) = watch::channel(None);
        flights.insert(index, flight.clone());
        drop(flights);
        begin(tell);
        flight
    }

    /// Whether a block is being fetched.
    pub(crate) fn is_under_way(&self, index: u32) -> bool {
        self.flights().contains_key(&index)
    }

    /// Records that the fetch of a block has ended.
    pub(crate) fn landed(&self, index: u32) {
        self.flights().remove(&index);
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<u32, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs what was written, so that it survives a power cut.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.files.sync()
    }

    /// Writes a block. Returns whether it was the last missing one.
    pub(crate) fn write(&self, index: u32, bytes: &[u8]) -> std::io::Result<bool> {
        self.files.write(index, u64::from(index) * BLOCK_BYTES, bytes)?;
        Ok(self.blocks.add(index))
    }
}
