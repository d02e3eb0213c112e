//! The kernel's counters at two times, and the difference between them.

use std::collections::BTreeMap;

use crate::nic::device;
use crate::nic::services::GROUPS;
use crate::system::System;

/// Counters by name: `tcp/ListenOverflows`, `softnet/3/dropped`, `driver/ens5/bw_in_allowance_exceeded`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample(BTreeMap<String, u64>);

impl Sample {
    /// Reads all counters; those that a machine doesn't have are left out.
    pub fn read(system: &dyn System) -> Self {
        let mut sample = Self::default();
        sample.softnet(system);
        // Pairs of lines: names, then values (proc_pid_net(5)).
        for path in ["/proc/net/netstat", "/proc/net/snmp"] {
            let text = system.read(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.chunks_exact(2) {
                let Some((group, names)) = pair[0].split_once(':') else { continue };
                let values = pair[1].split_whitespace().skip(1);
                for (name, value) in names.split_whitespace().zip(values) {
                    sample.add(format!("{}/{name}", group.to_lowercase()), value);
                }
            }
        }
        // IPv6 counts its datagrams in a file of its own.
        sample.fields("snmp6", &system.read("/proc/net/snmp6").unwrap_or_default());
        sample.fields("vm", &system.read("/proc/vmstat").unwrap_or_default());
        sample.time(&system.read("/proc/stat").unwrap_or_default());
        for interface in device::interfaces(system).unwrap_or_default() {
            for name in ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"] {
                let path = format!("/sys/class/net/{interface}/statistics/{name}");
                sample.add(format!("link/{interface}/{name}"), system.read(&path).unwrap_or_default().trim());
            }
            for (name, value) in system.statistics(&interface).unwrap_or_default() {
                sample.0.insert(format!("driver/{interface}/{name}"), value);
            }
        }
        for unit in system.list(GROUPS).unwrap_or_default() {
            if unit.starts_with("linerate-") && unit.ends_with(".service") {
                for file in ["cpu.stat", "memory.events"] {
                    let text = system.read(&format!("{GROUPS}/{unit}/{file}")).unwrap_or_default();
                    sample.fields(&format!("unit/{unit}"), &text);
                }
            }
        }
        sample
    }

    /// Reads only the CPUs' packet counters.
    pub fn of_cpus(system: &dyn System) -> Self {
        let mut sample = Self::default();
        sample.softnet(system);
        sample
    }

    /// A counter, if there is one with this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    fn add(&mut self, name: String, value: &str) {
        if let Ok(value) = value.parse() {
            self.0.insert(name, value);
        }
    }

    /// `NAME VALUE` lines.
    fn fields(&mut self, group: &str, text: &str) {
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            self.add(format!("{group}/{name}"), value.trim());
        }
    }

    /// One line per CPU, in hexadecimal: packets, dropped packets, times squeezed, and the CPU in the thirteenth field
    /// (`net/core/net-procfs.c`).
    fn softnet(&mut self, system: &dyn System) {
        let text = system.read("/proc/net/softnet_stat").unwrap_or_default();
        for (line, text) in text.lines().enumerate() {
            let fields: Vec<u64> =
                text.split_whitespace().map(|field| u64::from_str_radix(field, 16).unwrap_or(0)).collect();
            let cpu = fields.get(12).copied().unwrap_or(line as u64);
            for (name, value) in ["processed", "dropped", "time_squeeze"].into_iter().zip(fields) {
                self.0.insert(format!("softnet/{cpu}/{name}"), value);
            }
        }
    }

    /// The time of all CPUs in ticks; the eighth field is what the hypervisor took (proc_stat(5)).
    fn time(&mut self, stat: &str) {
        let Some(all) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) else { return };
        let ticks: Vec<u64> = all.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // Guests' time is already included in users' time.
        self.0.insert("time/all".to_owned(), ticks.iter().take(8).sum());
        self.0.insert("time/stolen".to_owned(), ticks.get(7).copied().unwrap_or(0));
    }
}

/// What was counted between two times.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Counters at its start; if there are none, it started with the boot.
    pub before: Sample,
    /// Counters at its end.
    pub after: Sample,
    /// Its length in seconds.
    pub seconds: f64,
}

impl Interval {
    /// How much a counter has grown. A counter that is smaller than before was reset and has grown from 0.
    pub fn grew(&self, name: &str) -> u64 {
        let after = self.after.0.get(name).copied().unwrap_or(0);
        let before = self.before.0.get(name).copied().unwrap_or(0);
        after.checked_sub(before).unwrap_or(after)
    }

    /// A value at the start and at the end, if both samples have it.
    pub fn ends(&self, name: &str) -> Option<(u64, u64)> {
        Some((*self.before.0.get(name)?, *self.after.0.get(name)?))
    }

    /// The growth of each counter whose name starts with `prefix`, with the rest of its name.
    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> + 'a {
        let names = self.after.0.keys().filter_map(move |name| name.strip_prefix(prefix));
        names.map(move |rest| (rest, self.grew(&format!("{prefix}{rest}"))))
    }

    /// The names between two slashes: `softnet/` has all CPUs, `driver/` all interfaces.
    pub fn members(&self, prefix: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .below(prefix)
            .filter_map(|(rest, _)| rest.split_once('/').map(|(name, _)| name.to_owned()))
            .collect();
        names.dedup();
        names
    }
}

/// The share of `part` in the sum of both, or 0 if both are 0.
pub fn share(part: u64, rest: u64) -> f64 {
    if part == 0 { 0.0 } else { part as f64 / (part as f64 + rest as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    #[test]
    fn counters_are_told_apart_by_where_they_are_from() {
        let text = "/proc/net/softnet_stat:
|0000000a 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000003
/proc/net/netstat:
|TcpExt: SyncookiesSent ListenOverflows
|TcpExt: 1 7
/proc/stat:
|cpu  1 2 3 4 5 6 7 8 1 1
later
/proc/net/netstat:
|TcpExt: SyncookiesSent ListenOverflows
|TcpExt: 0 9
";
        let machine: Recorded = text.parse().expect("a machine");
        let before = Sample::read(&machine);
        machine.pause(std::time::Duration::from_secs(1));
        let interval = Interval { before, after: Sample::read(&machine), seconds: 1.0 };
        assert_eq!(interval.grew("tcpext/ListenOverflows"), 2);
        // It is smaller than before, so it was reset.
        assert_eq!(interval.grew("tcpext/SyncookiesSent"), 0);
        let boot = Interval { before: Sample::default(), ..interval };
        assert_eq!((boot.grew("softnet/3/processed"), boot.grew("softnet/3/time_squeeze")), (10, 2));
        assert_eq!((boot.grew("time/all"), boot.grew("time/stolen")), (36, 8));
        assert_eq!(boot.members("softnet/"), ["3"]);
    }

    #[test]
    fn nothing_of_nothing_is_nothing() {
        assert_eq!((share(0, 0), share(1, 0), share(1, 3)), (0.0, 1.0, 0.25));
    }
}
