//! Copies of files that are requested repeatedly, shared by all threads. Their number and size are limited, and unused
//! ones are dropped.
//!
//! A copy is of the file at one time. Later writes are not in it, and a transfer from it ends with the bytes that it
//! started with. When a file changes, its name is looked up again, and the cache treats the result as another file.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use service::metrics::{Family, Registry};
use service::panics;

use super::copy::{CopyContent, CopySlot, FileCopy};
use super::file::OpenFile;
use crate::disk::threads::DiskThreads;
use crate::site::root::FileIdentity;

/// The most copies in a cache, and of file descriptors that they take.
const COPIES: usize = 512;

/// A copy that is unused for this long is dropped.
const UNUSED: Duration = Duration::from_secs(10);

/// The copies.
#[derive(Debug)]
pub struct CopyCache<C> {
    /// In bytes.
    capacity: u64,
    /// The most bytes of one file.
    share: u64,
    inner: Mutex<Inner<C>>,
}

#[derive(Debug)]
struct Inner<C> {
    copies: Vec<Arc<FileCopy<C>>>,
    /// Whether a copy is being made; only one is at a time.
    making: bool,
    /// When unused copies were last dropped.
    tidied: Instant,
}

impl<C: CopyContent> CopyCache<C>
where
    OpenFile: CopySlot<C>,
{
    /// An empty cache of `capacity` bytes, with at most `share` bytes per file.
    pub fn new(capacity: u64, share: u64) -> Self {
        let inner = Inner { copies: Vec::new(), making: false, tidied: Instant::now() };
        Self { capacity, share, inner: Mutex::new(inner) }
    }

    /// Whether a file of this size may have a copy.
    fn takes(&self, size: u64) -> bool {
        size <= self.share
    }

    /// The copy from which to send a file. A file that is requested repeatedly gets one. `tick` and `now` are the
    /// current time.
    pub fn copy_of(
        self: &Arc<Self>,
        file: &OpenFile,
        disk: &DiskThreads,
        tick: u32,
        now: SystemTime,
    ) -> Option<Arc<FileCopy<C>>> {
        if !self.takes(file.identity.size) {
            return None;
        }
        let mut copy = CopySlot::<C>::slot(file).borrow().upgrade();
        if copy.is_none() && file.is_hot(tick) {
            copy = self.find(&file.identity);
            if let Some(copy) = &copy {
                CopySlot::<C>::slot(file).replace(Arc::downgrade(copy));
            } else if file.is_settled(now) && self.reserve(&file.identity) {
                let (this, fd, identity) = (Arc::clone(self), Arc::clone(file.fd()), file.identity);
                disk.run(move |_| this.make(&fd, identity));
            }
        }
        copy.inspect(|copy| copy.used())
    }

    /// The copy that was last found for a file, if it still exists. This does not count as a request for the file.
    pub fn known(&self, file: &OpenFile) -> Option<Arc<FileCopy<C>>> {
        CopySlot::<C>::slot(file).borrow().upgrade().inspect(|copy| copy.used())
    }

    /// Whether there is a copy of a file.
    pub fn has(&self, identity: &FileIdentity) -> bool {
        self.find(identity).is_some()
    }

    /// The copy of a file, if there is one.
    fn find(&self, identity: &FileIdentity) -> Option<Arc<FileCopy<C>>> {
        let inner = self.inner();
        inner.copies.iter().find(|copy| copy.identity == *identity).map(Arc::clone)
    }

    /// Whether to make a copy of this file now.
    fn reserve(&self, identity: &FileIdentity) -> bool {
        let mut inner = self.inner();
        let known = inner.copies.iter().any(|copy| copy.identity == *identity);
        if known || inner.making || !self.takes(identity.size) {
            return false;
        }
        if !self.has_room(&inner, identity.size) {
            inner.copies.retain(|copy| copy.used.load(Ordering::Relaxed));
        }
        inner.making = self.has_room(&inner, identity.size);
        inner.making
    }

    /// Makes the reserved copy. Reads the file, and may wait for the disk.
    fn make(&self, fd: &OwnedFd, identity: FileIdentity) {
        let copy = panics::catch(|| FileCopy::of(fd, identity));
        let mut inner = self.inner();
        inner.making = false;
        match copy {
            Ok(Ok(copy)) => inner.copies.push(Arc::new(copy)),
            Ok(Err(errno)) => tracing::debug!(%errno, "a file cannot be copied"),
            Err(panic) => panic.log("job", "copying a file"),
        }
    }

    fn has_room(&self, inner: &Inner<C>, size: u64) -> bool {
        let descriptors: usize = inner.copies.iter().map(|copy| copy.content.descriptors()).sum();
        bytes(inner) + size <= self.capacity && inner.copies.len().max(descriptors) < COPIES
    }

    /// Occasionally drops unused copies.
    pub fn tidy(&self) {
        let mut inner = self.inner();
        if inner.tidied.elapsed() >= UNUSED {
            inner.tidied = Instant::now();
            inner.copies.retain(|copy| copy.used.swap(false, Ordering::Relaxed));
        }
    }

    /// Drops all copies that are not being sent.
    pub fn clear(&self) {
        self.inner().copies.clear();
    }

    /// Registers how full it is, under this name and description.
    pub fn register(self: &Arc<Self>, registry: &mut Registry, name: &'static str, described: &'static str) {
        let this = Arc::clone(self);
        Family::new(name, described).with(&[], move || bytes(&this.inner()) as f64).register(registry);
    }

    fn inner(&self) -> MutexGuard<'_, Inner<C>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes<C>(inner: &Inner<C>) -> u64 {
    inner.copies.iter().map(|copy| copy.identity.size).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use rustix::io::Errno;

    use super::*;
    use crate::cache::page_coalescer::PIECE_BYTES;
    use crate::cache::pipe_copy::PipeCopy;

    /// A copy of these bytes, in as few pipes as possible, since the kernel may lack large pages for a moment.
    pub fn copy_of(bytes: &[u8]) -> Arc<FileCopy<PipeCopy>> {
        let (fd, identity) = file(bytes);
        let few = bytes.len().div_ceil(16 * PIECE_BYTES);
        for _ in 0..600 {
            let copy: FileCopy<PipeCopy> = FileCopy::of(&fd, identity).expect("a copy");
            if copy.content.descriptors() <= few {
                return Arc::new(copy);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no large pages for {} bytes", bytes.len());
    }

    /// A file of these bytes.
    pub fn file(bytes: &[u8]) -> (OwnedFd, FileIdentity) {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("room");
        let fd = OwnedFd::from(file);
        let (identity, _) = FileIdentity::of(&fd).expect("a file");
        (fd, identity)
    }

    #[test]
    fn room_is_made_of_what_is_not_used() {
        let cache = CopyCache::<PipeCopy>::new(400, 100);
        let files = [file(&[1; 100]), file(&[2; 100]), file(&[3; 100]), file(&[4; 100]), file(&[5; 100])];
        for (fd, identity) in &files[..4] {
            assert!(cache.reserve(identity));
            assert!(!cache.reserve(identity), "one at a time");
            cache.make(fd, *identity);
        }
        let (_, fifth) = &files[4];
        assert!(!cache.reserve(fifth), "all are new");
        for copy in &cache.inner().copies {
            copy.used.store(false, Ordering::Relaxed);
        }
        cache.find(&files[1].1).expect("a copy").used();
        assert!(cache.reserve(fifth));
        let kept = files.iter().map(|(_, identity)| cache.find(identity).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), [false, true, false, false, false]);
        assert!(!cache.takes(101), "a file may have its share");
    }

    #[test]
    fn a_file_that_changed_has_no_copy() {
        let (fd, identity) = file(&[1; 100]);
        rustix::fs::ftruncate(&fd, 50).expect("shorter");
        assert_eq!(FileCopy::<PipeCopy>::of(&fd, identity).err(), Some(Errno::BUSY));
    }
}
