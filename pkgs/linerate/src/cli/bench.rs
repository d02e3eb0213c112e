//! `bench`: measures what a request costs the services of this box.

use std::path::PathBuf;

use ::bench::report::Report;
use serde::Serialize;

use super::{Context, Error};
use crate::measured::{self, Change, Target};

/// What to measure, and what to compare with.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The URL to request from each service: links=URL, files=URL or api=URL. The load needs wrk, and runs on the CPUs
    /// of the services, which serve others more slowly meanwhile.
    #[arg(required = true, value_name = "SERVICE=URL")]
    pub targets: Vec<Target>,

    /// How many rounds to load each, in turn.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub rounds: u64,

    /// How long each round lasts, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,

    /// Save the result to this file.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,

    /// Compare with a result that --save wrote. Exits with 3 if a service has become slower by more than the spread of
    /// rounds and --tolerance.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,

    /// By how many percent a service may be slower with --against.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub tolerance: u64,

    /// Draw CPU time per request to this file, as an SVG.
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
}

/// The result, for programs.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    report: Report,
    changes: Vec<Change>,
}

/// Measures.
pub fn run(args: &Args, context: &mut Context) -> Result<(), Error> {
    args.against.as_deref().map_or(Ok(()), measured::check)?;
    let report = measured::measure(&*context.system, &args.targets, args.rounds as usize, args.seconds)?;
    let changes = match &args.against {
        Some(path) => measured::compare(&report, path, args.tolerance as f64)?,
        None => Vec::new(),
    };
    if let Some(path) = &args.save {
        report.write(path).map_err(measured::Error::from)?;
    }
    if let Some(path) = &args.chart {
        measured::draw(&report, &changes, path)?;
    }
    let slower = changes.iter().filter(|change| change.slower()).count();
    let explain = context.explain;
    context.output.show(&Measured { report, changes }, |Measured { report, changes }, output| {
        output.line(report.text())?;
        if !changes.is_empty() {
            let row = |change: &Change| {
                let Change { service, before_us, now_us, as_before } = change;
                let percent = (now_us / before_us - 1.0) * 100.0;
                let verdict = match (as_before, change.slower()) {
                    (true, _) => "as before",
                    (false, true) => "slower",
                    (false, false) => "faster",
                };
                let figures = [format!("{before_us:.2} µs"), format!("{now_us:.2} µs"), format!("{percent:+.1} %")];
                let [before, now, percent] = figures;
                [service.clone(), before, now, percent, verdict.to_owned()]
            };
            output.table(["SERVICE", "BEFORE", "NOW", "CHANGE", ""], changes.iter().map(row))?;
        }
        if explain {
            output.line(
                "CPU time is what the kernel counted for the service's threads while the load ran, the TCP path of \
                 loopback included, divided by the requests answered. It is compared since it says the same however \
                 much the load itself took of the CPUs; requests a second do not. A service is as before where rounds of \
                 then and now overlap, or differ by less than --tolerance.",
            )?;
        }
        Ok(())
    })?;
    if slower == 0 { Ok(()) } else { Err(Error::Slower(slower)) }
}
