//! Metrics of the process, with the names that Prometheus's own clients use.

use std::sync::OnceLock;
use std::{fmt, fs};

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{Family, MetricValue};

type Read = fn() -> Option<f64>;

/// Registers resident memory, CPU time, file descriptors and start time of this process.
///
/// A value that `/proc` does not give reads as NaN, for instance if it is not mounted.
pub fn register(registry: &mut Registry) {
    let gauges: [(_, _, Read); 4] = [
        ("process_resident_memory_bytes", "Memory in RAM", resident_bytes),
        ("process_open_fds", "Open file descriptors", open_fds),
        ("process_max_fds", "File descriptors it may open", max_fds),
        ("process_start_time_seconds", "When it started, in seconds since 1970", start_time),
    ];
    for (name, help, read) in gauges {
        Family::new(name, help).with(&[], move || read().unwrap_or(f64::NAN)).register(registry);
    }
    Family::new("process_cpu_seconds", "CPU time, user and system").with(&[], cpu).register(registry);
}

/// CPU time of all threads, user and system, in seconds.
#[derive(Clone, Copy)]
struct CpuSeconds(f64);

fn cpu() -> CpuSeconds {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    CpuSeconds(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

impl MetricValue for CpuSeconds {
    const TYPE: MetricType = MetricType::Counter;

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, _, u64>(&self.0, None)
    }
}

/// The second field of `/proc/self/statm`, in pages: proc_pid_statm(5).
fn resident_bytes() -> Option<f64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some((pages * page_size() as u64) as f64)
}

fn open_fds() -> Option<f64> {
    // One of them is the directory that is being read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_fds() -> Option<f64> {
    Some(getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, |limit| limit as f64))
}

/// Boot time plus field 22 of `/proc/self/stat`, in clock ticks: proc_pid_stat(5).
fn start_time() -> Option<f64> {
    static START: OnceLock<Option<f64>> = OnceLock::new();
    *START.get_or_init(|| {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // Field 2, the name in parentheses, may contain spaces, so the fields are counted from behind it.
        let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(22 - 3)?.parse().ok()?;
        let system = fs::read_to_string("/proc/stat").ok()?;
        let boot: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
        Some(boot as f64 + ticks as f64 / clock_ticks_per_second() as f64)
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_process_knows_itself() {
        assert!(resident_bytes().expect("statm") > 100_000.0);
        assert!(max_fds().expect("limit") >= open_fds().expect("fds"));
        // The exact number is unknown, since other tests open and close files.
        let _file = fs::File::open("/dev/null").expect("/dev/null");
        assert!(open_fds().expect("fds") >= 1.0);
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(start_time().expect("start"));
        let age = SystemTime::now().duration_since(start).unwrap_or_default();
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }

    #[test]
    fn all_of_it_is_shown() {
        let mut registry = Registry::default();
        register(&mut registry);
        let text = super::super::encode(&registry);
        for name in [
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_max_fds ",
            "process_start_time_seconds ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} not in\n{text}");
        }
    }
}
