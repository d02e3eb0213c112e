//! The outcome of each step, judged by measurements.

use bench::report::find;
use bench::rounds::{Series, median, median_interval};
use ladder::stage::Stage;
use ladder::verdict::{Gain, Verdict};
use serde::Serialize;

use crate::servers::CONTROL;

/// However well two processes of one stage agree, a smaller difference than this doesn't count, since the next build
/// may change it.
const RESOLUTION: f64 = 0.01;

/// A ladder with one workload.
#[derive(Debug, Serialize)]
pub struct Ladder {
    /// The workload.
    pub title: &'static str,
    /// How far apart two processes of one stage may be, as a fraction: less is noise.
    pub noise: f64,
    /// Its steps, in order.
    pub steps: Vec<Step>,
    /// How many times less CPU time a request takes at the end than at the start.
    pub gain: f64,
    /// How many times more requests are answered at the end than at the start.
    pub qps_gain: f64,
    /// The same according to the article.
    pub claimed_gain: f64,
}

/// A stage as measured. Times are microseconds; medians of the rounds.
#[derive(Debug, Serialize)]
pub struct Step {
    /// Its number, from 1.
    pub number: usize,
    /// Its change, in a word or two.
    pub name: &'static str,
    /// Requests per second.
    pub qps: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// The server's CPU time per request.
    pub cpu_us: f64,
    /// How many times less CPU time that is than in the previous stage.
    pub gain: Option<Gain>,
    /// How many times more requests per second that is than in the previous stage.
    pub qps_gain: Option<f64>,
    /// The verdict.
    pub verdict: Option<Verdict>,
    /// Requests per second according to the article.
    pub claimed_qps: u32,
    /// The article's gain in requests per second over the previous stage.
    pub claimed_gain: Option<f64>,
    /// What moved, and why.
    pub moved: String,
}

impl Ladder {
    /// Judges `stages` by their `all` measured series, among which the stage `twin` has a control.
    pub fn judge(title: &'static str, stages: &[Stage], twin: &str, all: &[Series]) -> Self {
        let get = |name| find(all, name, title).expect("every stage was measured");
        let noise = gain(get(twin), get(CONTROL)).apart().max(RESOLUTION);
        let mut before: Option<(&Stage, &Series)> = None;
        let mut steps = Vec::with_capacity(stages.len());
        for (stage, number) in stages.iter().zip(1..) {
            let series = get(stage.name);
            steps.push(Step::judge(number, before, (stage, series), noise));
            before = Some((stage, series));
        }
        let (first, last) = (&stages[0], &stages[stages.len() - 1]);
        Self {
            title,
            noise,
            steps,
            gain: get(first.name).cpu_ratio(get(last.name)),
            qps_gain: qps(get(last.name)) / qps(get(first.name)),
            claimed_gain: f64::from(last.claimed_qps) / f64::from(first.claimed_qps),
        }
    }
}

impl Step {
    fn judge(
        number: usize,
        before: Option<(&Stage, &Series)>,
        (stage, series): (&Stage, &Series),
        noise: f64,
    ) -> Self {
        let earlier = before.map(|(_, series)| series);
        let gain = earlier.map(|earlier| gain(earlier, series));
        Self {
            number,
            name: stage.name,
            qps: qps(series),
            p99_us: series.median(|sample| sample.p99_us),
            cpu_us: series.cpu_us(),
            gain,
            qps_gain: earlier.map(|earlier| qps(series) / qps(earlier)),
            verdict: gain.map(|gain| Verdict::of(gain, noise)),
            claimed_qps: stage.claimed_qps,
            claimed_gain: before
                .map(|(earlier, _)| f64::from(stage.claimed_qps) / f64::from(earlier.claimed_qps)),
            moved: moved(earlier, series, stage.change),
        }
    }
}

fn qps(series: &Series) -> f64 {
    series.median(|sample| sample.qps)
}

/// How many times less CPU time `after` takes than `before`, round by round.
fn gain(before: &Series, after: &Series) -> Gain {
    let rounds =
        before.samples.iter().zip(&after.samples).map(|(before, after)| before.cpu_us / after.cpu_us);
    let (low, high) = median_interval(rounds.clone());
    Gain { median: median(rounds), low, high }
}

/// How the CPU time changed, and the explanation of the change.
fn moved(before: Option<&Series>, after: &Series, change: &str) -> String {
    let parts = |series: &Series| {
        (series.median(|sample| sample.user_us), series.median(|sample| sample.cpu_us - sample.user_us))
    };
    let (user, kernel) = parts(after);
    before.map(parts).map_or_else(
        || format!("user {user:.1} µs, kernel {kernel:.1} µs. {change}"),
        |(user_before, kernel_before)| {
            format!(
                "user {user_before:.1} to {user:.1} µs, kernel {kernel_before:.1} to {kernel:.1} µs. {change}"
            )
        },
    )
}
