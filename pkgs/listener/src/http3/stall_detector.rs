//! Detects whether a client takes what it is sent, over all its streams together. A client whose stream was reset for
//! stalling could otherwise request again, and stall again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::MIN_PROGRESS_BYTES;

/// The state of a connection's answers.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    /// Bytes for which there was room, without those of reset streams, whose room went to others.
    taken: AtomicU64,
    /// Answers that wait for room.
    waiting: AtomicUsize,
    /// Whether any answer waited since the last check.
    waited: AtomicBool,
}

/// An answer that waits for room. Dropping it ends the wait.
pub(super) struct Waiting<'a>(&'a StallDetector);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl StallDetector {
    /// Records that an answer waits for room.
    pub(super) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        self.waited.store(true, Relaxed);
        Waiting(self)
    }

    /// Records that there was room for this many bytes.
    pub(super) fn took(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Relaxed);
    }

    /// Records that a stream was reset for which this many bytes were recorded, of which no more than `window` bytes
    /// are unacknowledged. No client took those.
    pub(super) fn reset(&self, bytes: u64, window: u64) {
        self.taken.fetch_sub(bytes.min(window), Relaxed);
    }
}

/// The state of a [`StallDetector`] at the last check.
#[derive(Debug, Default)]
pub(super) struct StallWatch {
    taken: u64,
    /// Since when too little was taken.
    since: Option<Instant>,
}

impl StallWatch {
    /// Whether next to nothing was taken for `patience`, although there was something to take all the time.
    pub(super) fn is_over(&mut self, stall: &StallDetector, now: Instant, patience: Duration) -> bool {
        let taken = stall.taken.load(Relaxed);
        let waiting = stall.waiting.load(Relaxed) > 0;
        let waited = stall.waited.swap(waiting, Relaxed) || waiting;
        if !waited || taken.saturating_sub(self.taken) >= MIN_PROGRESS_BYTES as u64 {
            *self = Self { taken, since: None };
            return false;
        }
        let since = *self.since.get_or_insert(now);
        // A client that just lost its answer has not yet requested it again.
        waiting && now.saturating_duration_since(since) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 512 << 10;
    const PATIENCE: Duration = Duration::from_secs(4);

    /// Checks every second while something happens. Returns the second at which it is over.
    fn over(mut happens: impl FnMut(u64, &StallDetector)) -> Option<u64> {
        let (stall, mut watch, start) = (StallDetector::default(), StallWatch::default(), Instant::now());
        (0..100).find(|&second| {
            happens(second, &stall);
            watch.is_over(&stall, start + Duration::from_secs(second), PATIENCE)
        })
    }

    #[test]
    fn who_takes_nothing_is_over_though_its_streams_are_reset() {
        // Each answer fills the whole window, and waits for more.
        let asks = |every: u64| {
            over(move |second, stall| {
                if second % every == 0 {
                    if second > 0 {
                        stall.waiting.store(0, Relaxed);
                        stall.reset(WINDOW, WINDOW);
                    }
                    stall.took(WINDOW);
                    std::mem::forget(stall.wait());
                }
            })
        };
        // From the first check at which nothing more was taken.
        assert_eq!((asks(1), asks(3), asks(100)), (Some(5), Some(5), Some(5)));
    }

    #[test]
    fn who_takes_a_piece_now_and_then_or_waits_for_nothing_goes_on() {
        let slow = |bytes: u64| {
            over(move |second, stall| {
                if second == 0 {
                    std::mem::forget(stall.wait());
                }
                if second % 4 == 0 {
                    stall.took(bytes);
                }
            })
        };
        assert_eq!(slow(MIN_PROGRESS_BYTES as u64), None);
        assert_eq!(slow(MIN_PROGRESS_BYTES as u64 / 8), Some(4));
        assert_eq!(over(|_, _| ()), None);
        // One stream is reset, and nothing more is requested.
        let once = over(|second, stall| match second {
            0 => std::mem::forget(stall.wait()),
            3 => stall.waiting.store(0, Relaxed),
            _ => {}
        });
        assert_eq!(once, None);
    }

    #[test]
    fn what_was_acknowledged_of_a_stream_that_is_reset_was_taken() {
        let seeks = over(|second, stall| {
            if second > 0 {
                stall.waiting.store(0, Relaxed);
                stall.reset(2 * WINDOW, WINDOW);
            }
            stall.took(2 * WINDOW);
            std::mem::forget(stall.wait());
        });
        assert_eq!(seeks, None);
    }
}
