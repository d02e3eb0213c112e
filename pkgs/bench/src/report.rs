//! The table, the targets and the JSON.

use std::fs;
use std::num::NonZero;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::error::Error;
use crate::rounds::Series;

/// The most CPU time that a change may take, as a multiple of the previous commit's. Alternating rounds differ by this
/// much on a quiet machine.
pub const NO_WORSE: f64 = 1.03;

/// All results of a bench.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Where and how it was measured, in words.
    pub conditions: Vec<String>,
    /// The table.
    pub rows: Vec<Row>,
    /// Single figures that aren't rows.
    pub figures: Vec<Figure>,
    /// The targets, and their outcome.
    pub targets: Vec<Target>,
}

/// A line of the table: medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: &'static str,
    /// The case.
    pub case: &'static str,
    /// Requests per second.
    pub qps: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// The server's CPU time per request, in microseconds.
    pub cpu_us: f64,
    /// The lowest and the highest CPU time per request of all rounds.
    pub cpu_us_spread: (f64, f64),
    /// The part of it in user mode.
    pub user_us: f64,
    /// Multiples of other servers' CPU time in the same case: their names and the medians of the rounds' ratios.
    pub ratios: Vec<(&'static str, f64)>,
    /// Resident memory after the last round, in bytes.
    pub resident_bytes: u64,
}

/// A single figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

/// A figure with a limit.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The figure, with its name and value.
    #[serde(flatten)]
    pub figure: Figure,
    /// The highest value that meets the target.
    pub limit: f64,
    /// Whether it is met.
    pub met: bool,
}

impl Report {
    /// A report with the machine and the network.
    pub fn new(network: &str) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let conditions = vec![
            format!(
                "machine: {cpus} CPUs, {}, Linux {}",
                cpu.map_or("unknown", |(_, model)| model),
                read("/proc/sys/kernel/osrelease").trim()
            ),
            format!("network: loopback in {network}"),
            "CPU time: user and kernel time of the server's processes".to_owned(),
        ];
        Self { conditions, ..Self::default() }
    }

    /// Adds a condition.
    pub fn condition(&mut self, words: String) {
        self.conditions.push(words);
    }

    /// Adds rows, each compared with the servers in `yardsticks` that have the same case.
    pub fn add(&mut self, all: &[Series], yardsticks: &[&'static str]) {
        self.rows.extend(all.iter().map(|series| {
            let ratio = |name: &&'static str| {
                let other = find(all, name, series.case)?;
                Some((*name, series.cpu_ratio(other)))
            };
            Row {
                server: series.server,
                case: series.case,
                qps: series.median(|sample| sample.qps),
                p50_us: series.median(|sample| sample.p50_us),
                p99_us: series.median(|sample| sample.p99_us),
                cpu_us: series.cpu_us(),
                cpu_us_spread: series.cpu_spread(),
                user_us: series.median(|sample| sample.user_us),
                ratios: yardsticks.iter().filter_map(ratio).collect(),
                resident_bytes: series.resident,
            }
        }));
    }

    /// Adds a figure.
    pub fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure { name: name.into(), value, unit });
    }

    /// Adds a figure that should be at most `limit`.
    pub fn target(&mut self, name: impl Into<String>, value: f64, unit: &'static str, limit: f64) {
        let figure = Figure { name: name.into(), value, unit };
        self.targets.push(Target { figure, limit, met: value <= limit });
    }

    /// Requires `server` to take at most [`NO_WORSE`] times another's CPU time, in each case here that both have.
    pub fn no_worse(&mut self, all: &[Series], (server, other): (&str, &str), cases: impl Fn(&str) -> bool) {
        for series in all.iter().filter(|series| series.server == server && cases(series.case)) {
            if let Some(before) = find(all, other, series.case) {
                self.target(format!("{} / {other}", series.case), series.cpu_ratio(before), "x", NO_WORSE);
            }
        }
    }

    /// The missed targets.
    pub fn missed(&self) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(|target| !target.met)
    }

    /// Prints it for people.
    pub fn print(&self) {
        println!("\n{}", self.text());
    }

    /// What people read: conditions, table, figures and targets, without a line end after the last.
    pub fn text(&self) -> String {
        let mut lines = self.conditions.clone();
        lines.push(self.table().to_string());
        for Figure { name, value, unit } in &self.figures {
            lines.push(format!("figure: {name}: {} {unit}", rounded(*value)));
        }
        for Target { figure: Figure { name, value, unit }, limit, met } in &self.targets {
            let met = if *met { "met" } else { "missed" };
            lines.push(format!("target: {name} <= {limit} {unit}: {met} ({} {unit})", rounded(*value)));
        }
        lines.join("\n")
    }

    /// Writes it for programs.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(Error::file(directory))?;
        }
        let file = fs::File::create(path).map_err(Error::file(path))?;
        serde_json::to_writer_pretty(file, self)
            .map_err(|error| Error::File { path: path.into(), source: error.into() })
    }

    fn table(&self) -> Table {
        let mut yardsticks: Vec<&str> = Vec::new();
        for (name, _) in self.rows.iter().flat_map(|row| &row.ratios) {
            if !yardsticks.contains(name) {
                yardsticks.push(name);
            }
        }
        let mut header: Vec<String> =
            ["case", "server", "QPS", "p50", "p99", "CPU µs/request", "low-high", "user µs"]
                .map(String::from)
                .into();
        header.extend(yardsticks.iter().map(|name| format!("x {name}")));
        header.push("RSS MiB".into());
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(header);
        for row in &self.rows {
            let mut cells = vec![
                row.case.into(),
                row.server.into(),
                format!("{:.0}", row.qps),
                time(row.p50_us),
                time(row.p99_us),
                format!("{:.2}", row.cpu_us),
                format!("{:.2}-{:.2}", row.cpu_us_spread.0, row.cpu_us_spread.1),
                format!("{:.2}", row.user_us),
            ];
            cells.extend(yardsticks.iter().map(|yardstick| {
                let ratio = row.ratios.iter().find(|(name, _)| name == yardstick);
                ratio.map_or_else(String::new, |(_, ratio)| format!("{ratio:.2}"))
            }));
            cells.push(format!("{:.1}", mebibytes(row.resident_bytes)));
            table.add_row(cells);
        }
        table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        table
    }
}

/// The series for a server in a case.
pub fn find<'a>(all: &'a [Series], server: &str, case: &str) -> Option<&'a Series> {
    all.iter().find(|series| series.server == server && series.case == case)
}

/// Bytes as MiB.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn time(us: f64) -> String {
    match us {
        us if us.is_nan() => "-".into(),
        us if us < 1000.0 => format!("{us:.0} µs"),
        us => format!("{:.2} ms", us / 1000.0),
    }
}

/// Three significant digits are enough for a figure that repeats within a few percent.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Sample;

    fn series(server: &'static str, case: &'static str, cpu_us: f64) -> Series {
        let sample = Sample { qps: 1000.0, p50_us: 900.0, p99_us: 1100.0, cpu_us, user_us: 0.5 };
        Series { server, case, samples: vec![sample], resident: 3 << 20 }
    }

    #[test]
    fn rows_compare_within_their_case() {
        let mut report = Report::default();
        let all = [series("ours", "hot", 3.0), series("nginx", "hot", 6.0), series("ours", "cold", 9.0)];
        report.add(&all, &["nginx"]);
        assert_eq!(report.rows[0].ratios, [("nginx", 0.5)]);
        assert!(report.rows[2].ratios.is_empty());
        let table = report.table().to_string();
        assert!(table.contains("x nginx") && table.contains("1.10 ms") && table.contains("3.0"), "{table}");
    }

    #[test]
    fn a_target_is_met_at_its_limit() {
        let mut report = Report::default();
        report.target("a", 3.6, "µs", 3.6);
        report.target("b", 3.7, "µs", 3.6);
        report.target("c", f64::NAN, "µs", 3.6);
        let met: Vec<bool> = report.targets.iter().map(|target| target.met).collect();
        assert_eq!(met, [true, false, false]);
        assert_eq!(report.missed().count(), 2);
    }
}
