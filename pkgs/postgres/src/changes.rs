//! What other nodes write, heard of within a bound, and known when it is not.
//!
//! Every transaction that a cache may know of leaves a row in `changes`, and each node polls for those that it has not
//! seen, on the server that answers its reads. A poll that was sent at an instant and is answered by a primary tells of every
//! commit before that instant: so a cache is right up to then, whether connections are lost or hang. A standby tells what it
//! has replayed, and nobody knows whether that is all. Nothing is locked by
//! writers together, as NOTIFY in a transaction does; after a commit, NOTIFY wakes the pollers, and where that is deaf,
//! as behind a pooler, the polls come a few times within the bound all the same.
//!
//! Which rows are new is told by transaction ids. Every transaction below the oldest that was under way at one poll (its
//! snapshot's xmin) was seen then, or never will be; the others are looked at again. On a primary the snapshot says
//! exactly which of them are new, on a standby it does not, and what was seen is remembered here.
//!
//! The schema is a service's own migration: [`SCHEMA`] with triggers that fill it.

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

/// Polls within the bound: some may be late.
const POLLS: u32 = 4;

/// Polls within the bound at most, however often they are woken.
const MOST_POLLS: u32 = 50;

/// How often it is tried to connect again.
const RETRY: Duration = Duration::from_millis(100);

/// Changes in one answer; with more of them, everything may have changed.
const MOST_CHANGES: i64 = 10_000;

/// How long changes are kept at least: whoever comes later is told that something is missing.
const KEPT: Duration = Duration::from_secs(60);

/// How often those that are older are removed, at most so many at once.
const PRUNE: Duration = Duration::from_secs(15);

/// The tables that a feed reads: `topic` and `keys` are what a service makes of them.
pub const SCHEMA: &str = "\
CREATE TABLE changes (
    xid   XID8 NOT NULL DEFAULT pg_current_xact_id(),
    topic TEXT NOT NULL,
    keys  TEXT[] NOT NULL
);
CREATE INDEX changes_by_transaction ON changes (xid);
CREATE TABLE changes_pruned (xid XID8 NOT NULL);
INSERT INTO changes_pruned VALUES ('0');";

/// One row for what there is to know, and one more for each further change.
const POLL: &str = "SELECT pg_current_snapshot()::text, pg_snapshot_xmin(pg_current_snapshot())::text, \
     pg_is_in_recovery(), pg_postmaster_start_time()::text || coalesce(' ' || inet_server_addr()::text, ''), \
     pruned.xid > $1::text::xid8, seen.xid::text, seen.topic, seen.keys \
     FROM changes_pruned AS pruned LEFT JOIN changes AS seen ON seen.xid >= $1::text::xid8 \
     AND ($2::text IS NULL OR NOT pg_visible_in_snapshot(seen.xid, $2::text::pg_snapshot)) LIMIT $3";

/// Removes what everybody has seen or has to do without.
const REMOVE: &str = "WITH held AS (SELECT pg_try_advisory_xact_lock(hashtextextended('linerate changes', 0)) AS got), \
     gone AS (DELETE FROM changes USING held WHERE got AND xid < $1::text::xid8 RETURNING 1) \
     UPDATE changes_pruned SET xid = $1::text::xid8 WHERE xid < $1::text::xid8 AND EXISTS (SELECT FROM gone)";

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// What a row of `changes` says.
    Row {
        /// Of which kind.
        topic: &'a str,
        /// Which.
        keys: &'a [String],
    },
    /// Anything: nobody knows what was missed.
    All,
}

/// Told of writes, on a thread of the feed's; it should not take long.
pub trait Heard: Send + Sync + 'static {
    /// Of a write of any node, this one's own too, once or more often.
    fn changed(&self, change: Change<'_>);

    /// It has been told of every write that was committed before an instant.
    fn heard_all_before(&self, instant: Instant);

    /// No server will do at this moment. Others may write meanwhile, where they reach one.
    fn away(&self);
}

/// How a feed is kept.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// What the server shows of its session.
    pub application: String,
    /// Where pollers are woken; a name that needs no quotes.
    pub channel: &'static str,
    /// How far behind commits one may be before it counts as not knowing.
    pub bound: Duration,
}

/// Says that this node has written, so that others hear of it sooner.
#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<Notify>);

impl Waker {
    /// After a commit. It costs nothing here: the feed's own session tells the others, a few times a second at most.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// Hears of changes.
pub struct Feed {
    connector: Connector,
    options: FeedOptions,
    heard: Arc<dyn Heard>,
    written: Waker,
}

impl Feed {
    /// A feed of the servers that `connector` connects to, as reads do.
    pub fn new(connector: &Connector, options: FeedOptions, heard: Arc<dyn Heard>) -> Self {
        let settings = format!("-c statement_timeout={}", options.bound.as_millis().max(1));
        let connector = connector.derive(&options.application, &settings);
        Self { connector, options, heard, written: Waker::default() }
    }

    /// What says that this node has written.
    pub fn waker(&self) -> Waker {
        self.written.clone()
    }

    /// Hears of changes for as long as its runtime lives.
    pub fn run(self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        // Boxed, so that all of it is compiled here and in no crate that hears.
        Box::pin(self.hear())
    }

    async fn hear(self) {
        loop {
            match self.connector.connect().await {
                Ok(session) => match self.follow(&session).await {
                    Ok(never) => match never {},
                    Err(error) => {
                        tracing::warn!(%error, server = session.server(), "lost the feed of changes");
                        // A server that takes connections and refuses to tell is not asked without end.
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

    /// Polls until the session is lost, or seems to be.
    async fn follow(&self, session: &Session) -> Result<std::convert::Infallible, Error> {
        // Whatever is connected elsewhere may be of another server than this one.
        self.connector.turn();
        let Options { every, least } = Options::of(self.options.bound);
        let mut notifications = session.notifications();
        let asked = "SELECT pg_backend_pid(), pg_is_in_recovery()";
        let rows = self.in_time(session.query_once(asked, &[])).await?;
        let Some(row) = rows.first() else { return Err(Error::Foreign) };
        let (own, in_recovery): (i32, bool) = (row.try_get(0)?, row.try_get(1)?);
        // A pooler passes nothing on, and a standby refuses to listen.
        if session.is_pooled() || in_recovery {
            notifications = None;
        } else {
            self.in_time(session.batch(&format!("LISTEN {}", self.options.channel))).await?;
        }
        let mut position = Position::default();
        // Where it begins; what was written before is not told, so anything may have changed.
        let (first, polled) = (self.poll(session, &mut position).await?, Instant::now());
        self.heard.changed(Change::All);
        self.answered(&position, first);
        let (mut polled, mut noted, mut pruned) = (polled, Instant::now(), Instant::now());
        let mut past = VecDeque::new();
        loop {
            // Whichever comes first: the time, somebody's write, or one of this node, which others are to hear of.
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

    /// Asks what is new and tells it; answers when it was asked.
    async fn poll(&self, session: &Session, position: &mut Position) -> Result<Instant, Error> {
        let sent = Instant::now();
        // The first asks for nothing but where it is.
        let begin = if position.server.is_empty() { u64::MAX } else { position.xmin };
        let (begin, most) = (begin.to_string(), MOST_CHANGES + 1);
        let values =
            [(&begin as _, Type::TEXT), (&position.snapshot as _, Type::TEXT), (&most as _, Type::INT8)];
        let rows = self.in_time(session.query(POLL, &values)).await?;
        let Some(row) = rows.first() else { return Err(Error::Foreign) };
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        let (snapshot, xmin): (String, &str) = (row.try_get(0)?, row.try_get(1)?);
        let (in_recovery, server, missed): (bool, String, bool) =
            (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        let before = std::mem::replace(
            position,
            Position {
                xmin: number(xmin),
                snapshot: (!in_recovery).then_some(snapshot),
                in_recovery,
                server,
                seen: HashSet::new(),
            },
        );
        let is_first = before.server.is_empty();
        // Behind a pooler or a balancer the server may become another one without a connection being lost.
        let is_other = !is_first && before.server != position.server;
        if is_other {
            self.connector.turn();
        }
        if is_other || missed || rows.len() as i64 > MOST_CHANGES {
            // One poll more has what is to be remembered as seen.
            position.seen.clear();
            if !is_first {
                self.heard.changed(Change::All);
            }
            return Ok(sent);
        }
        for row in &rows {
            let Some(xid) = row.try_get::<_, Option<&str>>(5)?.map(number) else { continue };
            if !is_first && !before.seen.contains(&xid) {
                let (topic, keys): (&str, Vec<String>) = (row.try_get(6)?, row.try_get(7)?);
                self.heard.changed(Change::Row { topic, keys: &keys });
            }
            if xid >= position.xmin {
                position.seen.insert(xid);
            }
        }
        Ok(sent)
    }

    /// A poll has told all that its server knew. A standby may know less than was committed, so of one nobody says that
    /// everything was heard.
    fn answered(&self, position: &Position, sent: Instant) {
        if !position.in_recovery {
            self.heard.heard_all_before(sent);
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout(self.options.bound, work).await.unwrap_or(Err(Error::Timeout(self.options.bound)))
    }
}

/// Up to where changes were seen.
#[derive(Debug, Default)]
struct Position {
    xmin: u64,
    /// Of a primary, which knows what was under way.
    snapshot: Option<String>,
    in_recovery: bool,
    server: String,
    /// Those of later transactions.
    seen: HashSet<u64>,
}

/// How often it is polled.
struct Options {
    every: Duration,
    least: Duration,
}

impl Options {
    fn of(bound: Duration) -> Self {
        Self { every: bound / POLLS, least: bound / MOST_POLLS }
    }
}

/// True once another session has notified; what has come meanwhile is the same news. Never where nothing is heard.
async fn woken(notifications: &mut Option<mpsc::Receiver<Notification>>, own: i32) -> bool {
    let Some(receiver) = notifications else { return std::future::pending().await };
    loop {
        match receiver.recv().await {
            Some(notification) if notification.process_id() == own => {}
            Some(_) => {
                while receiver.try_recv().is_ok() {}
                return true;
            }
            // The connection has ended, which the next poll tells.
            None => return std::future::pending().await,
        }
    }
}
