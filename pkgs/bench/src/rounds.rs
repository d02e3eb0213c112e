//! Servers loaded in turn, round after round, and the medians over the rounds.
//!
//! A machine's speed drifts: other tenants, clock speed, caches. Cases that alternate drift together, so each round
//! gives a fair ratio, and the median over the rounds removes outliers.

use std::time::Duration;

use crate::error::Error;
use crate::server::{Placement, Server};
use crate::wrk::{Load, Outcome, Requests};

/// One line of the table: a server with one kind of request.
pub struct Case<'a> {
    /// The server, already running.
    pub server: &'a Server,
    /// What the requests have in common.
    pub name: &'static str,
    /// The requests.
    pub requests: Requests,
    /// How they are sent.
    pub load: Load,
    /// Where the load runs: beside the server.
    pub placement: Placement,
}

/// A server with a load that may come from something other than wrk or h2load.
pub struct LoadedServer<'a> {
    /// The server, already running.
    pub server: &'a Server,
    /// What the requests have in common.
    pub name: &'static str,
    /// Loads it for about this long.
    pub load: Box<dyn Fn(Duration) -> Result<Outcome, Error> + 'a>,
}

/// One round's figures. Times are microseconds; a latency that wrk can't report is NaN.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Requests per second.
    pub qps: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// The server's CPU time per request.
    pub cpu_us: f64,
    /// The part of it in user mode.
    pub user_us: f64,
}

/// A case's figures over all rounds.
#[derive(Clone, Debug)]
pub struct Series {
    /// The server's name.
    pub server: &'static str,
    /// The case's name.
    pub case: &'static str,
    /// One per round, in order.
    pub samples: Vec<Sample>,
    /// Resident memory after the last round, in bytes.
    pub resident: u64,
}

/// Loads each case in turn, `rounds` times, after a first round of one second each for warming up.
pub fn alternate(rounds: usize, cases: &[Case<'_>]) -> Result<Vec<Series>, Error> {
    alternate_in(rounds, cases, |_| Ok(()))
}

/// The same, while holding what `surroundings` returns for a case.
pub fn alternate_in<S>(
    rounds: usize,
    cases: &[Case<'_>],
    mut surroundings: impl FnMut(&Case<'_>) -> Result<S, Error>,
) -> Result<Vec<Series>, Error> {
    for case in cases {
        let _held = surroundings(case)?;
        // A path that takes content isn't requested without it.
        if case.requests.content.is_none() {
            case.server.expect(&case.requests.path, case.requests.status)?;
        }
        measure(Load { seconds: 1, ..case.load }, case)?;
    }
    let mut all: Vec<Series> = cases.iter().map(|case| Series::new(case.server, case.name)).collect();
    for round in 1..=rounds {
        for (case, series) in cases.iter().zip(&mut all) {
            let _held = surroundings(case)?;
            series.push(measure(case.load, case)?, case.server, (round, rounds))?;
        }
    }
    Ok(all)
}

/// Loads each case in turn for `time`, `rounds` times, after a first round for warming up.
pub fn alternate_loads(
    rounds: usize,
    time: Duration,
    cases: &[LoadedServer<'_>],
) -> Result<Vec<Series>, Error> {
    for case in cases {
        (case.load)(time.min(Duration::from_secs(1)))?;
    }
    let mut all: Vec<Series> = cases.iter().map(|case| Series::new(case.server, case.name)).collect();
    for round in 1..=rounds {
        for (case, series) in cases.iter().zip(&mut all) {
            let sample = sample(case.server, || (case.load)(time))?;
            series.push(sample, case.server, (round, rounds))?;
        }
    }
    Ok(all)
}

/// Adds the samples from further rounds.
pub fn merge(all: &mut Vec<Series>, more: Vec<Series>) {
    for series in more {
        let known = all.iter_mut().find(|known| known.server == series.server && known.case == series.case);
        match known {
            Some(known) => {
                known.samples.extend(series.samples);
                known.resident = series.resident;
            }
            None => all.push(series),
        }
    }
}

fn measure(load: Load, case: &Case<'_>) -> Result<Sample, Error> {
    sample(case.server, || load.run(case.server, case.placement, case.name, &case.requests))
}

/// What a load cost its server.
fn sample(server: &Server, load: impl FnOnce() -> Result<Outcome, Error>) -> Result<Sample, Error> {
    let before = server.usage()?;
    let outcome = load()?;
    let after = server.usage()?;
    let requests = outcome.requests as f64;
    Ok(Sample {
        qps: requests / outcome.elapsed.as_secs_f64(),
        p50_us: outcome.p50.map_or(f64::NAN, microseconds),
        p99_us: outcome.p99.map_or(f64::NAN, microseconds),
        cpu_us: microseconds(after.cpu().saturating_sub(before.cpu())) / requests,
        user_us: microseconds(after.user.saturating_sub(before.user)) / requests,
    })
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Series {
    fn new(server: &Server, case: &'static str) -> Self {
        Self { server: server.name(), case, samples: Vec::new(), resident: 0 }
    }

    /// Adds and prints a round's results.
    fn push(
        &mut self,
        sample: Sample,
        server: &Server,
        (round, rounds): (usize, usize),
    ) -> Result<(), Error> {
        eprintln!(
            "round {round}/{rounds}  {:<14} {:<14} {:>9.0}/s {:>7.3} µs",
            self.case, self.server, sample.qps, sample.cpu_us
        );
        self.samples.push(sample);
        self.resident = server.usage()?.resident;
        Ok(())
    }

    /// The median of one figure over the rounds.
    pub fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(figure))
    }

    /// The server's CPU time per request, in microseconds: the median of the rounds.
    pub fn cpu_us(&self) -> f64 {
        self.median(|sample| sample.cpu_us)
    }

    /// The lowest and the highest CPU time per request of all rounds, in microseconds.
    pub fn cpu_spread(&self) -> (f64, f64) {
        let cpu = self.samples.iter().map(|sample| sample.cpu_us);
        cpu.fold((f64::INFINITY, 0.0), |(low, high), us| (low.min(us), high.max(us)))
    }

    /// CPU time per request as a multiple of `other`'s: the median of the rounds' ratios.
    pub fn cpu_ratio(&self, other: &Self) -> f64 {
        median(self.samples.iter().zip(&other.samples).map(|(ours, theirs)| ours.cpu_us / theirs.cpu_us))
    }
}

/// The interval between two of the values that contains the true median in at least 95 of 100 such measurements. This
/// holds for any distribution, since each value is below the median with probability one half. With fewer than six
/// values, it is the lowest and the highest one. NaN without values.
pub fn median_interval(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // Finds the highest rank at which the value of this rank and its counterpart from above exclude the median at most
    // once in 20 times.
    let (mut rank, mut chance, mut beyond) = (0, 0.5_f64.powi(count as i32), 0.0);
    while rank < count / 2 {
        beyond += 2.0 * chance;
        if beyond > 0.05 {
            break;
        }
        chance *= (count - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    let first = rank.saturating_sub(1);
    match (sorted.get(first), sorted.get(count.wrapping_sub(first + 1))) {
        (Some(low), Some(high)) => (*low, *high),
        _ => (f64::NAN, f64::NAN),
    }
}

/// The middle value; for an even number, the mean of the middle two; NaN without values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(cpu: &[f64]) -> Series {
        let samples = cpu.iter().map(|&cpu_us| Sample { cpu_us, ..Sample::default() }).collect();
        Series { server: "s", case: "c", samples, resident: 0 }
    }

    #[test]
    fn medians_ignore_the_odd_one_out() {
        assert_eq!(median([5.0, 900.0, 4.0].into_iter()), 5.0);
        assert_eq!(median([1.0, 2.0, 4.0, 8.0].into_iter()), 3.0);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn the_interval_of_a_median_leaves_out_what_coins_would() {
        // Two tails of (1), (1 + 9) and (1 + 11) of 2^n throws are below 5 %; with the next value they would be above.
        let cases = [
            (1, (0.0, 0.0)),
            (3, (0.0, 2.0)),
            (5, (0.0, 4.0)),
            (6, (0.0, 5.0)),
            (9, (1.0, 7.0)),
            (11, (1.0, 9.0)),
        ];
        for (count, expected) in cases {
            assert_eq!(median_interval((0..count).rev().map(f64::from)), expected, "{count}");
        }
        assert!(median_interval(std::iter::empty()).0.is_nan());
    }

    #[test]
    fn ratios_pair_the_rounds() {
        // The machine slows down threefold over the rounds, which the ratio doesn't show.
        let (ours, theirs) = (series(&[2.0, 4.0, 6.0]), series(&[4.0, 8.0, 12.0]));
        assert_eq!(ours.cpu_ratio(&theirs), 0.5);
        assert_eq!(ours.cpu_spread(), (2.0, 6.0));
    }
}
