//! CPU time and memory of a process tree, from `/proc`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What a process and its descendants have used. The figures of a process that has ended are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode: the exact total, split in the ratio that the kernel sampled at its timer.
    pub user: Duration,
    /// CPU time in the kernel, including loopback's TCP path.
    pub system: Duration,
    /// Resident memory in bytes (`VmRSS`), including resident parts of mapped files.
    pub resident: u64,
    /// The part of it without a file behind it, in bytes (`RssAnon`).
    pub anonymous: u64,
}

impl Usage {
    /// The sum over `root` and all its descendants.
    ///
    /// # Errors
    /// When `root` is gone. A descendant that ends meanwhile counts as nothing.
    pub fn of_tree(root: u32) -> io::Result<Self> {
        let mut sum = Self::of_process(root)?;
        for pid in descendants(root) {
            let usage = Self::of_process(pid).unwrap_or_default();
            sum.user += usage.user;
            sum.system += usage.system;
            sum.resident += usage.resident;
            sum.anonymous += usage.anonymous;
        }
        Ok(sum)
    }

    /// CPU time, user and kernel.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    fn of_process(pid: u32) -> io::Result<Self> {
        let directory = Path::new("/proc").join(pid.to_string());
        let (user, system) = refine(cpu(&fs::read_to_string(directory.join("stat"))?), run_time(&directory));
        let status = fs::read_to_string(directory.join("status"))?;
        Ok(Self { user, system, resident: bytes(&status, "VmRSS:"), anonymous: bytes(&status, "RssAnon:") })
    }
}

/// The unit of CPU time: 10 ms on Linux.
pub fn resolution() -> Duration {
    Duration::from_secs(1) / rustix::param::clock_ticks_per_second() as u32
}

/// Splits the exact time of a process's threads in the ratio of its clock ticks. When a thread ends, its exact time is
/// lost, but not its ticks: then only the ticks count.
fn refine((user, system): (Duration, Duration), exact: Duration) -> (Duration, Duration) {
    let counted = user + system;
    // Both parts are rounded down to whole ticks.
    if counted.is_zero() || exact < counted || exact > counted + 2 * resolution() {
        return (user, system);
    }
    let user = exact.mul_f64(user.as_secs_f64() / counted.as_secs_f64());
    (user, exact - user)
}

/// How long a process's threads have run, according to the scheduler (first field, in nanoseconds:
/// docs.kernel.org/scheduler/sched-stats.html). Zero if the kernel doesn't record that.
fn run_time(directory: &Path) -> Duration {
    let threads = fs::read_dir(directory.join("task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let account = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        account.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// All processes below `root`, nearest first.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            parents.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        found.extend(&parents);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// User and system time from `/proc/PID/stat`, whose second field may contain blanks and parentheses.
fn cpu(stat: &str) -> (Duration, Duration) {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // proc(5) counts from one and the name is the second field: utime and stime are 14 and 15.
    let mut ticks = after_name.split_whitespace().skip(11).map(|field| field.parse().unwrap_or(0));
    let mut next = || resolution() * ticks.next().unwrap_or(0);
    (next(), next())
}

/// A line of `/proc/PID/status` given in kB.
fn bytes(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 250 50 0 0 20 0 1 0 9 0 0";
        assert_eq!(cpu(stat), (resolution() * 250, resolution() * 50));
    }

    #[test]
    fn the_exact_time_is_split_as_the_ticks_are() {
        let tick = resolution();
        let cases = [
            // user, system, exact, expected user and system
            ((tick * 3, tick), tick * 4 + tick / 2, (tick * 27 / 8, tick * 9 / 8)),
            ((tick * 3, tick), tick * 2, (tick * 3, tick)),
            ((tick * 3, tick), tick * 9, (tick * 3, tick)),
            ((Duration::ZERO, Duration::ZERO), tick / 2, (Duration::ZERO, Duration::ZERO)),
        ];
        for (counted, exact, expected) in cases {
            assert_eq!(refine(counted, exact), expected, "{counted:?} {exact:?}");
        }
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t    1024 kB\n";
        assert_eq!((bytes(status, "VmRSS:"), bytes(status, "RssAnon:")), (2 << 20, 1 << 20));
        assert_eq!(bytes(status, "VmSwap:"), 0);
    }

    #[test]
    fn a_child_counts_with_its_parent() {
        let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; read _";
        let mut shell = std::process::Command::new("sh")
            .args(["-c", &format!("sh -c '{spin}'; true")])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh runs");
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let mut seen = Duration::ZERO;
        while seen < resolution() * 2 && std::time::Instant::now() < deadline {
            seen = Usage::of_tree(shell.id()).expect("the shell waits").cpu();
        }
        assert_eq!(descendants(shell.id()).len(), 1);
        assert!(Usage::of_process(shell.id()).expect("the shell waits").cpu() < seen);
        drop(shell.stdin.take());
        shell.wait().expect("the shell ends");
    }
}
