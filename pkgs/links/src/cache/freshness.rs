//! How long a cache may be used if its database has other writers, or is unreachable.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::generations::Generations;

/// What is known about other writers. A read of the cache does not check this; instead, all stamps become outdated.
pub(super) struct Freshness {
    state: Mutex<State>,
    /// Notified when the cache becomes fresh for a limited time.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The last time before which every change is known.
    heard: Option<Instant>,
    /// The cache may be used until this time.
    until: Option<Instant>,
    /// The cache may be used until this time while the database is unreachable.
    away_until: Option<Instant>,
    fresh: bool,
}

impl Freshness {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new() }
    }

    /// Every change before `heard` is known, so the cache may be used until `bound` after it.
    pub(super) fn extend(&self, generations: &Generations, heard: Instant, bound: Duration) {
        let mut state = self.state();
        state.away_until = None;
        state.heard = state.heard.max(Some(heard));
        state.until = state.until.max(Some(heard + bound));
        if !state.fresh && state.until > Some(Instant::now()) {
            state.fresh = true;
            generations.set_stale(false);
            self.changed.notify_one();
        }
    }

    /// Tells that the database is unreachable. The last known state stays in use until `limit` after the last contact.
    pub(super) fn linger(&self, limit: Duration) {
        let mut state = self.state();
        state.away_until = state.heard.map(|heard| heard + limit);
    }

    /// The time since the last contact, if the cache is still in use although the database is unreachable.
    pub(super) fn lingers(&self) -> Option<Duration> {
        let (state, now) = (self.state(), Instant::now());
        let lingers = !state.fresh && state.away_until > Some(now);
        state.heard.filter(|_| lingers).map(|heard| now.saturating_duration_since(heard))
    }

    /// How long ago this process last heard of other servers' writes; `None` if never.
    pub(super) fn age(&self) -> Option<Duration> {
        self.state().heard.map(|heard| heard.elapsed())
    }

    pub(super) fn holds(&self) -> bool {
        self.state().fresh
    }

    /// Makes the cache invalid whenever its time is over; never returns.
    pub(super) fn watch(&self, generations: &Generations) -> ! {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            state = match state.until.filter(|_| state.fresh) {
                Some(until) if until > now => {
                    let waited = self.changed.wait_timeout(state, until - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    state.fresh = false;
                    generations.set_stale(true);
                    state
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
