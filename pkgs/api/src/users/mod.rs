//! Users as the service sees them: a database, and a cache of what was read of it.
//!
//! - [`Options`]: which database, and how it is used.
//! - [`Users`]: everything that can be done with users and API keys.
//! - [`cache`]: what makes a cached read as good as one of the database.

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

/// Bytes a cached user takes beside its representation.
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

/// What was read of the database.
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
            keys: Keyring::new(Arc::clone(&freshness), options.staleness),
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

/// Calls a method of whichever store it is.
macro_rules! store {
    ($users:expr, $store:ident => $call:expr) => {
        match &$users.database {
            Database::Sqlite($store) => $call,
            Database::Postgres($store) => $call,
        }
    };
}

impl Users {
    /// Opens the database and brings its schema up to date.
    ///
    /// # Errors
    /// When the database cannot be opened, reached or migrated.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        match &options.database {
            DatabaseUrl::Sqlite(path) => {
                let caches = Arc::new(Caches::new(options, Freshness::forever()));
                let sqlite = Sqlite::open(path, caches.clone()).await?;
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
                };
                let postgres = Postgres::open(&how, caches.clone()).await?;
                Ok(Self { database: Database::Postgres(postgres), caches })
            }
        }
    }

    /// A user that was read before, and is known to be as it is in the database within the staleness allowed.
    #[inline]
    pub fn cached(&self, id: UserId) -> Option<Record> {
        let record = self.caches.records.get(&id);
        self.caches.counts.count(record.is_some());
        record
    }

    /// A user as it was when the database was heard of last, and how long ago that is: while it is away.
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

    /// A user as it is in the database; for who has looked into the cache already.
    pub async fn read(&self, id: UserId) -> Result<Option<Record>, Error> {
        let stamp = self.caches.records.stamp(&id);
        let record = store!(self, store => store.get(id).await)?;
        if let Some(record) = &record {
            self.caches.records.keep(id, stamp, record.clone());
        }
        Ok(record)
    }

    /// The users of some ids, those that there are, in no order. They are not cached: who asks for many does not
    /// ask for them again.
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

    /// Creates users, all or none; with a record, once.
    pub async fn create(
        &self,
        users: Vec<Draft>,
        record: Option<IdempotencyRecord>,
    ) -> Result<Created, Error> {
        store!(self, store => store.create(users, record).await)
    }

    /// Replaces a user, provided it is at the `expected` version, where one is given.
    pub async fn replace(&self, id: UserId, expected: Option<i64>, user: Draft) -> Result<Replaced, Error> {
        store!(self, store => store.replace(id, expected, user).await)
    }

    /// Deletes users; where a version is `expected`, provided that the user (there is one) is at it.
    pub async fn delete(&self, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
        store!(self, store => store.delete(ids, expected).await)
    }

    /// A page of users.
    pub async fn list(&self, query: &Query) -> Result<Page, Error> {
        store!(self, store => store.list(query).await)
    }

    /// How many users meet a filter.
    pub async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        store!(self, store => store.count(filter).await)
    }

    /// Writes rows as they are, but for those whose id or email is there; answers how many.
    pub async fn load(&self, entries: Vec<Entry>) -> Result<u64, Error> {
        store!(self, store => store.load(entries).await)
    }

    /// What the cache counts, for a scrape.
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

    /// Whether the database answers, within the time it may take.
    pub async fn ping(&self) -> Result<(), Error> {
        store!(self, store => store.ping().await)
    }

    /// Returns once something has ended by itself that nothing can be written, or trusted, without.
    pub async fn broken(&self) {
        store!(self, store => store.alarm().raised().await)
    }

    /// Shows that what writes goes on, for [`service::ready::watchdog`].
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

    /// Notes that an API key is used, at most once a minute. Nobody waits for it, and where it fails a later use is noted.
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

    /// The API key with this SHA-256 of its secret, if that is known without asking the database.
    pub fn known_key(&self, digest: &[u8; 32]) -> Option<Arc<Key>> {
        self.caches.keys.get(digest)
    }

    /// The API key with this SHA-256 of its secret. A known one is as fresh as cached users are; unknown ones cost the
    /// database a few looks a second, however many are tried.
    pub async fn key_by_digest(&self, digest: &[u8; 32]) -> Result<Option<Arc<Key>>, Error> {
        self.caches.keys.find(digest, async || self.list_keys().await).await
    }
}
