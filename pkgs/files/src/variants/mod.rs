//! Compressed versions of files, made once by separate threads and kept in memory.
//!
//! For all code that sends it, a variant is a file: an anonymous one (memfd_create(2)) that nothing writes to any more.
//! Conditions, ranges, copies and kernel encryption therefore work as for other files. It belongs to a file in one
//! state ([`FileIdentity`]); a changed file has none. The threads read and compress a file whole, so the rules' size
//! limit also limits the time. Requests for a variant that is being made wait for it together.

mod compress;

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use aws_lc_rs::digest;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::pread;
use service::metrics::{Family, Registry};
use service::panics;

use compress::compress;

use crate::http::encoding::Coding;
use crate::site::root::FileIdentity;
use crate::threads::health::ThreadHealth;
use crate::threads::pool::ThreadPool;

/// Threads that compress.
const THREADS: usize = 2;

/// Files that wait for a thread; any more are sent as they are.
const WAITING: usize = 64;

/// Requests that wait for the same variant; any more get the file as it is. Those that have ended meanwhile count too.
const WAITERS: usize = 4096;

/// How many variants are kept, each of which takes a file descriptor, including notes on files that don't get smaller.
const MOST: usize = 1024;

/// If an encoding is hardly smaller, the file is sent as it is: an encoding may have at most this many hundredths of
/// its size.
const WORTH: u64 = 95;

/// A file in one state, in one encoding.
type Key = (FileIdentity, Coding);

/// The encodings that were made, for all workers.
pub struct VariantCache {
    /// In bytes.
    capacity: u64,
    pool: ThreadPool,
    inner: Mutex<Inner>,
    /// How many were evicted.
    evictions: AtomicU64,
}

#[derive(Default)]
struct Inner {
    made: HashMap<Key, Made>,
    /// Requests that wait for what is being made.
    making: HashMap<Key, Vec<Box<dyn FnOnce() + Send>>>,
    /// Bytes reserved for those.
    reserved: u64,
    /// Evicted variants that may still be being sent.
    gone: Vec<(Weak<OwnedFd>, u64)>,
}

#[derive(Debug)]
enum Made {
    Variant(Arc<Variant>),
    /// It isn't worth it; the flag says whether that was recently asked.
    Useless(AtomicBool),
}

/// An encoding of a file.
#[derive(Debug)]
pub struct Variant {
    /// The bytes.
    pub fd: Arc<OwnedFd>,
    /// Their state as a file.
    pub identity: FileIdentity,
    /// A digest of the bytes, which tells apart variants that differ in nothing else.
    pub digest: u64,
    used: AtomicBool,
    gone: AtomicBool,
}

/// What is known about an encoding.
#[derive(Debug)]
pub enum VariantLookup {
    /// It is there.
    Ready(Arc<Variant>),
    /// It isn't worth it.
    NotWorthIt,
    /// Nothing yet.
    Absent,
}

impl fmt::Debug for VariantCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VariantCache").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Variant {
    /// Counts it as used. Returns whether it may be used, which it may not after its eviction.
    pub fn is_kept(&self) -> bool {
        mark(&self.used);
        !self.was_evicted()
    }

    /// Whether it was evicted.
    pub fn was_evicted(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// Sets a flag that is usually already set, since writing would take the cache line from other workers.
fn mark(used: &AtomicBool) {
    if !used.load(Ordering::Relaxed) {
        used.store(true, Ordering::Relaxed);
    }
}

impl VariantCache {
    /// An empty cache for this many bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            pool: ThreadPool::new("files-code", THREADS, WAITING),
            inner: Mutex::default(),
            evictions: AtomicU64::new(0),
        }
    }

    /// What is known about an encoding of a file.
    pub fn get(&self, identity: &FileIdentity, coding: Coding) -> VariantLookup {
        // Nothing is ever made, so there is no need to wait to find that out.
        if self.capacity == 0 {
            return VariantLookup::NotWorthIt;
        }
        match self.inner().made.get(&(*identity, coding)) {
            None => VariantLookup::Absent,
            Some(Made::Variant(variant)) => {
                mark(&variant.used);
                VariantLookup::Ready(Arc::clone(variant))
            }
            Some(Made::Useless(used)) => {
                mark(used);
                VariantLookup::NotWorthIt
            }
        }
    }

    /// Makes an encoding of a file. `done` is called when it is there, or won't be.
    pub fn make(
        self: &Arc<Self>,
        fd: Arc<OwnedFd>,
        identity: FileIdentity,
        coding: Coding,
        done: impl FnOnce() + Send + 'static,
    ) {
        let key = (identity, coding);
        let mut inner = self.inner();
        if let Some(waiting) = inner.making.get_mut(&key).filter(|waiting| waiting.len() < WAITERS) {
            return waiting.push(Box::new(done));
        }
        if inner.making.contains_key(&key)
            || inner.made.contains_key(&key)
            || !self.reserve(&mut inner, identity.size)
        {
            drop(inner);
            return done();
        }
        inner.making.insert(key, vec![Box::new(done)]);
        drop(inner);
        let this = Arc::clone(self);
        if !self.pool.run(move || this.finish(key, panics::catch(|| variant(&fd, &identity, coding)))) {
            self.finish(key, Ok(None));
        }
    }

    /// Takes what was made; none if it couldn't be made at the moment.
    fn finish(&self, key: Key, made: Result<Option<Made>, panics::Panic>) {
        let made = made.unwrap_or_else(|panic| {
            panic.log("job", "compressing a file");
            None
        });
        let mut inner = self.inner();
        inner.reserved -= key.0.size;
        inner.made.extend(made.map(|made| (key, made)));
        let waiting = inner.making.remove(&key).unwrap_or_default();
        drop(inner);
        waiting.into_iter().for_each(|done| done());
    }

    /// Reserves this many bytes for a variant that is to be made. Returns false if there is no room.
    fn reserve(&self, inner: &mut Inner, size: u64) -> bool {
        inner.gone.retain(|(fd, _)| fd.strong_count() > 0);
        // Evicts those that weren't used since the last round; those that were get a second chance.
        for _ in 0..2 {
            if self.has_room(inner, size) {
                break;
            }
            let mut over = (inner.bytes() + size).saturating_sub(self.capacity);
            let mut crowd = (inner.made.len() + inner.making.len() + 1).saturating_sub(MOST);
            let Inner { made, gone, .. } = &mut *inner;
            made.retain(|_, made| {
                if over == 0 && crowd == 0 {
                    return true;
                }
                let (used, size) = match made {
                    Made::Variant(variant) => (&variant.used, variant.identity.size),
                    Made::Useless(used) => (&*used, 0),
                };
                if used.swap(false, Ordering::Relaxed) {
                    return true;
                }
                if let Made::Variant(variant) = made {
                    variant.gone.store(true, Ordering::Relaxed);
                    gone.push((Arc::downgrade(&variant.fd), size));
                    self.evictions.fetch_add(1, Ordering::Relaxed);
                }
                over = over.saturating_sub(size);
                crowd = crowd.saturating_sub(1);
                false
            });
            inner.gone.retain(|(fd, _)| fd.strong_count() > 0);
        }
        let has_room = self.has_room(inner, size);
        inner.reserved += if has_room { size } else { 0 };
        has_room
    }

    fn has_room(&self, inner: &Inner, size: u64) -> bool {
        inner.bytes() + size <= self.capacity && inner.made.len() + inner.making.len() < MOST
    }

    /// Drops all of them except those that are being sent, since there are too few file descriptors.
    pub fn clear(&self) {
        let mut inner = self.inner();
        let Inner { made, gone, .. } = &mut *inner;
        for made in made.drain().map(|(_, made)| made) {
            if let Made::Variant(variant) = made {
                variant.gone.store(true, Ordering::Relaxed);
                gone.push((Arc::downgrade(&variant.fd), variant.identity.size));
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many were evicted.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// How long its threads have been at their jobs.
    pub fn health(&self) -> &ThreadHealth {
        self.pool.health()
    }

    /// Shows how full it is in `registry`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let this = Arc::clone(self);
        let described = "Bytes of codings that were made of files, and of those that are being made";
        Family::new("linerate_files_variant_bytes", described)
            .with(&[], move || this.inner().bytes() as f64)
            .register(registry);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn bytes(&self) -> u64 {
        let made = self.made.values().map(|made| match made {
            Made::Variant(variant) => variant.identity.size,
            Made::Useless(_) => 0,
        });
        let gone = self.gone.iter().filter(|(fd, _)| fd.strong_count() > 0).map(|(_, size)| size);
        made.chain(gone.copied()).sum::<u64>() + self.reserved
    }
}

/// An encoding of a file; none if the file can't be read, or has changed.
fn variant(fd: &OwnedFd, identity: &FileIdentity, coding: Coding) -> Option<Made> {
    let mut bytes = vec![0; usize::try_from(identity.size).ok()?];
    let mut at = 0;
    while at < bytes.len() {
        match pread(fd, &mut bytes[at..], at as u64).ok()? {
            0 => return None,
            count => at += count,
        }
    }
    // Checked after reading: what was read during a change belongs to no state.
    if !identity.is_unchanged(fd) {
        return None;
    }
    let coded = compress(&bytes, coding).ok()?;
    if coded.len() as u64 * 100 > identity.size * WORTH {
        return Some(Made::Useless(AtomicBool::new(true)));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create(c"variant", flags).ok()?;
    let mut file = std::fs::File::from(fd);
    file.write_all(&coded).ok()?;
    let fd = OwnedFd::from(file);
    let seals = SealFlags::SEAL | SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&fd, seals).ok()?;
    let identity = FileIdentity::of(&fd).ok()?.0;
    let digest = digest::digest(&digest::SHA256, &coded);
    let digest = digest.as_ref().first_chunk().copied().map_or(0, u64::from_be_bytes);
    let (used, gone) = (AtomicBool::new(true), AtomicBool::new(false));
    Some(Made::Variant(Arc::new(Variant { fd: Arc::new(fd), identity, digest, used, gone })))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::cache::copies::tests::file;

    /// An encoding that is this file.
    pub fn variant_of(fd: &Arc<OwnedFd>, identity: FileIdentity) -> Arc<Variant> {
        let (used, gone) = Default::default();
        Arc::new(Variant { fd: Arc::clone(fd), identity, digest: 0, used, gone })
    }

    /// Evicts an encoding.
    pub fn evict(variant: &Variant) {
        variant.gone.store(true, Ordering::Relaxed);
    }

    fn text(number: u8) -> Vec<u8> {
        format!("{number} of many lines\n").repeat(1000).into_bytes()
    }

    /// Makes an encoding, and waits for it.
    fn make(
        variants: &Arc<VariantCache>,
        (fd, identity): &(Arc<OwnedFd>, FileIdentity),
        coding: Coding,
    ) -> VariantLookup {
        let (give, done) = channel();
        variants.make(Arc::clone(fd), *identity, coding, move || give.send(()).expect("it is waited for"));
        done.recv().expect("it is done");
        variants.get(identity, coding)
    }

    fn shared(bytes: &[u8]) -> (Arc<OwnedFd>, FileIdentity) {
        let (fd, identity) = file(bytes);
        (Arc::new(fd), identity)
    }

    #[test]
    fn a_coding_has_the_bytes_of_the_file_and_the_same_twice() {
        let file = shared(&text(1));
        for coding in Coding::ALL {
            let made = [(); 2].map(|()| match make(&Arc::new(VariantCache::new(1 << 20)), &file, coding) {
                VariantLookup::Ready(variant) => variant,
                other => panic!("{coding:?}: {other:?}"),
            });
            assert_eq!(made[0].digest, made[1].digest, "{coding:?}");
            let mut coded = vec![0; made[0].identity.size as usize];
            assert_eq!(pread(&made[0].fd, &mut coded[..], 0), Ok(coded.len()));
            let mut plain = Vec::new();
            match coding {
                Coding::Brotli => drop(brotli::BrotliDecompress(&mut &coded[..], &mut plain)),
                Coding::Zstd => plain = zstd::bulk::decompress(&coded, 1 << 20).expect("zstd"),
                Coding::Gzip => drop(flate2::read::GzDecoder::new(&coded[..]).read_to_end(&mut plain)),
            }
            assert!(plain == text(1), "{coding:?}");
            assert!(rustix::io::pwrite(&made[0].fd, b"x", 0).is_err(), "nothing writes to it any more");
        }
    }

    #[test]
    fn what_does_not_become_smaller_or_has_changed_has_none() {
        let variants = Arc::new(VariantCache::new(1 << 20));
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(5000)
        .collect();
        assert!(matches!(make(&variants, &shared(&noise), Coding::Gzip), VariantLookup::NotWorthIt));
        let file = shared(&text(1));
        rustix::fs::ftruncate(&file.0, 50).expect("shorter");
        assert!(matches!(make(&variants, &file, Coding::Gzip), VariantLookup::Absent));
        assert_eq!(variants.inner().reserved, 0);
    }

    #[test]
    fn room_is_made_of_what_nobody_asks_for_and_counts_while_it_is_sent() {
        let files = [1, 2, 3].map(|number| shared(&text(number)));
        let size = files[0].1.size;
        let coded = match make(&Arc::new(VariantCache::new(1 << 20)), &files[0], Coding::Zstd) {
            VariantLookup::Ready(variant) => variant.identity.size,
            other => panic!("{other:?}"),
        };
        // Room for one that is being made, and for two that are there.
        let variants = Arc::new(VariantCache::new(size + 2 * coded));
        let VariantLookup::Ready(first) = make(&variants, &files[0], Coding::Zstd) else {
            panic!("there is room")
        };
        let VariantLookup::Ready(_) = make(&variants, &files[1], Coding::Zstd) else {
            panic!("there is room")
        };
        // Held only by a transfer.
        for number in 0..20 {
            let file = shared(&text(number));
            make(&variants, &file, Coding::Zstd);
        }
        assert!(first.was_evicted());
        assert!(variants.evictions() > 0);
        assert!(matches!(variants.get(&files[0].1, Coding::Zstd), VariantLookup::Absent));
        assert!(variants.inner().bytes() <= variants.capacity);
        variants.clear();
        drop(first);
        assert_eq!(variants.inner().bytes(), 0);
        let too_large = shared(&vec![b'x'; 2 * size as usize]);
        assert!(matches!(make(&variants, &too_large, Coding::Zstd), VariantLookup::Absent));
    }

    #[test]
    fn whoever_comes_after_too_many_does_not_wait() {
        let variants = Arc::new(VariantCache::new(1 << 20));
        let (fd, identity) = shared(&text(1));
        let key = (identity, Coding::Gzip);
        // As long as the test wants.
        variants.inner().making.insert(key, Vec::new());
        variants.inner().reserved = identity.size;
        let (give, done) = channel();
        let ask = || {
            let give = give.clone();
            variants.make(Arc::clone(&fd), identity, Coding::Gzip, move || {
                give.send(()).expect("it is waited for");
            });
        };
        (0..WAITERS).for_each(|_| ask());
        assert!(done.try_recv().is_err(), "they wait");
        ask();
        assert!(done.try_recv().is_ok());
        variants.finish(key, Ok(None));
        assert_eq!((done.try_iter().count(), variants.inner().reserved), (WAITERS, 0));
    }

    #[test]
    fn what_is_being_made_is_made_once() {
        let variants = Arc::new(VariantCache::new(1 << 20));
        let file = shared(&text(1));
        let (give, done) = channel();
        for _ in 0..50 {
            let give = give.clone();
            variants.make(Arc::clone(&file.0), file.1, Coding::Brotli, move || {
                give.send(()).expect("it is waited for");
            });
        }
        for _ in 0..50 {
            done.recv().expect("it is done");
        }
        assert_eq!(variants.inner().made.len(), 1);
        assert!(variants.inner().making.is_empty());
    }
}
