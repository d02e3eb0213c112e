//! Which cold files are to stay in memory: those that are asked for again while others of as many bytes as there is memory
//! were.
//!
//! The page cache takes in whatever is read, and lets go of what was not asked for lately: a stream of files that are asked for
//! once pushes out those that are asked for often, and pays for finding them room. So what is cold is read around
//! it the first time, and through it when it is asked for again soon enough that memory could have kept it. That is the ghost
//! queue of S3-FIFO (Yang et al., SOSP 2023), whose small queue is empty here: a file read once leaves with its answer.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// Files that are remembered, 1 MiB for each worker. A file is forgotten for another one of its place.
const PLACES: usize = 1 << 17;

/// What was read around the page cache lately.
#[derive(Debug)]
pub struct GhostQueue {
    /// For each a part of its hash, and how much had been read by then, in pages.
    places: Box<[(u32, u32)]>,
    /// Pages that were read, all in all.
    read: u32,
    /// Pages that memory has.
    memory: u32,
}

impl GhostQueue {
    /// None yet; `memory` is what the page cache can have, in bytes.
    pub fn new(memory: u64) -> Self {
        Self { places: Box::default(), read: 0, memory: pages(memory) }
    }

    /// Whether a file, by what identifies it, is to be read through the page cache; `bytes` of it are to be read.
    pub fn admit(&mut self, file: impl std::hash::Hash, bytes: u64) -> bool {
        if self.places.is_empty() {
            self.places = vec![(0, 0); PLACES].into();
        }
        let hash = FixedState::default().hash_one(file);
        let place = &mut self.places[hash as usize % PLACES];
        // None is 0, which says that nothing is here.
        let print = (hash >> 32) as u32 | 1;
        let again = place.0 == print && self.read.wrapping_sub(place.1) <= self.memory;
        self.read = self.read.wrapping_add(pages(bytes).max(1));
        *place = (print, self.read);
        again
    }
}

/// Pages, as many as are of use here.
fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes / 4096).unwrap_or(u32::MAX).min(u32::MAX / 2)
}

/// What the page cache can have at most: all memory, or what this process's control group has, in bytes.
pub fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let all = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    limits().fold(all, u64::min)
}

/// The limits of the control groups this process is in.
fn limits() -> impl Iterator<Item = u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files: Vec<String> = groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?.trim_end_matches('/'));
            match controllers {
                "" => Some(format!("/sys/fs/cgroup{path}/memory.max")),
                "memory" => Some(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")),
                _ => None,
            }
        })
        .collect();
    files.into_iter().filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_soon_enough_is_admitted() {
        let mut ghosts = GhostQueue::new(10 * 4096);
        assert!(!ghosts.admit(1, 4096));
        assert!(ghosts.admit(1, 4096));
        for other in 100..110 {
            assert!(!ghosts.admit(other, 4096), "{other}");
        }
        assert!(ghosts.admit(1, 4096), "ten pages later");
        assert!(!ghosts.admit(2, 11 * 4096));
        assert!(!ghosts.admit(1, 4096), "more has been read than memory has");
    }

    #[test]
    fn there_is_some_memory() {
        assert!(memory() > 1 << 20);
    }
}
