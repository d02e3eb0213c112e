//! Servers loaded in turn, and the results.

use std::time::Duration;

use bench::Error;
use bench::report::Report;
use bench::rounds::median;
use bench::server::{Placement, Server};
use bench::wrk::{self, Requests};
use comfy_table::{CellAlignment, Table, presets};

use crate::network::Network;
use crate::{CONNECTIONS, FILES, NGINX, OURS, Scale, directory, drain, in_turn};

/// What loads a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The client that discards bodies.
    Drain,
    /// wrk, which reads them.
    Wrk,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Self::Drain => "discarding",
            Self::Wrk => "wrk",
        }
    }
}

/// One round's figures.
#[derive(Clone, Copy, Debug)]
struct Sample {
    gigabits: f64,
    requests: f64,
    cpu_per_gigabyte: f64,
    cpu_us: f64,
    p99_us: f64,
}

/// A server's figures with one load.
pub struct Series {
    server: &'static str,
    size: &'static str,
    load: Load,
    samples: Vec<Sample>,
}

impl Series {
    fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(figure))
    }

    /// The median of the rounds' ratios, since servers in the same round run under the same conditions.
    fn ratio(&self, other: &Self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().zip(&other.samples).map(|(ours, theirs)| figure(ours) / figure(theirs)))
    }
}

/// Loads each server in turn, round after round, after a short round for warming up.
pub fn alternate(
    scale: Scale,
    network: &Network,
    servers: &[Server],
    size: &'static str,
    bytes: usize,
    load: Load,
) -> Result<Vec<Series>, Error> {
    let series = |server: &Server| Series { server: server.name(), size, load, samples: Vec::new() };
    let mut all: Vec<Series> = servers.iter().map(series).collect();
    for round in 0..=scale.rounds {
        let seconds = if round == 0 { 0.3 } else { scale.seconds };
        for (server, series) in servers.iter().zip(&mut all) {
            let before = server.usage()?.cpu();
            let outcome = match load {
                Load::Drain => {
                    drain::run(network, server, &in_turn(&directory(size), CONNECTIONS, seconds, None))?
                }
                Load::Wrk => by_wrk(server, size, bytes, seconds)?,
            };
            let cpu = (server.usage()?.cpu() - before).as_secs_f64();
            if round > 0 {
                series.samples.push(sample(&outcome, cpu));
            }
        }
    }
    Ok(all)
}

fn sample(outcome: &drain::Outcome, cpu: f64) -> Sample {
    let (bytes, requests) = (outcome.bytes as f64, outcome.requests as f64);
    Sample {
        gigabits: bytes * 8.0 / outcome.seconds / 1e9,
        requests: requests / outcome.seconds,
        cpu_per_gigabyte: cpu / (bytes / 1e9),
        cpu_us: cpu * 1e6 / requests,
        p99_us: outcome.p99_us,
    }
}

fn by_wrk(server: &Server, size: &str, bytes: usize, seconds: f64) -> Result<drain::Outcome, Error> {
    let directory = directory(size);
    let script = format!(
        "local n = 0\nfunction request() n = n % {FILES} + 1\n\
         return wrk.format(nil, '/{directory}/f' .. (n - 1) .. '.bin') end\n"
    );
    let requests = Requests::scripted(format!("/{directory}/f0.bin"), script, 200);
    // wrk counts in whole seconds.
    let load = wrk::Load { threads: 1, connections: CONNECTIONS, seconds: (seconds.round() as u64).max(1) };
    let placement = Placement { workers: 1, cpu: Some(1) };
    let outcome = load.run(server, placement, size, &requests)?;
    Ok(drain::Outcome {
        requests: outcome.requests,
        bytes: outcome.requests * bytes as u64,
        seconds: outcome.elapsed.as_secs_f64(),
        p99_us: outcome.p99.map_or(f64::NAN, |p99| p99.as_secs_f64() * 1e6),
    })
}

/// The medians of one network.
pub fn table(network: &str, all: &[Series]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "file",
        "load",
        "server",
        "Gbit/s",
        "requests/s",
        "CPU s/GB",
        "CPU µs/request",
        "p99 µs",
    ]);
    for series in all {
        table.add_row([
            series.size.to_owned(),
            series.load.name().to_owned(),
            series.server.to_owned(),
            format!("{:.1}", series.median(|sample| sample.gigabits)),
            format!("{:.0}", series.median(|sample| sample.requests)),
            format!("{:.4}", series.median(|sample| sample.cpu_per_gigabyte)),
            format!("{:.2}", series.median(|sample| sample.cpu_us)),
            format!("{:.0}", series.median(|sample| sample.p99_us)),
        ]);
    }
    table.column_iter_mut().skip(3).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("\n{network}\n{table}")
}

fn find<'s>(all: &'s [Series], server: &str, size: &str, load: Load) -> Option<&'s Series> {
    all.iter().find(|series| series.server == server && series.size == size && series.load == load)
}

/// The CPU time per request of one server divided by another's, where both were loaded.
pub fn cpu_ratio(all: &[Series], (one, other): (&str, &str), size: &str) -> Option<f64> {
    let of = |server| find(all, server, size, Load::Drain);
    Some(of(one)?.ratio(of(other)?, |sample| sample.cpu_us))
}

/// The targets, compared with nginx in the same rounds. A target for a minimum is shown inverted, as nginx's figure
/// divided by ours.
pub fn targets(network: &str, all: &[Series], report: &mut Report) {
    for load in [Load::Drain, Load::Wrk] {
        let pair = |size: &str| Some((find(all, OURS, size, load)?, find(all, NGINX, size, load)?));
        let name = |what: &str| format!("{network}, {}: {what}", load.name());
        let mut turned = |size: &str, figure: fn(&Sample) -> f64, of: &str, least: f64| {
            if let Some((ours, nginx)) = pair(size) {
                let what = name(&format!("{size}, nginx's {of} over ours"));
                report.target(what, nginx.ratio(ours, figure), "x", 1.0 / least);
            }
        };
        turned("2.4 MB", |sample| sample.gigabits, "Gbit/s", 1.25);
        turned("16 KB", |sample| sample.requests, "requests/s", 2.0);
        turned("1 KB", |sample| sample.requests, "requests/s", 1.5);
        // nginx keeps its files open, as experts configure it.
        for (size, most) in [("2.4 MB", 0.45), ("16 KB", 0.55), ("1 KB", 0.6)] {
            if let Some((ours, nginx)) = pair(size) {
                let what = name(&format!("{size}, CPU over nginx's"));
                report.target(what, ours.ratio(nginx, |sample| sample.cpu_us), "x", most);
            }
        }
    }
}

/// The latency at half of what the slower of two servers can do, the same for both.
pub fn half_load(
    scale: Scale,
    network: &Network,
    servers: &[Server],
    sizes: &[(&'static str, usize)],
    all: &[Series],
    report: &mut Report,
) -> Result<(), Error> {
    for &(size, _) in sizes {
        let most = servers.iter().filter_map(|server| find(all, server.name(), size, Load::Drain));
        let rate =
            most.map(|series| series.median(|sample| sample.requests)).fold(f64::INFINITY, f64::min) / 2.0;
        let mut p99: Vec<Vec<f64>> = vec![Vec::new(); servers.len()];
        for _ in 0..scale.rounds {
            for (server, p99) in servers.iter().zip(&mut p99) {
                let seconds = Duration::from_secs_f64(scale.seconds).as_secs_f64();
                let outcome = drain::run(
                    network,
                    server,
                    &in_turn(&directory(size), CONNECTIONS, seconds, Some(rate)),
                )?;
                p99.push(outcome.p99_us);
            }
        }
        let medians: Vec<f64> = p99.into_iter().map(|p99| median(p99.into_iter())).collect();
        if let [ours, nginx] = medians[..] {
            report.figure(format!("{size} at {rate:.0} requests/s, nginx's p99"), nginx, "µs");
            report.target(
                format!("{size} at {rate:.0} requests/s, p99 (nginx's is the limit)"),
                ours,
                "µs",
                nginx,
            );
        }
    }
    Ok(())
}
