//! Users in PostgreSQL: reads by id on one pipelined connection for each thread that reads, everything else on a
//! bounded pool, and a connection that hears of what other nodes write.

mod failure;
mod listen;
mod pipeline;
mod rows;
pub mod trace;
mod url;

use std::future::Future;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use service::ready::Heartbeats;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio::runtime::Runtime;
use tokio::time::MissedTickBehavior;

use crate::user::{Record, UserId};

use super::{
    Alarm, Change, Created, Deleted, Draft, Entry, Error, Filter, IdempotencyRecord, Key, NewKey, Page,
    Query, Replaced, Store, Unusable, Watch,
};

use failure::of_pool;
use pipeline::Lanes;

pub use url::{InvalidUrl, Url};

/// Threads that write and read lists, apart from those that read by id.
const THREADS: usize = 2;

/// How often they show that they go on. Where both are stuck, no deadline of a request is kept any more.
const BEAT: Duration = Duration::from_millis(250);

/// How PostgreSQL is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where, as libpq takes it. Without TLS: by a Unix socket or a network that is trusted.
    pub url: Url,
    /// Connections for writes and lists.
    pub connections: NonZero<u32>,
    /// How long a request waits for one of them.
    pub acquire_timeout: Duration,
    /// How long PostgreSQL may take to answer.
    pub timeout: Duration,
    /// Connections for reads by id.
    pub lanes: NonZero<usize>,
    /// How long after the last sign of what other nodes write a cache is no longer used.
    pub staleness: Duration,
    /// How long PostgreSQL's refusal of connections counts as a sign that nothing is written.
    pub cached_while_down: Duration,
}

/// Users in PostgreSQL.
#[derive(Clone)]
pub struct Postgres {
    pool: PgPool,
    lanes: Arc<Lanes>,
    timeout: Duration,
    watch: Arc<dyn Watch>,
    background: Arc<Background>,
    alarm: Alarm,
    beats: Heartbeats,
}

impl Postgres {
    /// Connects and migrates, one node at a time. `watch` is told of this node's writes before they are
    /// acknowledged, and of those of others as soon as they are heard of.
    pub async fn open(options: &Options, watch: Arc<dyn Watch>) -> Result<Self, Error> {
        let background = Arc::new(Background::start()?);
        let timeout = options.timeout.as_millis().to_string();
        let connect: PgConnectOptions = options.url.expose().parse().map_err(Error::failed)?;
        let connect = connect.application_name("linerate-api").options([
            ("statement_timeout", timeout.as_str()),
            ("lock_timeout", timeout.as_str()),
            ("jit", "off"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(options.connections.get())
            .acquire_timeout(options.acquire_timeout)
            .connect_lazy_with(connect);
        let config: tokio_postgres::Config = options.url.expose().parse().map_err(Error::failed)?;
        let lanes = Arc::new(Lanes::new(&config, options.lanes, options.timeout));
        // Where it is not to be reached at all, starting says so instead of migrating.
        pipeline::connect(&config, options.timeout).await?;
        // Under an advisory lock, which sqlx takes; not bounded in time, for another node may be migrating: so on a
        // connection without the limits of the others.
        let bare: PgConnectOptions = options.url.expose().parse().map_err(Error::failed)?;
        let migrations = sqlx::migrate!("src/store/postgres/migrations");
        let known = migrations.iter().map(|migration| migration.version).max().unwrap_or(0);
        let migrated = background.spawn(async move {
            let pool = PgPoolOptions::new().max_connections(1);
            let pool = pool.connect_with(bare.application_name("linerate-api migrate")).await?;
            migrations.run(&pool).await?;
            pool.close().await;
            Ok::<_, MigrateError>(())
        });
        let migrated = migrated.await.map_err(Error::failed)?;
        migrated.map_err(|error| Unusable::of_migration(error, known))?;
        let listener = listen::Listener::new(config, options, Arc::clone(&watch));
        let alarm = Alarm::default();
        let armed = alarm.arm();
        background.spawn(async move {
            // It ends by a panic, or with the runtime, when nobody is left to hear of it.
            let _armed = armed;
            listener.run().await;
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
        Ok(Self { pool, lanes, timeout: options.timeout, watch, background, alarm, beats })
    }

    /// Does work of the pool where the pool's connections are served, and to its end even if nobody waits for it.
    async fn run<T, W>(&self, work: impl FnOnce(PgPool) -> W) -> Result<T, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let work = tokio::time::timeout(self.timeout, work(self.pool.clone()));
        // The trace is the calling task's, and another does the work.
        match self.background.spawn(trace::scope(trace::current(), work)).await {
            Ok(Ok(done)) => done,
            Ok(Err(elapsed)) => Err(Error::Unreachable(elapsed.into())),
            Err(join) => Err(Error::failed(join)),
        }
    }
}

impl Store for Postgres {
    async fn get(&self, id: UserId) -> Result<Option<Record>, Error> {
        // On a lane many reads share a question, which can tell of no trace of one of them.
        if trace::current().is_some() {
            return self.get_many(&[id]).await.map(|found| found.into_iter().next());
        }
        self.lanes.get(id).await
    }

    async fn get_many(&self, ids: &[UserId]) -> Result<Vec<Record>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.to_vec();
        self.run(|pool| async move { rows::get_many(&pool, &ids).await }).await
    }

    async fn create(&self, users: Vec<Draft>, record: Option<IdempotencyRecord>) -> Result<Created, Error> {
        let entries: Vec<Entry> = Draft::begin(users);
        self.run(|pool| async move { rows::create(&pool, &entries, record.as_ref()).await }).await
    }

    async fn replace(&self, id: UserId, expected: Option<i64>, user: Draft) -> Result<Replaced, Error> {
        let replaced = self.run(|pool| async move { rows::replace(&pool, id, expected, user).await }).await?;
        if matches!(replaced, Replaced::Done(_)) {
            self.watch.changed(Change::Users(&[id]));
        }
        Ok(replaced)
    }

    async fn delete(&self, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
        let ids = ids.to_vec();
        let deleted = self.run(|pool| async move { rows::delete(&pool, &ids, expected).await }).await?;
        if let Deleted::Done(gone) = &deleted {
            self.watch.changed(Change::Users(gone));
        }
        Ok(deleted)
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        let query = query.clone();
        self.run(|pool| async move { rows::list(&pool, &query).await }).await
    }

    async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        let filter = filter.clone();
        self.run(|pool| async move { rows::count(&pool, &filter).await }).await
    }

    async fn load(&self, entries: Vec<Entry>) -> Result<u64, Error> {
        self.run(|pool| async move { rows::load(&pool, &entries).await }).await
    }

    async fn add_key(&self, key: NewKey) -> Result<Key, Error> {
        let added = self.run(|pool| async move { rows::add_key(&pool, key).await }).await?;
        self.watch.changed(Change::Keys);
        Ok(added)
    }

    async fn list_keys(&self) -> Result<Vec<Key>, Error> {
        self.run(|pool| async move { rows::list_keys(&pool).await }).await
    }

    async fn revoke_key(&self, id: i64) -> Result<bool, Error> {
        let revoked = self.run(|pool| async move { rows::revoke_key(&pool, id).await }).await?;
        self.watch.changed(Change::Keys);
        Ok(revoked)
    }

    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn heartbeats(&self) -> &Heartbeats {
        &self.beats
    }

    async fn ping(&self) -> Result<(), Error> {
        let ping = |pool: PgPool| async move {
            sqlx::query("SELECT 1").execute(&pool).await.map(drop).map_err(of_pool)
        };
        self.run(ping).await
    }
}

/// The runtime that the pool and the listening connection live on: those of the callers come and go.
struct Background(Option<Runtime>);

impl Background {
    fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("store")
            .enable_all()
            .build();
        Ok(Self(Some(runtime.map_err(Error::failed)?)))
    }

    fn spawn<F>(&self, work: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.as_ref().expect("it is there until dropped").spawn(work)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting is not allowed on an async thread, and there is nothing to wait for.
            runtime.shutdown_background();
        }
    }
}
