//! Who is signed in. Sessions are in memory alone: they end with the process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::csrf;

/// Sessions at once; one more ends that which was used the longest ago.
const SESSIONS: usize = 64;

/// How long sessions live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// From the signing in on.
    pub(crate) whole: Duration,
    /// Without being used.
    pub(crate) idle: Duration,
}

/// The sessions there are, by the digest of what their cookie says: whoever reads our memory's leftovers signs in with none.
#[derive(Debug)]
pub(crate) struct Sessions {
    life: Life,
    all: Mutex<HashMap<[u8; 32], Session>>,
}

#[derive(Debug)]
struct Session {
    token: String,
    begun: Instant,
    used: Instant,
}

impl Sessions {
    /// None yet.
    pub(crate) fn new(life: Life) -> Self {
        Self { life, all: Mutex::default() }
    }

    /// Begins one with a token that was found to be good; what its cookie says.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub(crate) fn begin(&self, token: String, now: Instant) -> Result<String, getrandom::Error> {
        let id = csrf::random()?;
        let mut all = self.lock();
        all.retain(|_, session| session.lives(&self.life, now));
        if all.len() >= SESSIONS
            && let Some(oldest) = all.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id)
        {
            all.remove(&oldest);
        }
        all.insert(digest(&id), Session { token, begun: now, used: now });
        Ok(id)
    }

    /// The token of a session; with `use_it` it counts as used.
    pub(crate) fn token(&self, id: &str, use_it: bool, now: Instant) -> Option<String> {
        let mut all = self.lock();
        let session = all.get_mut(&digest(id)).filter(|session| session.lives(&self.life, now))?;
        if use_it {
            session.used = now;
        }
        Some(session.token.clone())
    }

    /// Ends one.
    pub(crate) fn end(&self, id: &str) {
        self.lock().remove(&digest(id));
    }

    /// Ends all that were begun with this token.
    pub(crate) fn end_all(&self, token: &str) {
        self.lock().retain(|_, session| session.token != token);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn lives(&self, life: &Life, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) < life.whole
            && now.saturating_duration_since(self.used) < life.idle
    }
}

fn digest(id: &str) -> [u8; 32] {
    Sha256::digest(id).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = Life { whole: Duration::from_secs(100), idle: Duration::from_secs(10) };

    fn sessions() -> (Sessions, Instant) {
        (Sessions::new(LIFE), Instant::now())
    }

    #[test]
    fn a_session_ends_unused_and_in_any_case_after_its_life() {
        let (sessions, begun) = sessions();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let id = sessions.begin("lr_1".into(), begun).expect("random");
        assert_eq!(sessions.token("another", true, begun), None);
        for seconds in (0..100).step_by(9) {
            assert_eq!(sessions.token(&id, true, at(seconds)).as_deref(), Some("lr_1"), "{seconds}");
        }
        assert_eq!(sessions.token(&id, true, at(100)), None, "however busy");
        let id = sessions.begin("lr_1".into(), begun).expect("random");
        for seconds in 0..10 {
            assert!(sessions.token(&id, false, at(seconds)).is_some());
        }
        assert_eq!(sessions.token(&id, false, at(10)), None, "looked at, and not used");
    }

    #[test]
    fn sessions_are_bounded_and_the_one_used_longest_ago_makes_room() {
        let (sessions, begun) = sessions();
        let at = |millis| begun + Duration::from_millis(millis);
        let ids: Vec<String> = (0..=SESSIONS as u64)
            .map(|number| sessions.begin(number.to_string(), at(number)).expect("random"))
            .collect();
        assert_eq!(sessions.lock().len(), SESSIONS);
        assert_eq!(sessions.token(&ids[0], true, at(100)), None);
        assert!(sessions.token(&ids[1], true, at(100)).is_some());
    }

    #[test]
    fn signing_out_everywhere_leaves_the_sessions_of_others() {
        let (sessions, now) = sessions();
        let [one, two, other] =
            ["lr_1", "lr_1", "lr_2"].map(|token| sessions.begin(token.into(), now).expect("random"));
        sessions.end_all("lr_1");
        assert_eq!(
            [one, two, other].map(|id| sessions.token(&id, true, now).is_some()),
            [false, false, true]
        );
    }
}
