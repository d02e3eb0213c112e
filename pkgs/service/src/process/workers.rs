//! The number of workers, and the CPU of each.

use std::num::NonZero;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The number of workers.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct WorkerArgs {
    /// Threads that serve. Default: one for each CPU this process may use.
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub workers: Option<NonZero<usize>>,
}

impl WorkerArgs {
    /// The number of workers to start.
    #[must_use]
    pub fn count(&self) -> usize {
        count(self.workers)
    }
}

/// The number of workers to start: `asked`, or one for each CPU this process may use.
///
/// The affinity mask and the cgroup's CPU quota bound that number. A quota is rounded down to whole CPUs, at least one.
pub fn count(asked: Option<NonZero<usize>>) -> usize {
    asked.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

/// The CPUs that this process was allowed when first asked, in ascending order.
///
/// Read once, since [`pin`] narrows the masks that later threads inherit.
pub fn allowed() -> &'static [usize] {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    ALLOWED.get_or_init(|| match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    })
}

/// Whether to [`pin`] this many workers: if there is exactly one per allowed CPU. With fewer, or with a CPU quota, the
/// kernel places them better than a fixed choice; more would share CPUs.
pub fn pinnable(workers: usize) -> bool {
    workers == allowed().len()
}

/// Pins the calling thread to the `index`-th of the [`allowed`] CPUs. Returns false if there is no such CPU or the
/// kernel refuses.
pub fn pin(index: usize) -> bool {
    let mut set = CpuSet::new();
    allowed().get(index).is_some_and(|&cpu| {
        set.set(cpu);
        sched_setaffinity(None, &set).is_ok()
    })
}

/// The name of the `index`-th worker's thread, such as `links-0`. The kernel shows 15 bytes of it.
pub fn name(service: &str, index: usize) -> String {
    format!("{service}-{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_asked_for_is_the_count() {
        assert_eq!(count(NonZero::new(7)), 7);
        assert!((1..=allowed().len()).contains(&count(None)));
    }

    #[test]
    fn a_pinned_thread_runs_on_its_cpu_alone() {
        let cpus = allowed();
        for (index, &cpu) in cpus.iter().enumerate() {
            std::thread::spawn(move || {
                assert!(pin(index));
                let set = sched_getaffinity(None).expect("own affinity");
                assert_eq!((set.count(), set.is_set(cpu)), (1, true));
            })
            .join()
            .expect("pinned thread");
        }
    }

    #[test]
    fn only_one_worker_a_cpu_is_pinned() {
        let cpus = allowed().len();
        assert!(pinnable(cpus));
        assert!(!pinnable(cpus + 1));
        assert!(!pin(cpus));
    }
}
