//! The API keys, all in memory: a request with a known key needs no query, and any number of requests with unknown keys
//! share a few queries per second.
//!
//! An unknown key may have been created moments ago, so its request waits for a query that starts after it came.
//! Queries run one after the other and are [paced](Pace); everybody who waits for one gets its result. Nonexistent keys
//! are not remembered, so nobody can fill that memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use crate::store::{Error, Key};

use super::cache::Freshness;

/// How many queries may follow each other without a pause.
const BURST: u32 = 10;

/// The interval of queries in the long run.
const EACH: Duration = Duration::from_millis(100);

/// Queries may take one part in this many of the time. If there are so many keys that a query takes long, queries
/// become rarer.
const PART: u32 = 10;

/// The longest pause before a query, however long the one before took.
const PAUSE: Duration = Duration::from_secs(1);

/// The keys, as of the last query that succeeded.
pub struct Keyring {
    known: ArcSwap<Known>,
    /// The number of times that keys may have changed.
    epoch: AtomicU64,
    looking: Mutex<Looking>,
    looks: AtomicU64,
    freshness: Arc<Freshness>,
    staleness: Duration,
    /// How long a request waits for a query to begin.
    patience: Duration,
}

/// The last query that succeeded. A later failure takes nothing away, since known keys are used while the database is
/// away.
struct Known {
    keys: HashMap<[u8; 32], Arc<Key>>,
    begun: Instant,
    epoch: u64,
}

/// The last query, which may have failed.
struct Looking {
    pace: Pace,
    begun: Instant,
    epoch: u64,
    failed: Option<Error>,
}

impl Keyring {
    /// An empty keyring. Results are valid while `freshness` holds, and for `staleness` without it. Beyond the pause
    /// before a query, a request waits for `patience` at most until one begins.
    pub fn new(freshness: Arc<Freshness>, staleness: Duration, patience: Duration) -> Self {
        let now = Instant::now();
        Self {
            known: ArcSwap::from_pointee(Known { keys: HashMap::new(), begun: now, epoch: 0 }),
            epoch: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            looking: Mutex::new(Looking {
                pace: Pace { ahead: Duration::ZERO, at: now },
                begun: now,
                epoch: 0,
                // There was no query yet.
                failed: Some(Error::Busy),
            }),
            freshness,
            staleness,
            patience: patience.saturating_add(PAUSE),
        }
    }

    /// Keys may have changed.
    pub fn change(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of queries.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The key of a digest, if it is known and still valid.
    pub fn get(&self, digest: &[u8; 32]) -> Option<Arc<Key>> {
        let known = self.known.load();
        let key = known.keys.get(digest)?;
        let right = known.epoch == self.epoch.load(Ordering::Acquire)
            && (self.freshness.holds()
                || self.freshness.lingers().is_some()
                || known.begun.elapsed() < self.staleness);
        right.then(|| Arc::clone(key))
    }

    /// The current key of a digest; `look` reads all keys.
    ///
    /// # Errors
    /// [`Error::Busy`] if an earlier query takes too long; the error of the query.
    pub async fn find(
        &self,
        digest: &[u8; 32],
        look: impl AsyncFnOnce() -> Result<Vec<Key>, Error>,
    ) -> Result<Option<Arc<Key>>, Error> {
        if let Some(key) = self.get(digest) {
            return Ok(Some(key));
        }
        let (came, epoch) = (Instant::now(), self.epoch.load(Ordering::SeqCst));
        let outdated = |looking: &Looking| looking.begun < came || looking.epoch < epoch;
        let turn = async {
            let mut looking = self.looking.lock().await;
            if outdated(&looking) {
                looking.pace.wait().await;
            }
            looking
        };
        // A query that hangs does not make all others wait as long.
        let turn = tokio::time::timeout(self.patience, turn).await;
        let mut looking = turn.map_err(|_| Error::Busy)?;
        if outdated(&looking) {
            self.looks.fetch_add(1, Ordering::Relaxed);
            let (begun, epoch) = (Instant::now(), self.epoch.load(Ordering::SeqCst));
            let looked = look().await.map(|keys| {
                let keys = keys.into_iter().map(|key| (key.digest, Arc::new(key))).collect();
                self.known.store(Arc::new(Known { keys, begun, epoch }));
            });
            // While the database hangs, a failure says nothing about how long a query takes.
            if looked.is_ok() {
                looking.pace.took(begun.elapsed());
            }
            (looking.begun, looking.epoch, looking.failed) = (begun, epoch, looked.err());
        }
        match &looking.failed {
            Some(error) => Err(error.again()),
            None => Ok(self.known.load().keys.get(digest).cloned()),
        }
    }
}

/// When the next query may run. It is a token bucket, stored as the time by which queries are ahead of their rate.
struct Pace {
    ahead: Duration,
    at: Instant,
}

impl Pace {
    async fn wait(&mut self) {
        let most = EACH * BURST;
        let now = Instant::now();
        self.ahead = self.ahead.saturating_sub(now - self.at);
        self.at = now;
        if let Some(wait) = (self.ahead + EACH).checked_sub(most).filter(|wait| !wait.is_zero()) {
            tokio::time::sleep(wait).await;
        }
        self.ahead += EACH;
    }

    fn took(&mut self, time: Duration) {
        let most = EACH * (BURST - 1) + PAUSE;
        self.ahead = (self.ahead + time.saturating_mul(PART).saturating_sub(EACH)).min(most);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::store::{LastUse, Scope};

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn key(number: u8) -> Key {
        Key {
            id: number.into(),
            digest: [number; 32],
            name: String::new(),
            scope: Scope::Read,
            rate: None,
            burst: None,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            expires_at: None,
            last_use: LastUse::never(),
        }
    }

    fn keyring() -> Arc<Keyring> {
        Arc::new(Keyring::new(Arc::new(Freshness::forever()), Duration::ZERO, PATIENCE))
    }

    #[tokio::test]
    async fn a_known_key_is_looked_for_once_and_again_when_keys_change() {
        let (keyring, looks) = (keyring(), AtomicUsize::new(0));
        let find = async |number: u8, there: u8| {
            let look = async || {
                looks.fetch_add(1, Ordering::Relaxed);
                Ok((0..there).map(key).collect())
            };
            let found = keyring.find(&[number; 32], look).await.expect("it is looked for");
            (found.map(|key| key.id), looks.load(Ordering::Relaxed))
        };
        assert_eq!(find(1, 2).await, (Some(1), 1));
        assert_eq!(find(0, 2).await, (Some(0), 1));
        assert_eq!(find(2, 2).await, (None, 2));
        // It was created a moment ago, and no notification has come yet.
        assert_eq!(find(2, 3).await, (Some(2), 3));
        keyring.change();
        assert_eq!(keyring.get(&[1; 32]), None);
        assert_eq!(find(1, 1).await, (None, 4));
    }

    #[tokio::test]
    async fn however_many_unknown_keys_come_the_looks_are_few() {
        let (keyring, looks) = (keyring(), Arc::new(AtomicUsize::new(0)));
        let (begin, mut finding) = (Instant::now(), tokio::task::JoinSet::new());
        for round in 0..200_u32 {
            for number in 0..50 {
                let (keyring, looks) = (Arc::clone(&keyring), Arc::clone(&looks));
                finding.spawn(async move {
                    let look = async || {
                        looks.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                        Ok(vec![key(255)])
                    };
                    keyring.find(&[number; 32], look).await.expect("it is looked for")
                });
            }
            if round % 10 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let found = finding.join_all().await;
        assert!(found.iter().all(Option::is_none));
        // The bound takes into account how long the machine took for all of them.
        let most = u128::from(BURST) + begin.elapsed().as_nanos() / EACH.as_nanos() + 1;
        let looks = looks.load(Ordering::Relaxed);
        assert!(looks >= 1 && looks as u128 <= most, "{looks} of {most}");
        // Clients with a known key do not wait.
        assert_eq!(keyring.get(&[255; 32]).map(|key| key.id), Some(255));
    }

    #[tokio::test]
    async fn a_look_that_fails_is_told_to_all_who_waited_for_it() {
        let keyring = keyring();
        let failed = async || Err(Error::Unreachable("away".into()));
        for _ in 0..2 {
            assert!(matches!(keyring.find(&[1; 32], failed).await, Err(Error::Unreachable(_))));
        }
        assert!(matches!(keyring.find(&[1; 32], async || Ok(vec![key(1)])).await, Ok(Some(_))));
    }

    #[tokio::test]
    async fn a_look_that_hangs_and_fails_delays_no_later_one() {
        let keyring = keyring();
        let hangs = async || {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Err(Error::Unreachable("it hangs".into()))
        };
        assert!(keyring.find(&[1; 32], hangs).await.is_err());
        assert!(keyring.looking.lock().await.pace.ahead <= EACH);
        keyring.change();
        assert!(matches!(keyring.find(&[1; 32], async || Ok(vec![key(1)])).await, Ok(Some(_))));
    }

    #[test]
    fn looks_that_take_long_make_the_next_one_wait_for_a_bounded_time() {
        let mut pace = Pace { ahead: Duration::ZERO, at: Instant::now() };
        pace.took(Duration::from_millis(30));
        assert_eq!(pace.ahead, Duration::from_millis(200));
        for _ in 0..3 {
            pace.took(Duration::from_secs(60));
            assert_eq!(pace.ahead + EACH - EACH * BURST, PAUSE);
        }
    }

    #[tokio::test]
    async fn who_waits_for_a_look_that_hangs_is_told_so_in_time() {
        let mut keyring = Keyring::new(Arc::new(Freshness::forever()), Duration::ZERO, PATIENCE);
        let hangs = async || std::future::pending::<Result<Vec<Key>, Error>>().await;
        keyring.patience = Duration::from_millis(10);
        tokio::select! {
            biased;
            _ = keyring.find(&[1; 32], hangs) => panic!("it hangs"),
            found = keyring.find(&[2; 32], async || Ok(vec![key(2)])) => {
                assert!(matches!(found, Err(Error::Busy)), "{found:?}");
            }
        }
    }

    #[tokio::test]
    async fn while_the_database_is_away_known_keys_stay_known_whoever_asks_for_others() {
        let freshness = Arc::new(Freshness::never());
        let keyring = Keyring::new(Arc::clone(&freshness), Duration::ZERO, PATIENCE);
        freshness.extend(Instant::now(), Duration::ZERO);
        assert!(matches!(keyring.find(&[1; 32], async || Ok(vec![key(1)])).await, Ok(Some(_))));
        assert_eq!(keyring.get(&[1; 32]), None, "it may have been revoked meanwhile");
        freshness.linger(Duration::from_secs(60));
        let failed = async || Err(Error::Unreachable("away".into()));
        assert!(matches!(keyring.find(&[2; 32], failed).await, Err(Error::Unreachable(_))));
        assert_eq!(keyring.get(&[1; 32]).map(|key| key.id), Some(1));
        // A change that was heard of before counts.
        keyring.change();
        assert_eq!(keyring.get(&[1; 32]), None);
    }
}
