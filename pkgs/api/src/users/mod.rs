//! Users as the service sees them: a database, and a cache of reads.
//!
//! - [`Options`]: the database, and its use.
//! - [`Users`]: all operations on users and API keys.
//! - [`cache`]: makes a cached read as good as one from the database.

pub mod cache;
mod counts;
mod keyring;
mod options;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use service::metrics::{Family, Registry};
use service::ready::Heartbeats;

use crate::store::{
    Change, Created, Deleted, Draft, Entry, Error, Filter, IdempotencyRecord, Key, NewKey, Page, Postgres,
    Query, Replaced, Sqlite, Store, Watch, postgres,
};
use crate::user::{Record, UserId};

use cache::{Cache, Freshness};
use counts::Counts;
use keyring::Keyring;

pub use options::{DatabaseUrl, InvalidDatabaseUrl, Options};

/// The overhead of a cached user, in bytes.
const RECORD_BYTES: usize = 256;

/// Users and API keys; cheap to clone.
#[derive(Clone)]
pub struct Users {
    database: Database,
    caches: Arc<Caches>,
}

#[derive(Clone)]
enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// The caches.
struct Caches {
    records: Cache<UserId, Record>,
    keys: Keyring,
    freshness: Arc<Freshness>,
    staleness: Duration,
    cached_while_down: Duration,
    counts: Counts,
}

impl Caches {
    fn new(options: &Options, freshness: Freshness) -> Self {
        let freshness = Arc::new(freshness);
        let weigh = |record: &Record| record.body.len() + RECORD_BYTES;
        Self {
            records: Cache::new(options.cache_bytes, weigh, Arc::clone(&freshness)),
            keys: Keyring::new(Arc::clone(&freshness), options.staleness, options.acquire_timeout),
            freshness,
            staleness: options.staleness,
            cached_while_down: options.cached_while_down,
            counts: Counts::new(),
        }
    }
}

impl Watch for Caches {
    fn changed(&self, change: Change<'_>) {
        match change {
            Change::Users(ids) => ids.iter().for_each(|id| self.records.change(id)),
            Change::Keys => self.keys.change(),
            Change::All => {
                self.records.change_all();
                self.keys.change();
            }
        }
    }

    fn heard_all_before(&self, instant: Instant) {
        self.freshness.extend(instant, self.staleness);
    }

    fn away(&self) {
        self.freshness.linger(self.cached_while_down);
    }
}

/// Calls a method of either store.
macro_rules! store {
    ($users:expr, $store:ident => $call:expr) => {
        match &$users.database {
            Database::Sqlite($store) => $call,
            Database::Postgres($store) => $call,
        }
    };
}

impl Users {
    /// Opens the database and migrates its schema.
    ///
    /// # Errors
    /// When the database cannot be opened, reached or migrated.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        match &options.database {
            DatabaseUrl::Sqlite(path) => {
                let caches = Arc::new(Caches::new(options, Freshness::forever()));
                let sqlite = Sqlite::open(path, caches.clone(), options.write_bytes).await?;
                Ok(Self { database: Database::Sqlite(sqlite), caches })
            }
            DatabaseUrl::Postgres(url) => {
                let caches = Arc::new(Caches::new(options, Freshness::never()));
                let how = postgres::Options {
                    url: (**url).clone(),
                    connections: options.connections,
                    acquire_timeout: options.acquire_timeout,
                    timeout: options.timeout,
                    pipelines: options.workers,
                    staleness: options.staleness,
                    write_bytes: options.write_bytes,
                };
                let postgres = Postgres::open(&how, caches.clone()).await?;
                Ok(Self { database: Database::Postgres(postgres), caches })
            }
        }
    }

    /// A cached user, known to equal the database within the allowed staleness.
    #[inline]
    pub fn cached(&self, id: UserId) -> Option<Record> {
        let record = self.caches.records.get(&id);
        self.caches.counts.count(record.is_some());
        record
    }

    /// While the database is away: a user as of the last time the database was heard of, and how long ago that is.
    pub fn lingering(&self, id: UserId) -> Option<(Record, Duration)> {
        let age = self.caches.freshness.lingers()?;
        let record = self.caches.records.last(&id)?;
        self.caches.counts.count_lingering();
        Some((record, age))
    }

    /// A user, cached or not.
    pub async fn get(&self, id: UserId) -> Result<Option<Record>, Error> {
        match self.cached(id) {
            Some(record) => Ok(Some(record)),
            None => self.read(id).await,
        }
    }

    /// A user as the database has it, whatever is cached.
    pub async fn current(&self, id: UserId) -> Result<Option<Record>, Error> {
        self.caches.counts.count(false);
        self.read(id).await
    }

    /// A user from the database, for callers that have checked the cache.
    pub async fn read(&self, id: UserId) -> Result<Option<Record>, Error> {
        let stamp = self.caches.records.stamp(&id);
        let record = store!(self, store => store.get(id).await)?;
        if let Some(record) = &record {
            self.caches.records.keep(id, stamp, record.clone());
        }
        Ok(record)
    }

    /// The existing users among these ids, in no particular order. They are not cached, since clients rarely request
    /// many again.
    pub async fn get_many(&self, ids: &[UserId]) -> Result<Vec<Record>, Error> {
        let (mut found, mut missing) = (Vec::with_capacity(ids.len()), Vec::new());
        for &id in ids {
            match self.cached(id) {
                Some(record) => found.push(record),
                None => missing.push(id),
            }
        }
        if !missing.is_empty() {
            found.extend(store!(self, store => store.get_many(&missing).await)?);
        }
        Ok(found)
    }

    /// Creates all users or none. With an idempotency record, they are created only once.
    pub async fn create(
        &self,
        users: Vec<Draft>,
        record: Option<IdempotencyRecord>,
    ) -> Result<Created, Error> {
        store!(self, store => store.create(users, record).await)
    }

    /// Replaces a user. If a version is `expected`, the user has to be at it.
    pub async fn replace(&self, id: UserId, expected: Option<i64>, user: Draft) -> Result<Replaced, Error> {
        store!(self, store => store.replace(id, expected, user).await)
    }

    /// Deletes users. If a version is `expected`, there is one id, and its user has to be at that version.
    pub async fn delete(&self, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
        store!(self, store => store.delete(ids, expected).await)
    }

    /// A page of users.
    pub async fn list(&self, query: &Query) -> Result<Page, Error> {
        store!(self, store => store.list(query).await)
    }

    /// The number of users that meet a filter.
    pub async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        store!(self, store => store.count(filter).await)
    }

    /// Writes rows unchanged, except those whose id or email exists. Returns how many.
    pub async fn load(&self, entries: Vec<Entry>) -> Result<u64, Error> {
        store!(self, store => store.load(entries).await)
    }

    /// Registers the cache's counters.
    pub fn register(&self, registry: &mut Registry) {
        fn read<R: 'static>(
            caches: &Arc<Caches>,
            read: fn(&Caches) -> R,
        ) -> impl Fn() -> R + Send + Sync + 'static {
            let caches = Arc::clone(caches);
            move || read(&caches)
        }
        let caches = &self.caches;
        Family::new("linerate_api_cache_hits", "Users read by id and answered from the cache")
            .with(&[], read(caches, |caches| caches.counts.hits()))
            .register(registry);
        Family::new("linerate_api_cache_misses", "Users read by id and asked of the database")
            .with(&[], read(caches, |caches| caches.counts.misses()))
            .register(registry);
        Family::new(
            "linerate_api_cache_lingering",
            "Users read by id and answered from the cache because the database is away",
        )
        .with(&[], read(caches, |caches| caches.counts.lingering()))
        .register(registry);
        Family::new("linerate_api_cache_users", "Users in the cache")
            .with(&[], read(caches, |caches| caches.records.size().0 as f64))
            .register(registry);
        Family::new("linerate_api_cache_bytes", "Bytes of users in the cache")
            .with(&[], read(caches, |caches| caches.records.size().1 as f64))
            .register(registry);
        Family::new("linerate_api_key_looks", "Looks into the database for API keys that were not known")
            .with(&[], read(caches, |caches| caches.keys.looks()))
            .register(registry);
        Family::new(
            "linerate_api_cache_fresh",
            "Whether the cache is known to be right within its staleness, and used",
        )
        .with(&[], read(caches, |caches| f64::from(u8::from(caches.freshness.holds()))))
        .register(registry);
    }

    /// Whether the database answers in time.
    pub async fn ping(&self) -> Result<(), Error> {
        store!(self, store => store.ping().await)
    }

    /// Returns once something has ended that is essential for writing or trusting data.
    pub async fn broken(&self) {
        store!(self, store => store.alarm().raised().await)
    }

    /// The writer's heartbeats, for [`service::ready::watchdog`].
    pub fn heartbeats(&self) -> &Heartbeats {
        store!(self, store => store.heartbeats())
    }

    /// Adds an API key.
    pub async fn add_key(&self, key: NewKey) -> Result<Key, Error> {
        store!(self, store => store.add_key(key).await)
    }

    /// All API keys, oldest first.
    pub async fn list_keys(&self) -> Result<Vec<Key>, Error> {
        store!(self, store => store.list_keys().await)
    }

    /// Revokes an API key; false where there is none.
    pub async fn revoke_key(&self, id: i64) -> Result<bool, Error> {
        store!(self, store => store.revoke_key(id).await)
    }

    /// Records that an API key is used, at most once a minute. Nobody waits for it; if it fails, a later use is
    /// recorded.
    #[inline]
    pub fn note_use(&self, key: &Key) {
        let now = Timestamp::now().as_second();
        if key.last_use.is_noted(now) {
            let (users, id) = (self.clone(), key.id);
            tokio::spawn(async move {
                if let Err(error) = store!(users, store => store.key_used(id, now).await) {
                    tracing::debug!(%error, "the use of a key is not noted");
                }
            });
        }
    }

    /// The API key with this SHA-256 of its secret, if that is known without a query.
    pub fn known_key(&self, digest: &[u8; 32]) -> Option<Arc<Key>> {
        self.caches.keys.get(digest)
    }

    /// The API key with this SHA-256 of its secret. A known key is as fresh as cached users; unknown ones cost the
    /// database a few queries per second, however many are tried.
    pub async fn key_by_digest(&self, digest: &[u8; 32]) -> Result<Option<Arc<Key>>, Error> {
        self.caches.keys.find(digest, async || self.list_keys().await).await
    }
}
