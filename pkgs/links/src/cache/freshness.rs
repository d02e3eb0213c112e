//! How long a cache may be used if its database has other writers, also while the database is away.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::generations::Generations;

/// How much is known about other writers. Reading the cache does not check this; instead, all stamps become outdated.
pub(super) struct Freshness {
    state: Mutex<State>,
    /// Notified when the cache becomes fresh for a limited time.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The last time before which every change is known.
    heard: Option<Instant>,
    /// Until when the cache may be used.
    until: Option<Instant>,
    /// Until when it is used while the database is away.
    away_until: Option<Instant>,
    fresh: bool,
}

impl Freshness {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new() }
    }

    /// Every change before `heard` is known, so the cache may be used for `bound` from then on.
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

    /// The database is away: the last known state is used for `limit` after it was last heard of.
    pub(super) fn linger(&self, limit: Duration) {
        let mut state = self.state();
        state.away_until = state.heard.map(|heard| heard + limit);
    }

    /// How long nothing was heard, if the cache is still used because the database is away.
    pub(super) fn lingers(&self) -> Option<Duration> {
        let (state, now) = (self.state(), Instant::now());
        let lingers = !state.fresh && state.away_until > Some(now);
        state.heard.filter(|_| lingers).map(|heard| now.saturating_duration_since(heard))
    }

    /// How long ago other servers' writes were last heard of; none if never.
    pub(super) fn age(&self) -> Option<Duration> {
        self.state().heard.map(|heard| heard.elapsed())
    }

    pub(super) fn holds(&self) -> bool {
        self.state().fresh
    }

    /// Ends the use of the cache whenever its time is over; never returns.
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
