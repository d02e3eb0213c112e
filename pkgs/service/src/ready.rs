//! Whether the service can answer, told to systemd and to whoever asks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;

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

    /// The service can answer, unless it is stopping already.
    pub fn set_ready(&self) {
        if self.set(State::Ready) {
            notify(&[NotifyState::Ready, NotifyState::Status("ready")]);
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

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
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
    fn nothing_is_ready_again_once_stopping() {
        let readiness = Readiness::new();
        readiness.set_stopping();
        readiness.set_ready();
        readiness.set_not_ready("disk full");
        assert_eq!(readiness.state(), State::Stopping);
    }
}
