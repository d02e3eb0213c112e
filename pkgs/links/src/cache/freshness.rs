//! For how long a cache may be used whose database has other writers, and what becomes of it while that is away.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::generations::Generations;

/// What is known of other writers. Reading what is cached asks none of this: it is the stamps that no longer are the
/// present ones.
pub(super) struct Freshness {
    state: Mutex<State>,
    /// It has become fresh, and will not be so for ever.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The last instant before which every change was heard of.
    heard: Option<Instant>,
    /// Until when the cache may be used.
    until: Option<Instant>,
    /// Until when it goes on while the database is away.
    away_until: Option<Instant>,
    fresh: bool,
}

impl Freshness {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), changed: Condvar::new() }
    }

    /// Every change before `heard` was heard of: the cache may be used for `bound` from then on.
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

    /// The database is away: what was right when it was heard of last is used for `limit` from then on.
    pub(super) fn linger(&self, limit: Duration) {
        let mut state = self.state();
        state.away_until = state.heard.map(|heard| heard + limit);
    }

    /// For how long nothing was heard, where the cache is used all the same because the database is away.
    pub(super) fn lingers(&self) -> Option<Duration> {
        let (state, now) = (self.state(), Instant::now());
        let lingers = !state.fresh && state.away_until > Some(now);
        state.heard.filter(|_| lingers).map(|heard| now.saturating_duration_since(heard))
    }

    /// For how long what others write has not been heard of; none where it never was.
    pub(super) fn age(&self) -> Option<Duration> {
        self.state().heard.map(|heard| heard.elapsed())
    }

    pub(super) fn holds(&self) -> bool {
        self.state().fresh
    }

    /// Ends the use of the cache when its time is over, again and again.
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
