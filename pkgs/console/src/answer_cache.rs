//! Caches answers of services for a short time, so that not every page and every piece of an upload sends the same
//! request again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// How many answers are cached: one for each possible session.
const MOST: usize = 64;

/// Answers, by the digest of the key that was used to get them.
#[derive(Debug)]
pub(crate) struct AnswerCache<T> {
    fresh: Duration,
    known: Mutex<HashMap<[u8; 32], (Instant, T)>>,
}

impl<T: Clone> AnswerCache<T> {
    /// A cache whose entries are valid for this long.
    pub(crate) fn new(fresh: Duration) -> Self {
        Self { fresh, known: Mutex::default() }
    }

    /// The cached answer for this key, or a new one. Failures aren't cached.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(crate) async fn of<E>(&self, key: &str, ask: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        if let Some(known) = self.get(key, Instant::now()) {
            return Ok(known);
        }
        let found = ask.await?;
        self.put(key, found.clone(), Instant::now());
        Ok(found)
    }

    fn get(&self, key: &str, now: Instant) -> Option<T> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, found) = known.get(&digest(key))?;
        (now.saturating_duration_since(*at) < self.fresh).then(|| found.clone())
    }

    fn put(&self, key: &str, found: T, now: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, (at, _)| now.saturating_duration_since(*at) < self.fresh);
        }
        if known.len() < MOST {
            known.insert(digest(key), (now, found));
        }
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_a_while_and_for_its_key_alone() {
        let (cache, begun) = (AnswerCache::new(Duration::from_secs(5)), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        cache.put("a", 1, begun);
        for (key, seconds, found) in [("a", 0, Some(1)), ("a", 4, Some(1)), ("a", 5, None), ("b", 0, None)] {
            assert_eq!(cache.get(key, at(seconds)), found, "{key} {seconds}");
        }
    }

    #[test]
    fn answers_are_bounded() {
        let (cache, begun) = (AnswerCache::new(Duration::from_secs(5)), Instant::now());
        for key in 0..=MOST {
            cache.put(&key.to_string(), key, begun);
        }
        assert_eq!(cache.known.lock().expect("a lock").len(), MOST);
        cache.put("later", 0, begun + Duration::from_secs(5));
        assert_eq!(cache.known.lock().expect("a lock").len(), 1, "the old ones make room");
    }

    #[tokio::test]
    async fn what_fails_is_asked_for_again() {
        let cache = AnswerCache::new(Duration::from_secs(5));
        assert_eq!(cache.of("a", async { Err::<u8, _>("down") }).await, Err("down"));
        assert_eq!(cache.of("a", async { Ok::<_, &str>(1) }).await, Ok(1));
        assert_eq!(cache.of("a", async { Err::<u8, _>("down") }).await, Ok(1));
    }
}
