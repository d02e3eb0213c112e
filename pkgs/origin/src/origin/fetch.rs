//! Fetches of blocks into the file, one at a time per block.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout_at;

use super::Inner;
use crate::BLOCK_BYTES;
use crate::blocks;
use crate::catalogue::Record;
use crate::disk::FILE_BYTES;
use crate::error::Error;
use crate::object::{Fetched, Flight, Object};
use crate::remote::{Conditional, Part};

/// How many blocks are fetched ahead of the one that is waited for, if there is memory.
const AHEAD: u32 = 4;

/// Bytes in memory, which are counted until they are dropped.
struct Counted {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Where a block comes from.
pub(super) enum Source {
    /// It is already arriving.
    Part(Part),
    /// It has to be requested. If there already is a permit, it is used.
    Ask(Option<OwnedSemaphorePermit>),
}

/// Ends a fetch, even one that panics.
struct FlightGuard {
    object: Arc<Object>,
    index: u32,
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.object.landed(self.index);
    }
}

impl Inner {
    pub(super) async fn fetch(
        this: &Arc<Self>,
        object: &Arc<Object>,
        wanted: Range<u64>,
    ) -> Result<Fetched, Error> {
        let size = object.metadata.size;
        let range = wanted.start..wanted.end.min(size);
        let first = blocks::index(range.start);
        if range.is_empty() || object.has(first) {
            // The following blocks are fetched while this one is sent.
            Self::ahead(this, object, first, &range);
            return Ok(Fetched::Stored);
        }
        if object.has_changed() {
            return Err(Error::Changed);
        }
        let mut flight = this.join(object, first);
        Self::ahead(this, object, first, &range);
        let told = flight.wait_for(Option::is_some).await;
        told.ok().and_then(|told| told.clone()).unwrap_or(Err(Error::Busy))
    }

    fn join(self: &Arc<Self>, object: &Arc<Object>, index: u32) -> Flight {
        object.join(index, |tell| self.begin(Arc::clone(object), index, Source::Ask(None), tell))
    }

    /// Starts fetching the blocks after `first`, as far as they are wanted and not yet in the file, and there is
    /// memory. Does nothing while blocks can't be stored.
    fn ahead(this: &Arc<Self>, object: &Arc<Object>, first: u32, wanted: &Range<u64>) {
        if object.is_whole() || object.is_gone() || object.has_changed() || wanted.is_empty() {
            return;
        }
        // What nobody waits for would be dropped, and fetched again.
        if object.is_passing() {
            return;
        }
        let last = blocks::index(wanted.end - 1).min(first.saturating_add(AHEAD));
        for index in first.saturating_add(1)..=last {
            if object.has(index) || object.is_under_way(index) {
                continue;
            }
            let Ok(permit) = Arc::clone(&this.blocks).try_acquire_owned() else { return };
            object.join(index, |tell| {
                this.begin(Arc::clone(object), index, Source::Ask(Some(permit)), tell);
            });
        }
    }

    /// Starts a fetch, which continues whether or not anybody waits for it.
    pub(super) fn begin(
        self: &Arc<Self>,
        object: Arc<Object>,
        index: u32,
        source: Source,
        tell: watch::Sender<Option<Result<Fetched, Error>>>,
    ) {
        let this = Arc::clone(self);
        let guard = FlightGuard { object: Arc::clone(&object), index };
        self.handle.spawn(async move {
            let mut result = this.fetch_block(&object, index, source).await;
            if let Err(error) = &mut result {
                if matches!(error, Error::Failed(_) | Error::Answer(_)) && this.is_another(&object).await {
                    *error = Error::Changed;
                }
                if *error == Error::Changed {
                    object.change();
                    if let Some(record) = this.catalogue.record_of(&object) {
                        this.drop_record(&record).await;
                    }
                }
                this.metrics.failed(error);
                if let Some(times) = this.fetches_failed.due() {
                    let key = object.metadata.key.as_str();
                    tracing::warn!(key, block = index, %error, times, "a block was not fetched");
                }
            }
            // From here on, a new caller finds the block in the file, or starts another fetch.
            drop(guard);
            tell.send_replace(Some(result));
        });
    }

    /// Whether the origin now has another version for a key than this object.
    async fn is_another(&self, object: &Object) -> bool {
        match self.remote.get_unless(&object.metadata.key, None, false).await {
            Ok(Conditional::Found(metadata, _)) => metadata != *object.metadata,
            Err(error) => error == Error::Missing,
            Ok(Conditional::NotModified) => false,
        }
    }

    async fn fetch_block(
        self: &Arc<Self>,
        object: &Arc<Object>,
        index: u32,
        source: Source,
    ) -> Result<Fetched, Error> {
        let until = Instant::now() + self.remote.block_timeout();
        let fetched = async {
            let permit = |permit: Option<OwnedSemaphorePermit>| async {
                match permit {
                    Some(permit) => Ok(permit),
                    None => Arc::clone(&self.blocks).acquire_owned().await.map_err(|_| Error::Busy),
                }
            };
            let range = blocks::range(index, object.metadata.size);
            let (permit, part) = match source {
                Source::Part(part) => (permit(None).await?, part),
                Source::Ask(given) => {
                    let permit = permit(given).await?;
                    (permit, self.remote.part(&object.metadata, range.clone()).await?)
                }
            };
            if part.range() != range {
                return Err(Error::Answer("it has other bytes than were asked for".to_owned()));
            }
            let bytes = part.read().await?;
            Ok((permit, bytes))
        };
        let (permit, bytes) = timeout_at(until.into(), fetched).await.unwrap_or(Err(Error::TimedOut))?;
        self.metrics.blocks.add(1);
        self.metrics.bytes.add(bytes.len() as u64);
        let (this, of) = (Arc::clone(self), Arc::clone(object));
        let bytes = Bytes::from_owner(Counted { bytes, _permit: permit });
        let block = bytes.clone();
        let stored = self.handle.spawn_blocking(move || this.store(&of, index, &block)).await;
        let is_stored = matches!(stored, Ok(true));
        object.set_passing(!is_stored);
        if is_stored {
            return Ok(Fetched::Stored);
        }
        self.metrics.passed.add(1);
        Ok(Fetched::Passed(u64::from(index) * BLOCK_BYTES, bytes))
    }

    /// Writes a block into the file. Returns whether it is there.
    fn store(&self, object: &Object, index: u32, bytes: &[u8]) -> bool {
        if !self.alone.load(Ordering::Relaxed) {
            return false;
        }
        let Some(record) = self.catalogue.record_of(object) else { return false };
        let room = (bytes.len() as u64).next_multiple_of(FILE_BYTES);
        let (fits, out) = self.catalogue.reserve(&record, room);
        out.iter().for_each(|record| self.forget(record));
        if !fits {
            return false;
        }
        match object.write(index, bytes) {
            Ok(last) => {
                if last && let Err(error) = self.finish(object, &record) {
                    let key = object.metadata.key.as_str();
                    tracing::warn!(key, %error, "an object would not outlast a loss of power");
                }
                true
            }
            Err(error) => {
                self.catalogue.unreserve(&record, room);
                self.no_room(&error);
                false
            }
        }
    }

    /// Syncs a complete object, and records that it survives a power cut.
    fn finish(&self, object: &Object, record: &Record) -> io::Result<()> {
        object.sync()?;
        let _names = self.names();
        // If the object was evicted, its name may belong to another one by now.
        if record.is_gone() {
            return Ok(());
        }
        self.directory.finish(&record.name, &object.metadata, object.file())
    }
}
