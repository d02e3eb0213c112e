//! Whether the workers go on: what the service manager's watchdog is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Metrics;

/// A worker that has not ticked for this long is stuck: it ticks four times a second, and nothing it does
/// in between should take more than some milliseconds.
const STUCK: Duration = Duration::from_secs(5);

/// The workers' ticks, as last looked at.
pub struct Pulse {
    metrics: Arc<Metrics>,
    last: Vec<(u64, Instant)>,
}

impl Pulse {
    /// Of these workers, which count as alive until they have had time to tick.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        let now = Instant::now();
        let last = metrics.ticks().into_iter().map(|ticks| (ticks, now)).collect();
        Self { metrics, last }
    }

    /// Whether every worker has ticked lately.
    pub fn beats(&mut self) -> bool {
        self.beats_at(Instant::now())
    }

    fn beats_at(&mut self, now: Instant) -> bool {
        for (last, ticks) in self.last.iter_mut().zip(self.metrics.ticks()) {
            if last.0 != ticks {
                *last = (ticks, now);
            }
        }
        self.last.iter().all(|(_, at)| now.duration_since(*at) < STUCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stuck_worker_stops_the_pulse() {
        let metrics = Arc::new(Metrics::new(2));
        let mut pulse = Pulse::new(Arc::clone(&metrics));
        let start = Instant::now();
        for second in 1..=10 {
            metrics.worker(0).ticks.add(1);
            if second <= 3 {
                metrics.worker(1).ticks.add(1);
            }
            let beats = pulse.beats_at(start + Duration::from_secs(second));
            assert_eq!(beats, second < 3 + STUCK.as_secs(), "after {second} s");
        }
    }
}
