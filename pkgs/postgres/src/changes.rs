//! A feed of other nodes' writes. It reports each write within a bound, or reports that it cannot.
//!
//! Every transaction that a cache may depend on leaves a row in `changes`. Each node polls for rows that it hasn't
//! seen, on the server that answers its reads. If a primary answers a poll, every commit before the instant at which
//! the poll was sent has been reported. So a cache is correct up to that instant, even if connections are lost or hang.
//! A standby reports what it has replayed, and nobody knows whether that is everything. NOTIFY in a transaction would
//! make all writers share a lock, so it is sent after the commit, and only wakes the pollers. If it isn't heard, for
//! instance behind a pooler, there are still a few polls within the bound.
//!
//! Transaction ids tell which rows are new. Every transaction below the oldest one that was running at a poll (its
//! snapshot's xmin) was seen then, or never will be. On a primary, the snapshot also says which of the others are new:
//! those that it lists as running, and all from its xmax on. Only their rows are read, however long a transaction of
//! any database runs. On a standby the snapshot lists none, so all others are read again, and the feed remembers which
//! ones it has seen.
//!
//! A service's own migration has the schema, word for word: [`SCHEMA`], and triggers that fill it.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_postgres::Notification;
use tokio_postgres::types::Type;

use crate::connect::Connector;
use crate::error::Error;
use crate::session::Session;

/// Polls within the bound, since some may be late.
const POLLS: u32 = 4;

/// The most polls within the bound, however often the feed is woken.
const MOST_POLLS: u32 = 50;

/// How long to wait before connecting again.
const RETRY: Duration = Duration::from_millis(100);

/// The most changes in one answer; with more of them, anything may have changed.
const MOST_CHANGES: i64 = 10_000;

/// The shortest time that changes are kept. A feed that polls later learns that it has missed some.
const KEPT: Duration = Duration::from_secs(60);

/// How often older changes are removed.
const PRUNE: Duration = Duration::from_secs(15);

/// The tables that a feed reads: a service decides what `topic` and `keys` mean.
pub const SCHEMA: &str = "\
CREATE TABLE changes (
    xid   XID8 NOT NULL DEFAULT pg_current_xact_id(),
    topic TEXT NOT NULL,
    keys  TEXT[] NOT NULL
);
CREATE INDEX changes_by_transaction ON changes (xid);
CREATE TABLE changes_pruned (xid XID8 NOT NULL);
INSERT INTO changes_pruned VALUES ('0');";

/// Returns one row for each change, all with the same state. Without changes, returns one row with the state alone.
const POLL: &str = "SELECT pg_current_snapshot()::text, pg_is_in_recovery(), \
     pg_postmaster_start_time()::text || coalesce(' ' || inet_server_addr()::text, ''), \
     pruned.xid > $1::text::xid8, seen.xid::text, seen.topic, seen.keys \
     FROM changes_pruned AS pruned LEFT JOIN changes AS seen \
     ON seen.xid >= $2::text::xid8 OR seen.xid = ANY($3::text[]::xid8[]) LIMIT $4";

/// Removes changes that every feed has seen or has to do without.
const REMOVE: &str = "WITH held AS (SELECT pg_try_advisory_xact_lock(hashtextextended('linerate changes', 0)) AS got), \
     gone AS (DELETE FROM changes USING held WHERE got AND xid < $1::text::xid8 RETURNING 1) \
     UPDATE changes_pruned SET xid = $1::text::xid8 WHERE xid < $1::text::xid8 AND EXISTS (SELECT FROM gone)";

/// Removes what a dump of another server has brought: transactions that this server hasn't begun yet. Otherwise feeds
/// would miss everything until then, and take the writes of later transactions for those that they have seen.
const FORGET_FOREIGN: &str = "WITH next AS (SELECT pg_snapshot_xmax(pg_current_snapshot()) AS xid), \
     gone AS (DELETE FROM changes USING next WHERE changes.xid >= next.xid) \
     UPDATE changes_pruned SET xid = next.xid FROM next WHERE changes_pruned.xid > next.xid";

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A row of `changes`.
    Row {
        /// The kind.
        topic: &'a str,
        /// The keys.
        keys: &'a [String],
    },
    /// Anything may have changed: nobody knows what was missed.
    All,
}

/// Receives writes, on a thread of the feed, so its methods shouldn't take long.
pub trait Heard: Send + Sync + 'static {
    /// A write by any node, including this one, which may be reported more than once.
    fn changed(&self, change: Change<'_>);

    /// Every write committed before this instant has been reported.
    fn heard_all_before(&self, instant: Instant);

    /// No server is suitable at the moment. Meanwhile, others may write if they reach one.
    fn away(&self);
}

/// The options of a feed.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// The name of its session on the server.
    pub application: String,
    /// The channel that wakes pollers; a name that needs no quotes.
    pub channel: &'static str,
    /// How far the feed may be behind commits before its knowledge counts as missing.
    pub bound: Duration,
}

/// Reports that this node has written, so that others hear of it sooner.
#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<Notify>);

impl Waker {
    /// Call this after a commit. It costs the caller nothing: the feed's own session tells the others, at most a few
    /// times a second.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// Receives changes.
pub struct Feed {
    connector: Connector,
    options: FeedOptions,
    heard: Arc<dyn Heard>,
    written: Waker,
}

impl Feed {
    /// A feed from the servers that `connector` connects to, as reads do.
    pub fn new(connector: &Connector, options: FeedOptions, heard: Arc<dyn Heard>) -> Self {
        let settings = format!("-c statement_timeout={}", options.bound.as_millis().max(1));
        let connector = connector.derive(&options.application, &settings);
        Self { connector, options, heard, written: Waker::default() }
    }

    /// The handle that reports this node's writes.
    pub fn waker(&self) -> Waker {
        self.written.clone()
    }

    /// Receives changes as long as its runtime lives.
    pub fn run(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Boxed, so that all of it is compiled here and not in every crate that uses it.
        Box::pin(self.hear())
    }

    async fn hear(self) {
        loop {
            match self.connector.connect().await {
                Ok(session) => match self.follow(&session).await {
                    Ok(never) => match never {},
                    Err(error) => {
                        tracing::warn!(%error, server = session.server(), "lost the feed of changes");
                        // Wait, so that a server that accepts connections but refuses to answer isn't asked in a tight
                        // loop.
                        sleep(RETRY).await;
                    }
                },
                Err(error) => {
                    tracing::debug!(%error, "no server for the feed of changes");
                    self.heard.away();
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Polls until the session is lost, or seems to be lost.
    async fn follow(&self, session: &Session) -> Result<std::convert::Infallible, Error> {
        // Other connections may be to another server than this one, so they are not used any more.
        self.connector.turn();
        let Options { every, least } = Options::of(self.options.bound);
        let mut notifications = session.notifications();
        let asked =
            "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only')::bool";
        let rows = self.in_time(session.query_once(asked, &[])).await?;
        let Some(row) = rows.first() else { return Err(Error::Foreign) };
        let (own, in_recovery, only_reads): (i32, bool, bool) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        // A pooler passes no notifications on, and a standby refuses to listen.
        if session.is_pooled() || in_recovery {
            notifications = None;
        } else {
            self.in_time(session.batch(&format!("LISTEN {}", self.options.channel))).await?;
        }
        if !in_recovery && !only_reads {
            self.in_time(session.batch(FORGET_FOREIGN)).await?;
        }
        let mut position = Position::default();
        // This is the start. Earlier writes aren't reported, so anything may have changed.
        let (first, polled) = (self.poll(session, &mut position).await?, Instant::now());
        self.heard.changed(Change::All);
        self.answered(&position, first);
        let (mut polled, mut noted, mut pruned) = (polled, Instant::now(), Instant::now());
        let mut past = VecDeque::new();
        loop {
            // Waits until the next poll is due, another node has written, or this node has written and has to tell the
            // others.
            tokio::select! {
                () = sleep(every.saturating_sub(polled.elapsed())) => {}
                true = woken(&mut notifications, own) => sleep(least.saturating_sub(polled.elapsed())).await,
                () = self.written.0.notified() => {
                    sleep(least.saturating_sub(noted.elapsed())).await;
                    noted = Instant::now();
                    if !position.in_recovery {
                        self.in_time(session.batch(&format!("NOTIFY {}", self.options.channel))).await?;
                    }
                    if polled.elapsed() < every {
                        continue;
                    }
                }
            }
            polled = Instant::now();
            let sent = self.poll(session, &mut position).await?;
            self.answered(&position, sent);
            if pruned.elapsed() > PRUNE && !position.in_recovery {
                pruned = Instant::now();
                past.push_back((pruned, position.xmin));
                if past.front().is_some_and(|(at, _)| at.elapsed() > KEPT)
                    && let Some((_, xmin)) = past.pop_front()
                {
                    self.in_time(session.query(REMOVE, &[(&xmin.to_string(), Type::TEXT)])).await?;
                }
            }
        }
    }

    /// Asks for new changes and reports them. Returns when it asked.
    async fn poll(&self, session: &Session, position: &mut Position) -> Result<Instant, Error> {
        let sent = Instant::now();
        // The first poll only asks where to start.
        let is_first = position.server.is_empty();
        let (begin, next) = if is_first { (u64::MAX, u64::MAX) } else { (position.xmin, position.next) };
        let (begin, next, most) = (begin.to_string(), next.to_string(), MOST_CHANGES + 1);
        let values = [
            (&begin as _, Type::TEXT),
            (&next as _, Type::TEXT),
            (&position.running as _, Type::TEXT_ARRAY),
            (&most as _, Type::INT8),
        ];
        let rows = self.in_time(session.query(POLL, &values)).await?;
        let Some(row) = rows.first() else { return Err(Error::Foreign) };
        let (snapshot, in_recovery): (&str, bool) = (row.try_get(0)?, row.try_get(1)?);
        let (server, missed): (String, bool) = (row.try_get(2)?, row.try_get(3)?);
        let before = std::mem::replace(position, Position::of(snapshot, in_recovery, server));
        // Behind a pooler or a balancer, the server may be replaced without a lost connection.
        let is_other = !is_first && before.server != position.server;
        if is_other {
            self.connector.turn();
        }
        if is_other || missed || rows.len() as i64 > MOST_CHANGES {
            // On a standby, the next poll returns the transactions that have to be remembered as seen.
            position.seen.clear();
            if !is_first {
                self.heard.changed(Change::All);
            }
            return Ok(sent);
        }
        for row in &rows {
            let Some(xid) = row.try_get::<_, Option<&str>>(4)?.map(number) else { continue };
            if !is_first && !before.seen.contains(&xid) {
                let (topic, keys): (&str, Vec<String>) = (row.try_get(5)?, row.try_get(6)?);
                self.heard.changed(Change::Row { topic, keys: &keys });
            }
            if xid >= position.xmin {
                position.seen.insert(xid);
            }
        }
        Ok(sent)
    }

    /// A poll has reported everything that its server knew. A standby may not know everything that was committed, so
    /// [`Heard::heard_all_before`] is only called for a primary.
    fn answered(&self, position: &Position, sent: Instant) {
        if !position.in_recovery {
            self.heard.heard_all_before(sent);
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout(self.options.bound, work).await.unwrap_or(Err(Error::Timeout(self.options.bound)))
    }
}

/// The point up to which changes were seen.
#[derive(Debug, Default)]
struct Position {
    xmin: u64,
    /// Everything from this transaction on is new, unless it was seen: from the snapshot's xmax on a primary, and from
    /// its xmin on a standby.
    next: u64,
    /// The transactions before that one that may still commit, if the snapshot lists them.
    running: Vec<String>,
    in_recovery: bool,
    server: String,
    /// The transactions after `xmin` that were seen.
    seen: HashSet<u64>,
}

impl Position {
    /// At a snapshot, which is `xmin:xmax:` and the running transactions in between (postgresql.org/docs/current,
    /// functions-info.html).
    fn of(snapshot: &str, in_recovery: bool, server: String) -> Self {
        let mut parts = snapshot.split(':');
        let [xmin, xmax, listed] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        let (xmin, xmax) = (number(xmin), number(xmax));
        let running = listed.split(',').filter(|xid| !in_recovery && !xid.is_empty());
        Self {
            xmin,
            next: if in_recovery { xmin } else { xmax },
            running: running.map(str::to_owned).collect(),
            in_recovery,
            server,
            seen: HashSet::new(),
        }
    }
}

/// A transaction id.
fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// How often to poll.
struct Options {
    every: Duration,
    least: Duration,
}

impl Options {
    fn of(bound: Duration) -> Self {
        Self { every: bound / POLLS, least: bound / MOST_POLLS }
    }
}

/// Returns true once another session has notified. Further notifications that have arrived by then are dropped, since
/// they say the same. Never returns if the session can't listen.
async fn woken(notifications: &mut Option<mpsc::Receiver<Notification>>, own: i32) -> bool {
    let Some(receiver) = notifications else { return std::future::pending().await };
    loop {
        match receiver.recv().await {
            Some(notification) if notification.process_id() == own => {}
            Some(_) => {
                while receiver.try_recv().is_ok() {}
                return true;
            }
            // The connection has ended, which the next poll notices.
            None => return std::future::pending().await,
        }
    }
}
