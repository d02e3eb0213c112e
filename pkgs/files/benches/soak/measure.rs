//! What a server keeps, and whether that has grown.

use std::fmt;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use bench::usage::Usage;

/// The figures.
pub const NAMES: [&str; 4] = ["RSS KiB", "descriptors", "pipes", "kernel KiB"];

/// How much each figure may exceed what it was after the first tenth: a percentage of that, and an absolute amount.
const TOLERANCES: [(u64, u64); 4] = [(5, 4096), (0, 16), (0, 16), (10, 16 * 1024)];

/// The kernel's caches for what a server can leave behind: sockets, what is in transit through them, open files.
const SLABS: [&str; 13] = [
    "TCP",
    "TCPv6",
    "UDP",
    "UDPv6",
    "tw_sock_TCP",
    "request_sock_TCP",
    "sock_inode_cache",
    "skbuff_head_cache",
    "skbuff_fclone_cache",
    "skbuff_small_head",
    "filp",
    "eventpoll_epi",
    "inotify_inode_mark",
];

/// How long it takes at most until closed connections are gone from the server.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// A sample of each of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept(pub [u64; 4]);

impl Kept {
    /// The figures of a server. Waits for closed connections to be gone, unless there are `planted` clients.
    pub fn of(server: u32, planted: usize) -> io::Result<Self> {
        let begun = Instant::now();
        let mut before = descriptors(server)?;
        // If clients are left behind, their number says nothing.
        while planted == 0 && begun.elapsed() < SETTLED_WITHIN {
            std::thread::sleep(Duration::from_millis(50));
            let now = descriptors(server)?;
            if now == before {
                break;
            }
            before = now;
        }
        let resident = Usage::of_tree(server)?.resident / 1024;
        let (descriptors, pipes) = descriptors(server)?;
        Ok(Self([resident, descriptors, pipes, kernel_memory()? / 1024]))
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|value| write!(f, "{value:>16}"))
    }
}

/// All file descriptors of a process, and those that are pipes.
fn descriptors(process: u32) -> io::Result<(u64, u64)> {
    let (mut all, mut pipes) = (0, 0);
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        all += 1;
        pipes += u64::from(target.to_string_lossy().starts_with("pipe:"));
    }
    Ok((all, pipes))
}

/// The kernel's memory for sockets, what they hold, and open files, in bytes; if the kernel doesn't distinguish its
/// objects, all that can't be freed.
fn kernel_memory() -> io::Result<u64> {
    let mut held = 0;
    for line in fs::read_to_string("/proc/net/sockstat")?.lines() {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mem");
        held += words.nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096;
    }
    let Ok(slabs) = fs::read_to_string("/proc/slabinfo") else {
        let memory = fs::read_to_string("/proc/meminfo")?;
        let line = memory.lines().find_map(|line| line.strip_prefix("SUnreclaim:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        return Ok(held + kilobytes.unwrap_or(0) * 1024);
    };
    for line in slabs.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, active, _, size, ..] = words[..]
            && SLABS.contains(&name)
        {
            held += active.parse::<u64>().unwrap_or(0) * size.parse::<u64>().unwrap_or(0);
        }
    }
    Ok(held)
}

/// What has grown, in words; each sample has the fraction of the work that was done by then.
pub fn grown(samples: &[(f64, Kept)]) -> Vec<String> {
    let of = |from: f64, to: f64| samples.iter().filter(move |(at, _)| (from..to).contains(at));
    let mut found = Vec::new();
    for (index, (name, (hundredths, beside))) in NAMES.iter().zip(TOLERANCES).enumerate() {
        let warm = of(0.05, 0.1).chain(of(0.0, 0.1).next_back());
        let least = of(0.9, f64::INFINITY).map(|(_, kept)| kept.0[index]).min();
        let (Some(most), Some(least)) = (warm.map(|(_, kept)| kept.0[index]).max(), least) else {
            found.push(format!("{name}: there are too few samples"));
            continue;
        };
        let limit = most + most * hundredths / 100 + beside;
        if least > limit {
            found.push(format!(
                "{name} has grown: {most} after the first tenth, never below {least} in the last, where {limit} is allowed"
            ));
        }
    }
    found
}
