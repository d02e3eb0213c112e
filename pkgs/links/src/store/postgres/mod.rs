//! Links in PostgreSQL, which several nodes share. Reads by code use one pipelined connection per reading thread,
//! everything else uses a bounded pool. A feed reports other nodes' writes.

mod database_copy;
mod flushes;
mod follow;
mod remote;
mod schema;
mod tables;
#[cfg(test)]
mod tests;
mod transfer;
mod values;

use std::future::Future;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Extensions, HeaderMap};
use postgres::types::Type;
use postgres::{
    Background, Comment, Connector, Conninfo, Feed, FeedOptions, KeyQuery, Pipelines, Pool, Role, Waker,
};
use service::access_log::recorded_trace;
use service::ready::{Heartbeats, Watch as Liveness};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use crate::code::CodePolicy;
use crate::domains::{Domain, DomainPatch, Domains, InDomains, LinkKey, NewDomain, SharedDomains};
use crate::link::{Link, LinkPatch, ManyPatch, NewLink};
use crate::store::database_copy::{Filling, Snapshot};
use crate::store::draft::{Draft, Edit};
use crate::store::policy::Policy;
use crate::store::{
    Change, ClickBatch, Created, Error, FoldCursor, Grant, IdempotencyKey, ListQuery, NewToken, OnConflict,
    Page, Pending, Record, Stats, StatsScope, Tally, TimeCount, TokenInfo, Watch, rules,
};
use crate::target::TargetPolicy;
use crate::when::Timestamp;

use flushes::Flushes;
use follow::{DomainsWanted, Follower};
use remote::Found;
use tables::{clicks, domains, hours, limits, links, list, scope, tokens};

pub use remote::{Found as FoundRoute, Remote};

/// The channel on which nodes wake each other.
const CHANNEL: &str = "linerate_links";

/// The interval of the runtime's heartbeats.
const BEAT: Duration = Duration::from_millis(250);

/// How often a node looks for clicks to add up.
const ADD_UP: Duration = Duration::from_millis(500);

/// Timeout of a write that may affect many links.
const MANY: Duration = Duration::from_secs(120);

/// Timeout for sending the last clicks when the store is closed.
const LAST: Duration = Duration::from_secs(30);

/// Pages of an export that may wait to be written.
const EXPORTED: usize = 1;

/// How many requests of visitors for clicks may wait. Strangers cause them, so they do not count for the queue of writes
/// and lists. Further ones fail with [`Error::Busy`].
const VISITORS: usize = 1_024;

/// Options of PostgreSQL.
pub struct PostgresOptions {
    /// The server, as libpq's connection string.
    pub url: Conninfo,
    /// The rules for codes.
    pub codes: CodePolicy,
    /// The rules for targets.
    pub targets: TargetPolicy,
    /// How many writes and lists may wait. Further ones fail with [`Error::Busy`].
    pub queue: usize,
    /// Connections for writes and lists.
    pub connections: NonZero<u32>,
    /// Timeout of PostgreSQL's answers.
    pub timeout: Duration,
    /// The number of threads that read by code, each with a connection.
    pub pipelines: NonZero<usize>,
    /// How long a cache may be used after the last news of other nodes' writes.
    pub staleness: Duration,
    /// Whether this process serves visitors, and so follows the feed and adds up clicks.
    pub serves: bool,
    /// Whether statements carry the traces of recorded requests.
    pub traced: bool,
    /// Told of changes.
    pub watch: Arc<dyn Watch>,
}

/// Links in PostgreSQL.
pub struct Postgres {
    pool: Pool,
    pipelines: Pipelines<String, Found>,
    /// Pipelines to any of several servers, writable or not; `None` if the URL names one server.
    standbys: Option<Pipelines<String, Found>>,
    waker: Option<Waker>,
    traced: bool,
    watch: Arc<dyn Watch>,
    policy: Arc<Policy>,
    domains: Arc<DomainsWanted>,
    /// Domains are read by one task at a time, so that old ones never replace newer ones.
    reading_domains: Arc<tokio::sync::Mutex<()>>,
    timeout: Duration,
    queue: usize,
    depth: Arc<AtomicUsize>,
    /// How many requests of visitors for clicks wait: at most [`VISITORS`].
    visitors: Arc<AtomicUsize>,
    /// Those that run at once: they have half of the connections, and leave the others to writes and lists.
    turns: Arc<Semaphore>,
    flushes: Flushes,
    background: Background,
    beats: Heartbeats,
    ended: Arc<AtomicBool>,
    closed: AtomicBool,
    tasks: Mutex<Vec<tokio::task::AbortHandle>>,
}

/// Records that its owner has ended, also by a panic.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Postgres {
    /// Connects and migrates, one node at a time.
    pub fn open(options: PostgresOptions) -> Result<Arc<Self>, Error> {
        let background = Background::start().map_err(|error| Error::Postgres(error.to_string()))?;
        let timeout = options.timeout.as_millis();
        // Connections are for writing unless the URL says otherwise.
        let url = options.url.with_role(options.url.role().unwrap_or(Role::ReadWrite));
        let connector = Connector::new(&url, "linerate-links");
        let migrating = connector.derive("linerate-links migrate", "");
        let known = background.block_on(async {
            let session = migrating.connect().await?;
            schema::MIGRATIONS.run(&session).await?;
            domains::load(&session).await
        })?;
        let shared = Arc::new(SharedDomains::default());
        shared.set(known);
        let policy = Policy { codes: options.codes, targets: options.targets, domains: shared };
        let pipelines = |connector: &Connector| {
            let query = KeyQuery {
                one: remote::ONE,
                several: remote::SEVERAL,
                key: Type::TEXT,
                keys: Type::TEXT_ARRAY,
                read: remote::found,
            };
            Pipelines::new(connector, "linerate-links read", options.pipelines, options.timeout, query)
        };
        let standbys = url
            .has_several_hosts()
            .then(|| Connector::new(&options.url.with_role(Role::PreferStandby), "linerate-links"));
        let settings = format!("-c statement_timeout={timeout} -c lock_timeout={timeout} -c jit=off");
        let writers = connector.derive("linerate-links", &settings);
        let connections = options.connections.get() as usize;
        let pool = Pool::new(writers, connections, options.timeout);
        let mut opened = Self {
            pool,
            pipelines: pipelines(&connector),
            standbys: standbys.as_ref().map(pipelines),
            waker: None,
            traced: options.traced,
            watch: options.watch,
            policy: Arc::new(policy),
            domains: Arc::default(),
            reading_domains: Arc::default(),
            timeout: options.timeout,
            queue: options.queue,
            depth: Arc::default(),
            visitors: Arc::default(),
            turns: Arc::new(Semaphore::new((connections / 2).max(1))),
            flushes: Flushes::new(options.timeout),
            background,
            beats: Heartbeats::new(1),
            ended: Arc::default(),
            closed: AtomicBool::new(false),
            tasks: Mutex::default(),
        };
        if options.serves {
            opened.follow(&connector, options.staleness);
        }
        Ok(Arc::new(opened))
    }

    pub fn trace(&self, extensions: &Extensions, fields: &HeaderMap) -> Option<Comment> {
        let trace = self.traced.then(|| recorded_trace(extensions, fields)).flatten()?;
        Comment::new("traceparent", trace.as_str())
    }

    /// Starts the tasks of a serving node: following the feed, adding up clicks, and heartbeats.
    fn follow(&mut self, connector: &Connector, staleness: Duration) {
        let feed = FeedOptions {
            application: "linerate-links listen".to_owned(),
            channel: CHANNEL,
            bound: staleness,
        };
        let follower = Follower { watch: Arc::clone(&self.watch), domains: Arc::clone(&self.domains) };
        let feed = Feed::new(connector, feed, Arc::new(follower));
        self.waker = Some(feed.waker());
        let (pool, domains) = (self.pool.clone(), Arc::clone(&self.domains));
        let (shared, reading) = (Arc::clone(&self.policy.domains), Arc::clone(&self.reading_domains));
        let (beats, adding) = (self.beats.clone(), self.pool.clone());
        self.task(feed.run());
        self.task(async move {
            loop {
                domains.changed().await;
                while let Err(error) = read_domains(&pool, &domains, &shared, &reading).await {
                    tracing::warn!(%error, "cannot read the domains: visits go by those known");
                    tokio::time::sleep(BEAT).await;
                }
            }
        });
        self.task(async move {
            let mut ticks = tokio::time::interval(BEAT);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                beats.beat(0);
            }
        });
        let flushes = self.flushes.clone();
        self.task(async move {
            let mut fails = false;
            loop {
                // Send unsettled clicks without waiting for the next click, which may be far off.
                if let Err(error) = flushes.settle(&adding).await {
                    tracing::debug!(%error, "clicks still wait to be sent again");
                }
                let added = clicks::add_up(&adding).await;
                match &added {
                    Ok(_) if fails => tracing::info!("clicks are added up again"),
                    Err(error) if !fails => tracing::warn!(%error, "clicks are not added up: they wait"),
                    Err(error) => tracing::debug!(%error, "clicks are not added up yet"),
                    Ok(_) => {}
                }
                fails = added.is_err();
                if !matches!(added, Ok(true)) {
                    tokio::time::sleep(ADD_UP).await;
                }
            }
        });
    }

    /// Runs a task that is never expected to end. If it ends, [`has_ended`](Self::has_ended) returns true.
    fn task(&self, work: impl Future + Send + 'static) {
        let ended = Ended(Arc::clone(&self.ended));
        let task = self.background.spawn(async move {
            let _ended = ended;
            work.await;
        });
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task.abort_handle());
    }

    /// Runs work with the pool. The work continues to its end even if nobody waits for the answer.
    pub(in crate::store) fn run<T, W>(&self, work: impl FnOnce(Pool) -> W) -> Pending<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.run_within(self.timeout, work)
    }

    fn run_within<T, W>(&self, timeout: Duration, work: impl FnOnce(Pool) -> W) -> Pending<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.run_counted((&self.depth, self.queue), timeout, work)
    }

    /// Like [`run`](Self::run), for what visitors cause, which never takes the API's place.
    fn run_for_visitor<T, W>(&self, work: impl FnOnce(Pool) -> W) -> Pending<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let turns = Arc::clone(&self.turns);
        self.run_counted((&self.visitors, VISITORS), self.timeout, move |pool| {
            let work = work(pool);
            async move {
                let _turn = turns.acquire_owned().await.map_err(|_| Error::Closed)?;
                work.await
            }
        })
    }

    /// Runs work that counts in `depth` from now to its end, unless `most` already do.
    fn run_counted<T, W>(
        &self,
        (depth, most): (&Arc<AtomicUsize>, usize),
        timeout: Duration,
        work: impl FnOnce(Pool) -> W,
    ) -> Pending<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        /// Decrements the number of waiting jobs, however one ends.
        struct Waiting(Arc<AtomicUsize>);
        impl Drop for Waiting {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if self.closed.load(Ordering::Acquire) {
            return Pending::refused(Error::Closed);
        }
        let waiting = depth.fetch_add(1, Ordering::Relaxed);
        let guard = Waiting(Arc::clone(depth));
        if waiting >= most {
            return Pending::refused(Error::Busy);
        }
        let (sender, receiver) = oneshot::channel();
        let work = within(timeout, work(self.pool.clone()));
        self.background.carry(async move {
            let _guard = guard;
            // The work runs on the background runtime, since the calling thread may have none.
            let _ = sender.send(work.await);
        });
        Pending::of(receiver)
    }

    /// Like [`run_within`](Self::run_within), for writes: tells this node's caches before the write is acknowledged,
    /// and wakes other nodes.
    fn write<T, W>(
        &self,
        timeout: Duration,
        work: impl FnOnce(Pool) -> W,
        changed: impl FnOnce(&T, &dyn Watch) + Send + 'static,
    ) -> Pending<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (watch, waker) = (Arc::clone(&self.watch), self.waker.clone());
        self.run_within(timeout, move |pool| {
            let work = work(pool);
            async move {
                let done = work.await?;
                changed(&done, &*watch);
                waker.iter().for_each(Waker::wake);
                Ok(done)
            }
        })
    }

    /// Like [`run`](Self::run), for writes of domains: this node reads the domains before the write is acknowledged.
    fn write_domains<T, W>(&self, work: impl FnOnce(Pool) -> W) -> Pending<T>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (domains, shared) = (Arc::clone(&self.domains), Arc::clone(&self.policy.domains));
        let (reading, pool) = (Arc::clone(&self.reading_domains), self.pool.clone());
        let told = move |pool_of_work: Pool| {
            let work = work(pool_of_work);
            async move {
                let done = work.await?;
                domains.change();
                if let Err(error) = read_domains(&pool, &domains, &shared, &reading).await {
                    tracing::warn!(%error, "cannot read the domains: visits go by those known");
                }
                Ok(done)
            }
        };
        self.write(MANY, told, |_, _| {})
    }

    pub fn domains(&self) -> Arc<Domains> {
        self.policy.domains.now()
    }

    pub fn shared_domains(&self) -> Arc<SharedDomains> {
        Arc::clone(&self.policy.domains)
    }

    pub fn snapshot<T>(
        &self,
        read: impl FnOnce(&mut (dyn Snapshot + Send)) -> Result<T, Error>,
    ) -> Result<T, Error> {
        database_copy::snapshot(&self.background, &self.pool, read)
    }

    pub fn fill<T>(&self, fill: impl FnOnce(&mut dyn Filling) -> Result<T, Error>) -> Result<T, Error> {
        database_copy::fill(&self.background, &self.pool, fill)
    }

    pub fn create_domain(&self, new: NewDomain) -> Pending<Domain> {
        match rules::domains::draft(new, &self.policy) {
            Ok(domain) => self.write_domains(|pool| async move { domains::create(&pool, domain).await }),
            Err(error) => Pending::refused(error),
        }
    }

    pub fn edit_domain(&self, host: String, patch: DomainPatch) -> Pending<Domain> {
        match rules::domains::checked(patch, &self.policy) {
            Ok(patch) => self.write_domains(|pool| async move { domains::edit(&pool, &host, patch).await }),
            Err(error) => Pending::refused(error),
        }
    }

    pub fn delete_domain(&self, host: String, force: bool) -> Pending<bool> {
        let watch = Arc::clone(&self.watch);
        self.write_domains(move |pool| async move {
            let deleted = domains::delete(&pool, &host, force).await?;
            watch.changed(Change::All);
            Ok(deleted)
        })
    }

    pub fn create(&self, link: NewLink, key: Option<IdempotencyKey>) -> Pending<Created> {
        self.create_within(&InDomains::All, link, key)
    }

    pub fn create_within(
        &self,
        within: &InDomains,
        link: NewLink,
        key: Option<IdempotencyKey>,
    ) -> Pending<Created> {
        let policy = Arc::clone(&self.policy);
        match Draft::new(link, &self.policy, within) {
            Ok(draft) => self.write(
                self.timeout,
                |pool| async move { links::create(&pool, &policy.codes, draft, key.as_ref()).await },
                |created, watch| watch.changed(Change::Codes(&[key_of(&created.link)])),
            ),
            Err(error) => Pending::refused(error),
        }
    }

    pub fn create_many(&self, within: &InDomains, links: Vec<NewLink>) -> Pending<Vec<Result<Link, Error>>> {
        let policy = Arc::clone(&self.policy);
        let drafts: Vec<_> = links.into_iter().map(|link| Draft::new(link, &self.policy, within)).collect();
        self.write(
            MANY,
            |pool| async move { links::create_many(&pool, &policy.codes, drafts).await },
            |created: &Vec<Result<Link, Error>>, watch| {
                let keys: Vec<LinkKey> = created.iter().flatten().map(key_of).collect();
                watch.changed(Change::Codes(&keys));
            },
        )
    }

    pub fn edit(&self, key: impl Into<LinkKey>, patch: LinkPatch) -> Pending<Link> {
        self.edit_if(key, patch, |_| true)
    }

    pub fn edit_if(
        &self,
        key: impl Into<LinkKey>,
        patch: LinkPatch,
        expected: impl FnOnce(&Link) -> bool + Send + 'static,
    ) -> Pending<Link> {
        let key = key.into();
        match Edit::new(patch, &self.policy) {
            Ok(edit) => self.write(
                self.timeout,
                |pool| async move { links::edit(&pool, &key, edit, expected).await },
                |link, watch| watch.changed(Change::Codes(&[key_of(link)])),
            ),
            Err(error) => Pending::refused(error),
        }
    }

    pub fn edit_many<T: Send + 'static>(
        &self,
        keys: Vec<LinkKey>,
        patch: ManyPatch,
        see: impl Fn(&Link, &Link) -> T + Send + Sync + 'static,
    ) -> Pending<Vec<Result<T, Error>>> {
        let edit = match Edit::of_many(patch, &self.policy) {
            Ok(edit) => edit,
            Err(error) => return Pending::refused(error),
        };
        let watch = Arc::clone(&self.watch);
        let edited = |pool: Pool| async move {
            let links::Edited { outcomes, named } = links::edit_many(&pool, &keys, edit, see).await?;
            watch.changed(Change::Codes(&named));
            Ok(outcomes)
        };
        self.write(MANY, edited, |_, _| {})
    }

    pub fn delete(&self, key: impl Into<LinkKey>) -> Pending<()> {
        self.delete_if(key, |_| true)
    }

    pub fn delete_if(
        &self,
        key: impl Into<LinkKey>,
        expected: impl FnOnce(&Link) -> bool + Send + 'static,
    ) -> Pending<()> {
        let key = key.into();
        let gone = key.clone();
        self.write(
            self.timeout,
            |pool| async move { links::delete(&pool, &key, expected).await },
            move |(), watch| watch.changed(Change::Codes(&[gone])),
        )
    }

    pub fn delete_many(&self, keys: Vec<impl Into<LinkKey>>) -> Pending<Vec<Result<(), Error>>> {
        self.delete_many_seen(keys.into_iter().map(Into::into).collect(), |_| ())
    }

    pub fn delete_many_seen<T: Send + 'static>(
        &self,
        keys: Vec<LinkKey>,
        see: impl Fn(&Link) -> T + Send + 'static,
    ) -> Pending<Vec<Result<T, Error>>> {
        let named = keys.clone();
        self.write(
            MANY,
            |pool| async move { links::delete_many(&pool, &keys, see).await },
            move |deleted: &Vec<Result<T, Error>>, watch| {
                let gone = named.into_iter().zip(deleted).filter(|(_, deleted)| deleted.is_ok());
                watch.changed(Change::Codes(&gone.map(|(key, _)| key).collect::<Vec<_>>()));
            },
        )
    }

    pub fn import(
        &self,
        batch: Vec<Record>,
        on_conflict: OnConflict,
        within: &InDomains,
        is_over: &Arc<AtomicBool>,
    ) -> Pending<Tally> {
        let (policy, watch) = (Arc::clone(&self.policy), Arc::clone(&self.watch));
        let is_over = Arc::clone(is_over);
        let drafts = Draft::of_records(batch, &policy, within, &is_over);
        let imported = |pool: Pool| async move {
            if is_over.load(Ordering::Relaxed) {
                return Ok(Tally::default());
            }
            let (tally, keys) = transfer::import(&pool, &policy.codes, drafts, on_conflict).await?;
            // Only these codes change, so the cached entries of other links stay valid for visitors.
            watch.changed(Change::Codes(&keys));
            Ok(tally)
        };
        self.write(MANY, imported, |_, _| {})
    }

    pub fn count(&self, batch: Arc<ClickBatch>) -> Pending<()> {
        let flushes = self.flushes.clone();
        // It has its own timeouts, since only its first steps may be cancelled.
        self.run_within(Duration::MAX, move |pool| async move { flushes.send(&pool, batch).await })
    }

    pub fn fold_days(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        self.run_within(MANY, move |pool| async move {
            let next =
                clicks::fold_days(&pool, before, from.0, rules::clicks::MAX_ROWS_FOLDED_REMOTE).await?;
            Ok(next.map(FoldCursor))
        })
    }

    pub fn forget_hours(&self, before: i32, from: FoldCursor) -> Pending<Option<FoldCursor>> {
        self.run_within(MANY, move |pool| async move {
            Ok(hours::forget(&pool, before, from.0).await?.map(FoldCursor))
        })
    }

    pub fn create_token(&self, new: NewToken) -> Pending<(TokenInfo, String)> {
        self.run(move |pool| async move { tokens::create(&pool, new).await })
    }

    pub fn token_used(&self, id: i64, at: Timestamp) -> Pending<()> {
        self.run(move |pool| async move { tokens::used(&pool, id, at).await })
    }

    pub fn revoke_token(&self, id: i64) -> Pending<()> {
        self.run(move |pool| async move { tokens::revoke(&pool, id).await })
    }

    pub fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    pub fn watch(&self, stuck: Duration) -> Liveness {
        self.beats.watch(stuck)
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        self.beats.done(0);
        let (pool, flushes) = (self.pool.clone(), self.flushes.clone());
        let (sender, receiver) = std::sync::mpsc::channel();
        self.background.spawn(async move {
            let _ = sender.send(within(LAST, flushes.settle(&pool)).await);
        });
        match receiver.recv() {
            Ok(Ok(())) => {}
            _ => tracing::error!("the last clicks may be lost"),
        }
    }

    pub(in crate::store) fn get(&self, key: LinkKey) -> Pending<Link> {
        self.run(|pool| async move { links::get(&pool, &key).await })
    }

    pub(in crate::store) fn list(&self, query: ListQuery) -> Pending<Page> {
        self.run(|pool| async move { list::list(&pool, &query).await })
    }

    pub(in crate::store) fn locked(&self, of: InDomains) -> Pending<u64> {
        self.run(move |pool| async move {
            let sql = "SELECT count(*) FROM links WHERE password_hash IS NOT NULL AND status = 0 \
                 AND ($1::int8[] IS NULL OR domain = ANY($1))";
            let rows = pool.get().await?.query(sql, values::values![list::ids(&of) => INT8_ARRAY]).await?;
            Ok(values::count(rows.first().map_or(Ok(0), |row| row.try_get(0))?))
        })
    }

    pub(in crate::store) fn len(&self) -> Pending<u64> {
        self.run(|pool| async move {
            let rows = pool.get().await?.query("SELECT count(*) FROM links", &[]).await?;
            Ok(values::count(rows.first().map_or(Ok(0), |row| row.try_get(0))?))
        })
    }

    pub(in crate::store) fn export(
        &self,
        of: &InDomains,
        hashes: bool,
        visit: &mut dyn FnMut(Record) -> bool,
    ) -> Result<(), Error> {
        let (sender, mut receiver) = mpsc::channel(EXPORTED);
        let (pool, of) = (self.pool.clone(), of.clone());
        self.background.spawn(async move {
            if let Err(error) = transfer::export(&pool, &of, hashes, &sender).await {
                let _ = sender.send(Some(Err(error))).await;
            } else {
                // A channel that closes without this message means that the export was interrupted.
                let _ = sender.send(None).await;
            }
        });
        loop {
            match receiver.blocking_recv() {
                Some(Some(Ok(page))) => {
                    if !page.into_iter().all(&mut *visit) {
                        return Ok(());
                    }
                }
                Some(None) => return Ok(()),
                Some(Some(Err(error))) => return Err(error),
                None => return Err(Error::Closed),
            }
        }
    }

    pub(in crate::store) fn stats(&self, of: StatsScope, days: RangeInclusive<i32>) -> Pending<Stats> {
        self.run(|pool| async move {
            let counted = counted(&pool, of).await?;
            clicks::stats(&*pool.get().await?, &counted, &days).await
        })
    }

    pub(in crate::store) fn hours(
        &self,
        of: StatsScope,
        hours: RangeInclusive<i32>,
    ) -> Pending<Vec<TimeCount>> {
        self.run(|pool| async move {
            let counted = counted(&pool, of).await?;
            hours::sums(&*pool.get().await?, &counted, &hours).await
        })
    }

    pub(in crate::store) fn authorize(&self, secret: String) -> Pending<Option<Grant>> {
        self.run(|pool| async move { tokens::authorize(&pool, &secret).await })
    }

    pub(in crate::store) fn tokens(&self) -> Pending<Vec<TokenInfo>> {
        self.run(|pool| async move { tokens::list(&pool).await })
    }
}

/// The links whose clicks are summed.
async fn counted(pool: &Pool, of: StatsScope) -> Result<scope::Links, Error> {
    Ok(match of {
        StatsScope::Link(key) => scope::Links::One(links::get(pool, &key).await?.id),
        StatsScope::All => scope::Links::One(rules::clicks::ALL),
        StatsScope::Domains(domains) => scope::Links::At(InDomains::Only(domains)),
    })
}

fn key_of(link: &Link) -> LinkKey {
    LinkKey { domain: link.domain_id, code: link.code.clone() }
}

/// Fails if the work takes longer than `timeout`.
async fn within<T>(timeout: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(timeout, work)
        .await
        .unwrap_or_else(|_| Err(Error::Unreachable(format!("PostgreSQL did not answer within {timeout:?}"))))
}

/// Reads the domains, and publishes them to all threads.
async fn read_domains(
    pool: &Pool,
    wanted: &DomainsWanted,
    shared: &SharedDomains,
    reading: &tokio::sync::Mutex<()>,
) -> Result<(), Error> {
    let _turn = reading.lock().await;
    let begun = wanted.begin();
    let read = domains::load(&*pool.get().await?).await?;
    shared.set(read);
    wanted.done(begun);
    Ok(())
}
