//! Users in PostgreSQL: reads by id use one pipelined connection per reading thread, everything else a bounded pool,
//! and a feed reports other nodes' writes.

mod follow;
mod rows;
mod schema;

use std::future::Future;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use postgres::types::Type;
use postgres::{
    Background, Connector, Conninfo, Feed, FeedOptions, KeyQuery, Kind, Pipelines, Pool, Role, Waker,
};
use service::ready::Heartbeats;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use crate::user::{Record, UserId};

use super::budget::WriteBudget;
use super::{
    Alarm, Change, Created, Deleted, Draft, Entry, Error, Filter, IdempotencyRecord, Key, NewKey, Page,
    Query, Replaced, Store, Unusable, Watch,
};

use follow::Follower;
use schema::MIGRATIONS;

/// The channel on which nodes wake each other, including those of the previous generation.
const CHANNEL: &str = "linerate_api";

/// How often the tasks send heartbeats. If both are stuck, requests no longer meet their deadlines.
const BEAT: Duration = Duration::from_millis(250);

/// Options of PostgreSQL.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server, as libpq's connection string.
    pub url: Conninfo,
    /// Connections for writes and lists. Lists and counts take at most half of them.
    pub connections: NonZero<u32>,
    /// How long a request waits for such a connection.
    pub acquire_timeout: Duration,
    /// Timeout of PostgreSQL's answers.
    pub timeout: Duration,
    /// Connections for reads by id.
    pub pipelines: NonZero<usize>,
    /// How long a cache is used after the last news of other nodes' writes.
    pub staleness: Duration,
    /// Memory for writes under way, in bytes.
    pub write_bytes: u64,
}

/// Users in PostgreSQL.
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    /// A permit for each list or count that may run at a time.
    lists: Arc<Semaphore>,
    acquire_timeout: Duration,
    pipelines: Arc<Pipelines<Uuid, Record>>,
    waker: Waker,
    timeout: Duration,
    watch: Arc<dyn Watch>,
    background: Arc<Background>,
    writes: Arc<WriteBudget>,
    alarm: Alarm,
    beats: Heartbeats,
}

impl Postgres {
    /// Connects and migrates, one node at a time. `watch` is told of this node's writes before they are acknowledged,
    /// and of other nodes' as soon as they are known.
    pub async fn open(options: &Options, watch: Arc<dyn Watch>) -> Result<Self, Error> {
        let background = Arc::new(Background::start().map_err(Error::failed)?);
        let timeout = options.timeout.as_millis();
        // Connections are for writing unless the URL says otherwise.
        let url = options.url.with_role(options.url.role().unwrap_or(Role::ReadWrite));
        let connector = Connector::new(&url, "linerate-api");
        // If the server cannot be reached at all, fail at the start instead of waiting.
        connector.connect().await?;
        let query = KeyQuery {
            one: "SELECT id, version, body FROM users WHERE id = $1",
            several: "SELECT id, version, body FROM users WHERE id = ANY($1)",
            key: Type::UUID,
            keys: Type::UUID_ARRAY,
            read: |row| rows::record_of(row).map(|record| (record.id.0, record)),
        };
        let pipelines =
            Pipelines::new(&connector, "linerate-api read", options.pipelines, options.timeout, query);
        let settings = format!("-c statement_timeout={timeout} -c lock_timeout={timeout} -c jit=off");
        let writers = connector.derive("linerate-api", &settings);
        let pool = Pool::new(writers, options.connections.get() as usize, options.acquire_timeout);
        let migrating = connector.derive("linerate-api migrate", "");
        let (sender, migrated) = oneshot::channel();
        background.spawn(async move {
            let migrate = async { MIGRATIONS.run(&*migrating.connect().await?).await };
            let _ = sender.send(migrate.await);
        });
        migrated.await.map_err(Error::failed)??;
        let feed = FeedOptions {
            application: "linerate-api listen".into(),
            channel: CHANNEL,
            bound: options.staleness,
        };
        let feed = Feed::new(&connector, feed, Arc::new(Follower(Arc::clone(&watch))));
        let waker = feed.waker();
        let alarm = Alarm::default();
        let armed = alarm.arm();
        background.spawn(async move {
            // The feed ends only by a panic, or with the runtime when nobody uses the database any more.
            let _armed = armed;
            feed.run().await;
        });
        let beats = Heartbeats::new(1);
        let beating = beats.clone();
        background.spawn(async move {
            let mut ticks = tokio::time::interval(BEAT);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                beating.beat(0);
            }
        });
        let lists = (options.connections.get() as usize / 2).max(1);
        Ok(Self {
            pool,
            lists: Arc::new(Semaphore::new(lists)),
            acquire_timeout: options.acquire_timeout,
            pipelines: Arc::new(pipelines),
            waker,
            timeout: options.timeout,
            watch,
            background,
            writes: WriteBudget::new(options.write_bytes),
            alarm,
            beats,
        })
    }

    /// Tells this node's caches of a write before it is acknowledged, and wakes the other nodes.
    fn written(&self, change: Change<'_>) {
        self.watch.changed(change);
        self.waker.wake();
    }

    /// Runs work with the pool on the pool's runtime, to its end even if nobody waits for it.
    async fn run<T, W>(&self, work: impl FnOnce(Pool) -> W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (timeout, work) = (self.timeout, work(self.pool.clone()));
        let (sender, done) = oneshot::channel();
        // The timer is made there, since the caller's runtime may end first.
        self.background.carry(async move { drop(sender.send(tokio::time::timeout(timeout, work).await)) });
        match done.await {
            Ok(Ok(done)) => done,
            Ok(Err(elapsed)) => Err(Error::Unreachable(elapsed.into())),
            // It has panicked, or the runtime has ended.
            Err(gone) => Err(Error::failed(gone)),
        }
    }

    /// Like [`run`](Self::run), for lists and counts. However many are asked for and however long they take, they leave
    /// connections to everything else. One that nobody waits for any more does not begin; once it has begun, it counts
    /// until it ends, since the server goes on with its statement anyway.
    async fn run_list<T, W>(&self, work: impl FnOnce(Pool) -> W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let permit = Arc::clone(&self.lists).acquire_owned();
        let permit = tokio::time::timeout(self.acquire_timeout, permit).await;
        let permit = permit.map_err(|_| Error::Busy)?.map_err(Error::failed)?;
        let work = |pool: Pool| {
            let work = work(pool);
            async move {
                let _permit = permit;
                work.await
            }
        };
        self.run(work).await
    }
}

impl Store for Postgres {
    async fn get(&self, id: UserId) -> Result<Option<Record>, Error> {
        self.pipelines.get(id.0).await.map_err(|error| Error::of(&error))
    }

    async fn get_many(&self, ids: &[UserId]) -> Result<Vec<Record>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.to_vec();
        self.run(|pool| async move { rows::get_many(&pool, &ids).await }).await
    }

    async fn create(&self, users: Vec<Draft>, record: Option<IdempotencyRecord>) -> Result<Created, Error> {
        // Like the work itself, it does not end when the client leaves.
        let reserved = self.writes.reserve(Draft::bytes(&users))?;
        let entries: Vec<Entry> = Draft::begin(users);
        let create = |pool: Pool| async move {
            let _reserved = reserved;
            rows::create(&pool, &entries, record.as_ref()).await
        };
        self.run(create).await
    }

    async fn replace(&self, id: UserId, expected: Option<i64>, user: Draft) -> Result<Replaced, Error> {
        let reserved = self.writes.reserve(Draft::bytes(std::slice::from_ref(&user)))?;
        let replace = |pool: Pool| async move {
            let _reserved = reserved;
            rows::replace(&pool, id, expected, user).await
        };
        let replaced = self.run(replace).await?;
        if matches!(replaced, Replaced::Done(_)) {
            self.written(Change::Users(&[id]));
        }
        Ok(replaced)
    }

    async fn delete(&self, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
        let ids = ids.to_vec();
        let deleted = self.run(|pool| async move { rows::delete(&pool, &ids, expected).await }).await?;
        if let Deleted::Done(gone) = &deleted {
            self.written(Change::Users(gone));
        }
        Ok(deleted)
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        let query = query.clone();
        self.run_list(|pool| async move { rows::list(&pool, &query).await }).await
    }

    async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        let filter = filter.clone();
        self.run_list(|pool| async move { rows::count(&pool, &filter).await }).await
    }

    async fn load(&self, entries: Vec<Entry>) -> Result<u64, Error> {
        self.run(|pool| async move { rows::load(&pool, &entries).await }).await
    }

    async fn add_key(&self, key: NewKey) -> Result<Key, Error> {
        let added = self.run(|pool| async move { rows::add_key(&pool, key).await }).await?;
        self.written(Change::Keys);
        Ok(added)
    }

    async fn list_keys(&self) -> Result<Vec<Key>, Error> {
        self.run(|pool| async move { rows::list_keys(&pool).await }).await
    }

    async fn revoke_key(&self, id: i64) -> Result<bool, Error> {
        let revoked = self.run(|pool| async move { rows::revoke_key(&pool, id).await }).await?;
        self.written(Change::Keys);
        Ok(revoked)
    }

    async fn key_used(&self, id: i64, second: i64) -> Result<(), Error> {
        self.run(move |pool| async move { rows::key_used(&pool, id, second).await }).await
    }

    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn heartbeats(&self) -> &Heartbeats {
        &self.beats
    }

    async fn ping(&self) -> Result<(), Error> {
        let ping = |pool: Pool| async move { Ok(pool.get().await?.query("SELECT 1", &[]).await.map(drop)?) };
        self.run(ping).await
    }
}

impl Error {
    /// The same error for another waiter of the same answer.
    fn of(error: &postgres::Error) -> Self {
        match error.kind() {
            Kind::Busy => Self::Busy,
            Kind::Unreachable => Self::Unreachable(error.to_string().into()),
            Kind::Full => Self::Full,
            Kind::Failed => Self::Failed(error.to_string().into()),
        }
    }
}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Self {
        match error {
            postgres::Error::Newer { found, known, .. } => Unusable::Newer { found, known }.into(),
            postgres::Error::Foreign => Unusable::Foreign.into(),
            error => match error.kind() {
                Kind::Busy => Self::Busy,
                Kind::Unreachable => Self::Unreachable(error.into()),
                Kind::Full => Self::Full,
                Kind::Failed => Self::Failed(error.into()),
            },
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        postgres::Error::from(error).into()
    }
}
