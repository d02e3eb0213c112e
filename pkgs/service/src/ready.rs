//! Whether the service can answer, for systemd and for clients that ask.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::process::start_code;
use crate::{handover, manager, socket};

/// How much longer than it drains a process may take to stop.
const CLOSING: Duration = Duration::from_secs(10);

/// How long this process takes to stop, in microseconds, as far as is known.
static STOPPING: AtomicU64 = AtomicU64::new(0);

/// This process drains for as long as this when it stops; of several times, the longest counts. systemd then waits for
/// 10 s more, even if the unit's `TimeoutStopSec=` is shorter.
pub fn drains_for(drain: Duration) {
    let stopping = drain.saturating_add(CLOSING).as_micros();
    STOPPING.fetch_max(u64::try_from(stopping).unwrap_or(u64::MAX), Relaxed);
}

/// Whether the service can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not yet.
    Starting,
    /// Yes.
    Ready,
    /// Not now, for this reason.
    NotReady(String),
    /// It only finishes what it has started.
    Stopping,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Ready => f.write_str("ready"),
            Self::NotReady(reason) => write!(f, "not ready: {reason}"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

/// The [`State`] of a process. Clones share it.
///
/// Each change is sent to systemd if it wants to know (`Type=notify`). Errors are ignored: a service that cannot reach
/// its manager still serves.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<State>>);

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// [`State::Starting`].
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Starting)))
    }

    /// The service can answer, unless it is already stopping. It listens on all its sockets, so [other
    /// sockets](crate::socket::forget_the_rest) that systemd has kept are closed. The process that [asked for this
    /// one](crate::handover::Reload) is told.
    pub fn set_ready(&self) {
        if self.set(State::Ready) {
            socket::keep_what_was_handed_over();
            socket::forget_the_rest();
            notify(&[NotifyState::Ready, NotifyState::Status("ready")]);
            handover::tell_starter();
            static ONCE: Once = Once::new();
            ONCE.call_once(start_code::release_soon);
        }
    }

    /// The service cannot answer, for this `reason`, unless it is already stopping.
    pub fn set_not_ready(&self, reason: impl Into<String>) {
        let state = State::NotReady(reason.into());
        let status = state.to_string();
        if self.set(state) {
            notify(&[NotifyState::Status(&status)]);
        }
    }

    /// The service finishes what it has started, [for as long as it drains](drains_for). This is final.
    pub fn set_stopping(&self) {
        if self.set(State::Stopping) {
            // As text, since the type for it holds no more than 71 minutes. Zero changes nothing.
            let extend = format!("EXTEND_TIMEOUT_USEC={}", STOPPING.load(Relaxed));
            notify(&[NotifyState::Stopping, NotifyState::Status("stopping"), NotifyState::Custom(&extend)]);
        }
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is [`State::Ready`].
    pub fn is_ready(&self) -> bool {
        self.state() == State::Ready
    }

    /// Sets the state. Returns whether that changed anything.
    fn set(&self, next: State) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = *state != State::Stopping && *state != next;
        if changes {
            *state = next;
        }
        changes
    }
}

/// Pings systemd's watchdog while `alive` holds, from a separate thread, at half the requested interval
/// (`WatchdogSec=`) as sd_watchdog_enabled(3) advises. Does nothing if systemd requests no pings.
///
/// # Errors
/// When the thread cannot be started.
pub fn watchdog(mut alive: impl FnMut() -> bool + Send + 'static) -> std::io::Result<()> {
    let Some(interval) = sd_notify::watchdog_enabled().filter(|interval| *interval > Duration::ZERO) else {
        return Ok(());
    };
    std::thread::Builder::new().name("watchdog".into()).spawn(move || {
        loop {
            if alive() {
                notify(&[NotifyState::Watchdog]);
            }
            std::thread::sleep(interval / 2);
        }
    })?;
    Ok(())
}

/// After this long without a beat, [`Heartbeats::watch`] considers a worker stuck. Workers beat a few times a second,
/// and nothing in between should take more than some milliseconds.
pub const STUCK: Duration = Duration::from_secs(5);

/// The count of a worker whose work is done.
const DONE: u64 = u64::MAX;

/// The heartbeats of workers, for [`watchdog`]. Clones share them.
///
/// ```
/// use service::ready::{Heartbeats, STUCK, watchdog};
///
/// let beats = Heartbeats::new(2);
/// let mut workers = beats.watch(STUCK);
/// watchdog(move || workers.alive())?;
/// // Each worker, a few times a second:
/// beats.beat(0);
/// # Ok::<_, std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Heartbeats(Arc<[Beat]>);

/// A worker's count, on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Beat(AtomicU64);

impl Heartbeats {
    /// For this many workers, none of which has started.
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Beat::default()).collect())
    }

    /// The `index`-th worker is alive. Only for that worker; costs a plain load and store.
    #[inline]
    pub fn beat(&self, index: usize) {
        let beat = &self.0[index].0;
        let last = beat.load(Relaxed);
        // A worker's timer may beat once more after the worker has ended.
        if last != DONE {
            beat.store((last + 1) % DONE, Relaxed);
        }
    }

    /// The `index`-th worker has ended properly, and is no longer watched.
    pub fn done(&self, index: usize) {
        self.0[index].0.store(DONE, Relaxed);
    }

    /// Starts to watch the workers. Until the first look all count as alive. From then on, a worker without a beat for
    /// `stuck` does not.
    pub fn watch(&self, stuck: Duration) -> Watch {
        let now = Instant::now();
        let last = self.0.iter().map(|beat| (beat.0.load(Relaxed), now)).collect();
        Watch { beats: self.clone(), stuck, last }
    }
}

/// [`Heartbeats`] at the last look.
#[derive(Debug)]
pub struct Watch {
    beats: Heartbeats,
    stuck: Duration,
    last: Vec<(u64, Instant)>,
}

impl Watch {
    /// Whether every worker has beaten recently, or is done.
    pub fn alive(&mut self) -> bool {
        self.alive_at(Instant::now())
    }

    fn alive_at(&mut self, now: Instant) -> bool {
        for (last, beat) in self.last.iter_mut().zip(&*self.beats.0) {
            let beat = beat.0.load(Relaxed);
            if last.0 != beat {
                *last = (beat, now);
            }
        }
        self.last.iter().all(|&(beat, at)| beat == DONE || now.saturating_duration_since(at) < self.stuck)
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = manager::notify(states, &[]) {
        tracing::warn!(%error, "cannot reach the service manager");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_state() {
        let readiness = Readiness::new();
        let clone = readiness.clone();
        assert_eq!(clone.state(), State::Starting);
        readiness.set_ready();
        assert!(clone.is_ready());
        readiness.set_not_ready("disk full");
        assert_eq!(clone.state().to_string(), "not ready: disk full");
    }

    #[test]
    fn one_stuck_worker_is_enough() {
        let beats = Heartbeats::new(3);
        let mut watch = beats.watch(STUCK);
        let start = Instant::now();
        beats.done(2);
        for second in 1..=10 {
            beats.beat(0);
            if second <= 3 {
                beats.beat(1);
            }
            let alive = watch.alive_at(start + Duration::from_secs(second));
            assert_eq!(alive, second < 3 + STUCK.as_secs(), "after {second} s");
        }
        beats.beat(1);
        assert!(watch.alive_at(start + Duration::from_secs(11)), "it goes on after all");
    }

    #[test]
    fn nothing_is_ready_again_once_stopping() {
        let readiness = Readiness::new();
        readiness.set_stopping();
        readiness.set_ready();
        readiness.set_not_ready("disk full");
        assert_eq!(readiness.state(), State::Stopping);
    }
}
