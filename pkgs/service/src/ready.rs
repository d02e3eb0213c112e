//! Whether the service can answer, told to systemd and to whoever asks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::{handover, manager, socket};

/// Whether the service can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It cannot yet.
    Starting,
    /// It can.
    Ready,
    /// It cannot now, and why.
    NotReady(String),
    /// It finishes what it has begun.
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

/// The one [`State`] of a process; clones share it.
///
/// Each change is told to systemd when it asks for it (`Type=notify`), and dropped otherwise: a
/// service that cannot reach its manager still serves.
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

    /// The service can answer, unless it is stopping already. It listens on all it will: what systemd has kept of
    /// [other sockets](crate::socket::forget_the_rest) is closed. Who [asked for this process](crate::handover::Reload)
    /// is told.
    pub fn set_ready(&self) {
        if self.set(State::Ready) {
            socket::keep_what_was_handed_over();
            socket::forget_the_rest();
            notify(&[NotifyState::Ready, NotifyState::Status("ready")]);
            handover::tell_starter();
        }
    }

    /// The service cannot answer, because of `reason`, unless it is stopping already.
    pub fn set_not_ready(&self, reason: impl Into<String>) {
        let state = State::NotReady(reason.into());
        let status = state.to_string();
        if self.set(state) {
            notify(&[NotifyState::Status(&status)]);
        }
    }

    /// The service finishes what it has begun; there is no way back.
    pub fn set_stopping(&self) {
        if self.set(State::Stopping) {
            notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
        }
    }

    /// How it is now.
    pub fn state(&self) -> State {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is [`State::Ready`].
    pub fn is_ready(&self) -> bool {
        self.state() == State::Ready
    }

    /// Whether this changed anything.
    fn set(&self, next: State) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = *state != State::Stopping && *state != next;
        if changes {
            *state = next;
        }
        changes
    }
}

/// Pings systemd's watchdog from a thread of its own at half the interval it asks for
/// (`WatchdogSec=`), as sd_watchdog_enabled(3) advises, while `alive` holds. Does nothing when
/// systemd does not ask.
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

/// How long a worker may go without a beat before [`Heartbeats::watch`] takes it for stuck. Workers beat a few times a
/// second, and nothing they do in between should take more than some milliseconds.
pub const STUCK: Duration = Duration::from_secs(5);

/// What a worker whose work is done has instead of a number of beats.
const DONE: u64 = u64::MAX;

/// The signs of life of some workers, for [`watchdog`]; clones share them.
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

/// A worker's. Alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Beat(AtomicU64);

impl Heartbeats {
    /// Of so many workers, none of which has begun.
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Beat::default()).collect())
    }

    /// The `index`-th worker goes on. For that worker alone; costs a plain load and store.
    #[inline]
    pub fn beat(&self, index: usize) {
        let beat = &self.0[index].0;
        let last = beat.load(Relaxed);
        // Who has ended may have a clock that has not heard of it.
        if last != DONE {
            beat.store((last + 1) % DONE, Relaxed);
        }
    }

    /// The `index`-th worker has ended as it should, and is not waited for any more.
    pub fn done(&self, index: usize) {
        self.0[index].0.store(DONE, Relaxed);
    }

    /// Looks at them from now on, until when all count as alive. A worker that has not beaten for `stuck` is not.
    pub fn watch(&self, stuck: Duration) -> Watch {
        let now = Instant::now();
        let last = self.0.iter().map(|beat| (beat.0.load(Relaxed), now)).collect();
        Watch { beats: self.clone(), stuck, last }
    }
}

/// [`Heartbeats`] as last looked at.
#[derive(Debug)]
pub struct Watch {
    beats: Heartbeats,
    stuck: Duration,
    last: Vec<(u64, Instant)>,
}

impl Watch {
    /// Whether every worker has beaten lately, or is done.
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
