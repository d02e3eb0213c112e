//! The feed of changes.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use postgres::{CHANGES_SCHEMA, Change, Feed, FeedOptions, Heard};

use super::*;

/// What a feed has reported.
#[derive(Default)]
struct Notes {
    keys: Mutex<Vec<String>>,
    all: Mutex<usize>,
    heard: Mutex<Option<Instant>>,
    away: Mutex<usize>,
}

impl Heard for Notes {
    fn changed(&self, change: Change<'_>) {
        match change {
            Change::Row { keys, .. } => self.keys.lock().expect("no panic").extend_from_slice(keys),
            Change::All => *self.all.lock().expect("no panic") += 1,
        }
    }

    fn heard_all_before(&self, instant: Instant) {
        *self.heard.lock().expect("no panic") = Some(instant);
    }

    fn away(&self) {
        *self.away.lock().expect("no panic") += 1;
    }
}

impl Notes {
    async fn until(&self, what: &str, met: impl Fn(&Self) -> bool) {
        testkit::eventually(what, async || met(self)).await;
    }

    /// Waits until everything that was committed before now is reported.
    async fn catch_up(&self) {
        let now = Instant::now();
        self.until("all is heard", |notes| notes.heard.lock().expect("no panic").is_some_and(|at| at > now))
            .await;
    }

    fn count(&self, key: &str) -> usize {
        self.keys.lock().expect("no panic").iter().filter(|heard| *heard == key).count()
    }

    fn alls(&self) -> usize {
        *self.all.lock().expect("no panic")
    }
}

/// A feed that is later than this begins anew, and doesn't tell what was written meanwhile. It looks four times as
/// often.
const BOUND: Duration = Duration::from_secs(8);

fn feed(server: &Postgres) -> Arc<Notes> {
    feed_within(server, BOUND)
}

fn feed_within(server: &Postgres, bound: Duration) -> Arc<Notes> {
    let notes: Arc<Notes> = Arc::default();
    let options = FeedOptions { application: "feed".into(), channel: "rows", bound };
    let url = server.url("postgres").parse().expect("a URL");
    let connector = Connector::new(&url, "test");
    tokio::spawn(Feed::new(&connector, options, notes.clone()).run());
    notes
}

fn note(key: &str) -> String {
    format!("INSERT INTO changes (topic, keys) VALUES ('t', ARRAY['{key}'])")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_commit_is_heard_once_whatever_order_transactions_end_in() {
    let server = Server::start(&[]);
    let run = |sql: &str| server.postgres.execute("postgres", sql).expect("it answers");
    run(CHANGES_SCHEMA);
    run(&note("before"));
    let notes = feed(&server.postgres);
    notes.catch_up().await;
    // This transaction starts before the others and ends after them.
    let slow = Connector::new(&server.local(), "slow").connect().await.expect("it connects");
    let transaction = slow.begin().await.expect("a transaction");
    transaction.batch(&note("slow")).await.expect("it answers");
    for round in 0..3 {
        run(&note(&format!("quick{round}")));
        notes.catch_up().await;
        assert_eq!(notes.count(&format!("quick{round}")), 1);
    }
    assert_eq!(notes.count("slow"), 0);
    transaction.commit().await.expect("it lasts");
    notes.catch_up().await;
    for (key, times) in [("slow", 1), ("quick0", 1), ("quick1", 1), ("quick2", 1), ("before", 0)] {
        assert_eq!(notes.count(key), times, "{key}");
    }
    let taken_back = slow.begin().await.expect("a transaction");
    taken_back.batch(&note("never")).await.expect("it answers");
    taken_back.rollback().await.expect("it is taken back");
    notes.catch_up().await;
    assert_eq!((notes.count("never"), notes.alls()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_heard_is_not_read_again_while_a_transaction_of_another_database_runs() {
    const ROWS: usize = 5_000;
    const ROUNDS: usize = 3;
    let server = Server::start(&[]);
    let run = |sql: &str| server.postgres.execute("postgres", sql).expect("it answers");
    run(CHANGES_SCHEMA);
    server.postgres.create_database("other").expect("it is new");
    let url = server.postgres.url("other").parse().expect("a URL");
    let other = Connector::new(&url, "other").connect().await.expect("it connects");
    let transaction = other.begin().await.expect("a transaction");
    transaction.batch("SELECT pg_current_xact_id()").await.expect("it answers");
    let notes = feed(&server.postgres);
    notes.catch_up().await;
    for round in 0..ROUNDS {
        let key = format!("round{round}");
        let many = format!("SELECT 't', ARRAY['{key}'] FROM generate_series(1, {ROWS})");
        run(&format!("INSERT INTO changes (topic, keys) {many}"));
        notes.catch_up().await;
        assert_eq!(notes.count(&key), ROWS);
    }
    // Without statistics, PostgreSQL may read all rows instead of using the index.
    run("ANALYZE changes");
    let read = || -> usize {
        let sql = "SELECT seq_tup_read + idx_tup_read FROM pg_stat_user_tables JOIN pg_stat_user_indexes \
             USING (relid) WHERE indexrelname = 'changes_by_transaction'";
        run(sql).trim().parse().expect("a number")
    };
    notes.catch_up().await;
    let before = read();
    for _ in 0..4 {
        notes.catch_up().await;
    }
    // PostgreSQL counts up to a second later: what was read before may be among this, and what was read last is not.
    let again = read() - before;
    assert!(again < 2 * ROUNDS * ROWS, "{again} rows");
    transaction.rollback().await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_was_pruned_or_came_while_nobody_listened_is_all() {
    let mut server = Server::start(&[]);
    server.postgres.execute("postgres", CHANGES_SCHEMA).expect("it is new");
    let notes = feed(&server.postgres);
    notes.catch_up().await;
    assert_eq!(notes.alls(), 1, "where it begins");
    let many =
        "INSERT INTO changes (topic, keys) SELECT 't', ARRAY[n::text] FROM generate_series(1, 10001) n";
    server.postgres.execute("postgres", many).expect("it answers");
    notes.until("too many", |notes| notes.alls() == 2).await;
    // As if the feed had paused for longer than changes are kept.
    let pruned = "UPDATE changes_pruned SET xid = (pg_current_xact_id()::text::bigint + 1)::text::xid8";
    server.postgres.execute("postgres", pruned).expect("it answers");
    notes.until("pruned", |notes| notes.alls() >= 3).await;
    let before = notes.alls();
    server.postgres.kill();
    notes.until("it is away", |notes| *notes.away.lock().expect("no panic") > 0).await;
    server.postgres.resume().expect("it recovers");
    notes.until("it is back", |notes| notes.alls() > before).await;
    server.postgres.execute("postgres", &note("after")).expect("it answers");
    notes.until("it is heard again", |notes| notes.count("after") == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dump_of_another_server_has_brought_hides_nothing() {
    let server = Server::start(&[]);
    let run = |sql: &str| server.postgres.execute("postgres", sql).expect("it answers");
    run(CHANGES_SCHEMA);
    run("UPDATE changes_pruned SET xid = '4000000000'");
    run("INSERT INTO changes VALUES ((pg_current_xact_id()::text::bigint + 20)::text::xid8, 't', '{old}')");
    // A feed that is late begins anew, with all.
    let notes = feed_within(&server.postgres, Duration::from_secs(20));
    notes.catch_up().await;
    assert_eq!((notes.alls(), notes.count("old")), (1, 0));
    for n in 0..40 {
        run(&note(&format!("new{n}")));
    }
    notes.catch_up().await;
    for n in 0..40 {
        assert_eq!(notes.count(&format!("new{n}")), 1, "{n}");
    }
    assert_eq!((notes.alls(), notes.count("old")), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_only_reads_has_a_feed() {
    let server = Server::start(&[]);
    server.postgres.execute("postgres", CHANGES_SCHEMA).expect("it is new");
    let read_only = "ALTER DATABASE postgres SET default_transaction_read_only = on";
    server.postgres.execute("postgres", read_only).expect("it answers");
    let notes = feed(&server.postgres);
    notes.catch_up().await;
    assert_eq!(notes.alls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_tells_what_it_has_and_never_that_this_is_all() {
    let primary = Postgres::start(Durability::None, &[]).expect("PostgreSQL starts");
    let run = |sql: &str| primary.execute("postgres", sql).expect("it answers");
    run(CHANGES_SCHEMA);
    let standby = primary.standby().expect("it streams");
    let there = |sql: &str| standby.execute("postgres", sql).expect("it answers");
    let notes = feed(&standby);
    notes.until("it begins", |notes| notes.alls() == 1).await;
    run(&note("streamed"));
    notes.until("it is told", |notes| notes.count("streamed") == 1).await;
    // The standby hasn't replayed this write, although it is committed.
    there("SELECT pg_wal_replay_pause()");
    run(&note("late"));
    tokio::time::sleep(BOUND / 2).await;
    assert_eq!((notes.count("late"), *notes.heard.lock().expect("no panic")), (0, None));
    there("SELECT pg_wal_replay_resume()");
    notes.until("it is told", |notes| notes.count("late") == 1).await;
    assert_eq!(*notes.heard.lock().expect("no panic"), None);
    there("SELECT pg_promote()");
    standby.execute("postgres", &note("led")).expect("it takes writes");
    notes.until("it is told", |notes| notes.count("led") == 1).await;
    notes.catch_up().await;
    for (key, times) in [("streamed", 1), ("late", 1), ("led", 1)] {
        assert_eq!(notes.count(key), times, "{key}");
    }
}
