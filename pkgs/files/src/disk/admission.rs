//! Decides which cold files the page cache should keep: those that are requested again before as many other bytes as
//! there is memory.
//!
//! The page cache stores whatever is read, and drops what was not used lately. So a stream of files that are requested
//! once displaces frequently requested ones, and allocating memory for it costs time. A cold file is therefore read
//! around the page cache the first time, and through it if it is requested again soon enough that memory could have
//! kept it. This is the ghost queue of S3-FIFO (Yang et al., SOSP 2023) with an empty small queue: a file that is read
//! once leaves with its answer.

use std::hash::BuildHasher;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use foldhash::fast::FixedState;

/// Remembered files, 1 MiB for all workers. A file is forgotten when another needs its place.
const PLACES: usize = 1 << 16;

/// What any worker recently read around the page cache; memory is shared by all. The lock costs nothing compared with
/// the disk read that follows.
#[derive(Debug)]
pub struct GhostQueue(Mutex<Ghosts>);

#[derive(Debug)]
struct Ghosts {
    places: Box<[Ghost]>,
    /// Pages read in total.
    read: u32,
    /// The size of memory in pages.
    memory: u32,
}

/// A recent read of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Ghost {
    /// A part of the file's hash; 0 if the place is empty.
    print: u32,
    /// The total of pages read at that time.
    read: u32,
    /// The file's pages that were read.
    start: u32,
    end: u32,
}

impl GhostQueue {
    /// Without entries; `memory` is the maximum of the page cache, in bytes.
    pub fn new(memory: u64) -> Self {
        Self(Mutex::new(Ghosts { places: Box::default(), read: 0, memory: pages(memory) }))
    }

    /// Whether to read this part of a file, identified by `file`, through the page cache: half of it was read before,
    /// and all of it fits.
    pub fn admit(&self, file: impl std::hash::Hash, range: &Range<u64>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(file, range)
    }
}

impl Ghosts {
    fn admit(&mut self, file: impl std::hash::Hash, range: &Range<u64>) -> bool {
        if self.places.is_empty() {
            self.places = vec![Ghost::default(); PLACES].into();
        }
        let hash = FixedState::default().hash_one(file);
        let ghost = &mut self.places[hash as usize % PLACES];
        let print = (hash >> 32) as u32 | 1;
        let start = pages(range.start);
        let end = pages(range.end.next_multiple_of(4096)).max(start + 1);
        let length = end - start;
        let is_known = ghost.print == print && self.read.wrapping_sub(ghost.read) <= self.memory;
        let common = end.min(ghost.end).saturating_sub(start.max(ghost.start));
        let again = is_known && common >= length.div_ceil(2) && length <= self.memory;
        self.read = self.read.wrapping_add(length);
        // Pieces that are read one after the other are joined, as long as they fit.
        let joined = ghost.start.min(start)..ghost.end.max(end);
        let joins =
            is_known && start <= ghost.end && ghost.start <= end && joined.end - joined.start <= self.memory;
        let Range { start, end } = if joins { joined } else { start..end };
        *ghost = Ghost { print, read: self.read, start, end };
        again
    }
}

/// Pages, limited to what is useful here.
fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes / 4096).unwrap_or(u32::MAX).min(u32::MAX / 2)
}

/// The maximum of the page cache: all memory, or the limit of this process's control groups, in bytes.
pub fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let all = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits(&groups, Path::new("/sys/fs/cgroup")).fold(all, u64::min)
}

/// The limits of the control groups in `groups` and of their parents, which are mounted at `mount`.
fn limits(groups: &str, mount: &Path) -> impl Iterator<Item = u64> {
    let files = groups.lines().filter_map(move |line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_matches('/'));
        let (top, limit) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            "memory" => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = top.join(path);
        let above = group.ancestors().take_while(|group| group.starts_with(&top));
        Some(above.map(|group| group.join(limit)).collect::<Vec<PathBuf>>())
    });
    let files: Vec<PathBuf> = files.flatten().collect();
    files.into_iter().filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn what_is_asked_for_again_soon_enough_is_admitted() {
        let ghosts = GhostQueue::new(10 * PAGE);
        assert!(!ghosts.admit(1, &(0..PAGE)));
        assert!(ghosts.admit(1, &(0..PAGE)));
        for other in 100..110 {
            assert!(!ghosts.admit(other, &(0..PAGE)), "{other}");
        }
        assert!(ghosts.admit(1, &(0..PAGE)), "ten pages later");
        assert!(!ghosts.admit(2, &(0..11 * PAGE)));
        assert!(!ghosts.admit(1, &(0..PAGE)), "more has been read than memory has");
        assert!(
            !ghosts.admit(2, &(0..11 * PAGE)) && !ghosts.admit(2, &(0..11 * PAGE)),
            "it fits into no memory"
        );
    }

    #[test]
    fn a_part_of_a_file_is_not_all_of_it() {
        let ghosts = GhostQueue::new(1000 * PAGE);
        let all = 0..100 * PAGE;
        assert!(!ghosts.admit(1, &(0..1)));
        assert!(!ghosts.admit(1, &all), "only a byte of it was asked for");
        assert!(ghosts.admit(1, &all));
        assert!(ghosts.admit(1, &(50..51)), "a byte of what was");
        // Piece by piece: each is new, but all of them together were read.
        for piece in 0..10 {
            assert!(!ghosts.admit(2, &(piece * 10 * PAGE..(piece + 1) * 10 * PAGE)), "{piece}");
        }
        assert!(ghosts.admit(2, &all));
        assert!(!ghosts.admit(3, &(0..PAGE)) && !ghosts.admit(3, &(90 * PAGE..91 * PAGE)), "another part");
    }

    #[test]
    fn all_workers_have_one_memory() {
        let ghosts = std::sync::Arc::new(GhostQueue::new(100 * PAGE));
        assert!(!ghosts.admit(0, &(0..PAGE)));
        let workers: Vec<_> = (1..=4_u64)
            .map(|worker| {
                let ghosts = std::sync::Arc::clone(&ghosts);
                std::thread::spawn(move || {
                    for file in 0..30 {
                        ghosts.admit(worker * 1000 + file, &(0..PAGE));
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        assert!(!ghosts.admit(0, &(0..PAGE)), "together they have read more than memory has");
    }

    #[test]
    fn the_least_of_all_groups_around_counts() {
        let place = tempfile::tempdir().expect("a directory");
        let top = place.path();
        let write = |path: &str, text: &str| {
            let path = top.join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        let least = |groups: &str| limits(groups, top).min();
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "2000\n");
        assert_eq!(least("0::/a/b\n"), Some(2000), "of the one above");
        write("a/b/c/memory.max", "1000\n");
        assert_eq!(least("0::/a/b/c\n"), Some(1000));
        assert_eq!(least("0::/\n"), None);
        write("memory/memory.limit_in_bytes", "9000\n");
        write("memory/x/memory.limit_in_bytes", "800\n");
        write("memory/x/y/memory.limit_in_bytes", "8000\n");
        assert_eq!(least("4:cpu:/q\n3:memory:/x/y\n0::/a\n"), Some(800));
    }

    #[test]
    fn there_is_some_memory() {
        assert!(memory() > 1 << 20);
    }
}
