//! The memory of the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The process's anonymous memory, in KiB (proc_pid_status(5)). The database's mapped pages aren't counted, since they
/// belong to the page cache.
pub fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The highest of many measurements while `work` runs.
pub fn peak_kib(work: impl FnOnce()) -> u64 {
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while running.load(Ordering::Relaxed) {
                peak = peak.max(memory_kib());
                std::thread::sleep(Duration::from_millis(2));
            }
            peak
        });
        work();
        running.store(false, Ordering::Relaxed);
        watcher.join().unwrap()
    })
}
