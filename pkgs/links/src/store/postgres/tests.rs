use std::sync::Arc;
use std::time::Duration;

use bench::postgres::{Durability, Postgres as Server};
use testkit::until;

use super::*;
use crate::agent::Agent;
use crate::country::Country;
use crate::domains::DomainId;
use crate::link::Status;
use crate::store::rules::walk::Walk;
use crate::store::{Click, Count, CountryClick, Lease, Sort, TimeCount};

/// A node that follows the feed and adds up clicks only when a test says so, and its database server.
struct Fixture {
    node: Arc<Postgres>,
    server: Server,
}

impl Fixture {
    fn new() -> Self {
        Self::with(&[])
    }

    /// One whose server logs how it executes each statement. Tables have no statistics.
    fn that_explains() -> Self {
        Self::with(&[
            "session_preload_libraries=auto_explain",
            "auto_explain.log_min_duration=0",
            "autovacuum=off",
        ])
    }

    fn with(settings: &[&str]) -> Self {
        let server = Server::start(Durability::None, settings).unwrap();
        let node = Postgres::open(PostgresOptions {
            url: server.url("postgres").parse().unwrap(),
            codes: CodePolicy::default(),
            targets: TargetPolicy::default(),
            queue: 64,
            connections: NonZero::new(4).unwrap(),
            timeout: Duration::from_secs(20),
            pipelines: NonZero::<usize>::MIN,
            staleness: Duration::from_secs(1),
            serves: false,
            traced: false,
            watch: Arc::new(()),
        });
        Self { node: node.unwrap(), server }
    }

    fn add(&self, code: &str) -> i64 {
        let target = format!("https://example.com/{code}");
        let new = NewLink { code: Some(code.to_owned()), target, ..NewLink::default() };
        self.node.create(new, None).wait().unwrap().link.id
    }

    fn limit(&self, code: &str, max_clicks: Option<u64>) {
        let patch = LinkPatch { max_clicks: Some(max_clicks), ..LinkPatch::default() };
        self.node.edit(code.to_owned(), patch).wait().unwrap();
    }

    /// Adds clicks of one link, as the node counts them.
    fn count(&self, link: i64, count: u32) {
        let click = Click { link, hour: 7 * 24, referrer: 0, agent: Agent::None, count };
        let batch =
            ClickBatch { referrers: vec![String::new()], clicks: vec![click], ..ClickBatch::default() };
        self.node.count(Arc::new(batch)).wait().unwrap();
    }

    fn add_up(&self) {
        while self.node.background.block_on(clicks::add_up(&self.node.pool)).unwrap() {}
    }

    /// All clicks that are granted for a link.
    fn granted(&self, link: i64) -> u64 {
        let lease = || self.node.background.block_on(limits::lease(&self.node.pool, link)).unwrap();
        let grants = std::iter::from_fn(|| match lease() {
            Lease::Granted(clicks) => Some(clicks),
            Lease::UsedUp => None,
        });
        grants.sum()
    }

    fn number(&self, sql: &str) -> u64 {
        self.server.execute("postgres", sql).unwrap().trim().parse().unwrap()
    }
}

#[test]
fn many_clicks_are_sent_in_pieces_and_a_backlog_is_added_up_however_slow_the_database() {
    let fixture = Fixture::new();
    let entries = 10_000;
    let clicks: Vec<Click> = (0..entries)
        .map(|link| Click { link: 1 + link, hour: 7 * 24, referrer: 1, agent: Agent::None, count: 1 })
        .collect();
    let referrers = vec![String::new(), "a.example".to_owned()];
    fixture.node.count(Arc::new(ClickBatch { referrers, clicks, ..ClickBatch::default() })).wait().unwrap();
    assert_eq!(fixture.number("SELECT sum(cardinality(links)) FROM click_flushes"), entries as u64);
    assert!(fixture.number("SELECT max(cardinality(links)) FROM click_flushes") <= 4_096);
    // These flushes come from other nodes while no node added up. One is from a release that didn't send in pieces.
    let backlog = "INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at) \
         SELECT 0, n::text, 'https://example.com/', '{}', 0, 307, false, 0, 0 FROM generate_series(1, 40000) AS n; \
         INSERT INTO click_nodes SELECT 1000 + n, 0, extract(epoch FROM now()) FROM generate_series(1, 20) AS n; \
         INSERT INTO click_flushes SELECT 1000 + f, 1, array_agg(n), array_agg(7), array_agg('b.example'::text), array_agg(0), \
         array_agg(2) FROM generate_series(1, 20) AS f, generate_series(1, CASE f WHEN 7 THEN 40000 ELSE 2000 END) AS n \
         GROUP BY f";
    fixture.server.execute("postgres", backlog).unwrap();
    // The disk is slow once, and sessions give their statements less time than it takes.
    let slow = "CREATE SEQUENCE turns; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('turns') = 1 THEN PERFORM pg_sleep(3.3); END IF; RETURN NULL; END $$; \
         CREATE TRIGGER slow AFTER INSERT ON totals FOR EACH STATEMENT EXECUTE FUNCTION slow()";
    fixture.server.execute("postgres", slow).unwrap();
    let url = fixture.server.url("postgres").parse().unwrap();
    let short = Connector::new(&url, "short").derive("short", "-c statement_timeout=3000");
    let pool = Pool::new(short, 1, Duration::from_secs(20));
    let mut transactions = 0;
    while fixture.node.background.block_on(clicks::add_up(&pool)).unwrap() {
        transactions += 1;
    }
    assert!(transactions >= 5, "{transactions} transactions");
    let total = entries as u64 + 2 * (19 * 2_000 + 40_000);
    assert_eq!(fixture.number("SELECT sum(clicks) FROM totals"), total);
    assert_eq!(fixture.number("SELECT sum(count) FROM clicks WHERE link = 0"), total);
    assert_eq!(fixture.number("SELECT count(*) FROM click_flushes"), 0);
}

#[test]
fn hours_are_told_apart_until_they_are_forgotten_and_go_with_their_link() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.add("one"), fixture.add("two"));
    let click = |link, hour, agent, count| Click { link, hour, referrer: 0, agent, count };
    let count = |clicks| {
        fixture
            .node
            .count(Arc::new(ClickBatch { referrers: vec![String::new()], clicks, ..ClickBatch::default() }))
            .wait()
            .unwrap();
        fixture.add_up();
    };
    count(vec![
        click(one, 5, Agent::Chrome, 1),
        click(one, 5, Agent::Bot, 2),
        click(one, 30, Agent::Bot, 8),
        click(two, 5, Agent::Tool, 16),
        click(999, 5, Agent::Tool, 32),
    ]);
    count(vec![click(one, 5, Agent::Firefox, 64)]);
    // A flush from a node that doesn't know hours. Its clicks are in all other sums.
    let older = format!(
        "INSERT INTO click_nodes VALUES (9, 0, 0); INSERT INTO click_flushes \
         (node, seq, links, days, referrers, agents, counts) VALUES (9, 1, '{{{one}}}', '{{0}}', '{{a}}', '{{2}}', '{{128}}')"
    );
    fixture.server.execute("postgres", &older).unwrap();
    fixture.add_up();
    let told = |code: Option<&str>, hours| {
        let one = |count: &TimeCount| format!("{}={}/{}", &count.name[8..], count.clicks, count.bots);
        let counts = fixture.node.hours(code.into(), hours).wait().unwrap();
        counts.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    for (code, hours, expected) in [
        (Some("one"), 0..=99, "01T05=67/2 02T06=8/8"),
        (Some("one"), 6..=99, "02T06=8/8"),
        (Some("two"), 0..=99, "01T05=16/0"),
        (None, 0..=99, "01T05=83/2 02T06=8/8"),
    ] {
        assert_eq!(told(code, hours.clone()), expected, "{code:?} {hours:?}");
    }
    let stats = fixture.node.stats(Some("one").into(), 0..=0).wait().unwrap();
    let day = TimeCount { name: "1970-01-01".to_owned(), clicks: 195, bots: 130 };
    assert_eq!(stats.days, [day]);
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = fixture.node.forget_hours(6, from).wait().unwrap();
    }
    assert_eq!(
        (told(Some("one"), 0..=99), told(Some("two"), 0..=99)),
        ("02T06=8/8".to_owned(), String::new())
    );
    fixture.node.delete("one".to_owned()).wait().unwrap();
    assert_eq!(fixture.number(&format!("SELECT count(*) FROM click_hours WHERE link = {one}")), 0);
    assert_eq!(told(None, 0..=99), "02T06=8/8", "the sum outlives the link");
}

#[test]
fn old_hours_are_forgotten_however_many_others_there_are_and_however_slow_the_database() {
    let fixture = Fixture::new();
    // Every third link has old hours. All links have hours that stay.
    let hours = "INSERT INTO click_hours SELECT link, hour, 1, 0 FROM generate_series(0, 599) AS link, \
         generate_series(0, 9) AS hour WHERE hour >= 5 OR link % 3 = 0";
    fixture.server.execute("postgres", hours).unwrap();
    // The disk is slow once, and sessions give their statements less time than it takes.
    let slow = "CREATE SEQUENCE turns; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('turns') = 1 THEN PERFORM pg_sleep(3.3); END IF; RETURN NULL; END $$; \
         CREATE TRIGGER slow AFTER DELETE ON click_hours FOR EACH STATEMENT EXECUTE FUNCTION slow()";
    fixture.server.execute("postgres", slow).unwrap();
    let url = fixture.server.url("postgres").parse().unwrap();
    let short = Connector::new(&url, "short").derive("short", "-c statement_timeout=3000");
    let pool = Pool::new(short, 1, Duration::from_secs(20));
    let (mut next, mut pieces) = (Some(0), Vec::new());
    while let Some(from) = next {
        next = fixture.node.background.block_on(hours::forget(&pool, 5, from)).unwrap();
        pieces.push(next);
    }
    assert_eq!(
        pieces,
        [Some(250), Some(500), None],
        "each piece is of so many links, whichever hours they have"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM click_hours WHERE hour < 5"), 0);
    assert_eq!(fixture.number("SELECT count(*) FROM click_hours"), 600 * 5);
}

#[test]
fn countries_are_summed_and_folded_by_day_and_go_with_their_link() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.add("one"), fixture.add("two"));
    let from = |link, day, code, count| CountryClick { link, day, country: Country::of(code), count };
    let click = |link, day| Click { link, hour: 24 * day, referrer: 0, agent: Agent::None, count: 1 };
    let codes: Vec<String> = ('A'..='Z').flat_map(|a| ('A'..='Z').map(move |b| format!("{a}{b}"))).collect();
    // More than fits in one piece, so some come with a flush that has no clicks.
    let many = (10..20).flat_map(|day| codes.iter().map(move |code| from(two, day, code, 1)));
    let known = [from(one, 1, "DE", 1), from(one, 1, "", 2), from(one, 5, "DE", 4), from(999, 5, "JP", 8)];
    let batch = ClickBatch {
        referrers: vec![String::new()],
        clicks: vec![click(one, 1), click(one, 5), click(two, 10), click(999, 5)],
        countries: known.into_iter().chain(many).collect(),
    };
    assert!(batch.countries.len() > clicks::ENTRIES);
    fixture.node.count(Arc::new(batch)).wait().unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM click_flushes"), 2);
    fixture.add_up();
    let told = |code: Option<&str>, days| {
        let one = |count: &Count| format!("{}={}", count.name, count.clicks);
        let stats = fixture.node.stats(code.into(), days).wait().unwrap();
        stats.countries.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(told(Some("one"), 0..=9), "DE=5 =2");
    assert_eq!(told(Some("one"), 5..=9), "DE=4");
    assert_eq!(told(None, 0..=9), "DE=5 =2", "and those of no link are dropped");
    assert_eq!(told(Some("two"), 0..=20).split(' ').count(), 26 * 26);
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = fixture.node.fold_days(5, from).wait().unwrap();
    }
    assert_eq!(
        (told(Some("one"), 0..=9), told(Some("one"), 5..=9)),
        ("DE=5 =2".to_owned(), "DE=4".to_owned())
    );
    fixture.node.delete("one".to_owned()).wait().unwrap();
    assert_eq!(fixture.number(&format!("SELECT count(*) FROM click_countries WHERE link = {one}")), 0);
    assert_eq!(told(None, 0..=9), "DE=5 =2", "the sum outlives the link");
}

#[test]
fn old_days_are_merged_part_by_part_however_many_rows_a_link_has() {
    let fixture = Fixture::new();
    // Ten old days of each link, and one that stays.
    let rows = "INSERT INTO clicks (link, day, referrer, agent, count, seen) SELECT link, day, 'a.example', 0, 1, 0 \
         FROM generate_series(1, 3) AS link, generate_series(0, 10) AS day";
    fixture.server.execute("postgres", rows).unwrap();
    let (mut next, mut parts) = (Some(0), Vec::new());
    while let Some(from) = next {
        let part = clicks::fold_days(&fixture.node.pool, 10, from, 7);
        next = fixture.node.background.block_on(part).unwrap();
        parts.push(next);
    }
    assert_eq!(parts, [Some(0), Some(0), Some(0), Some(0), None], "each part has seven rows, but the last");
    assert_eq!(fixture.number("SELECT count(*) FROM clicks WHERE day < 0 AND count = 10"), 3);
    assert_eq!(fixture.number("SELECT count(*) FROM clicks WHERE day = 10 AND count = 1"), 3);
    assert_eq!(fixture.number("SELECT count(*) FROM clicks"), 6);
    assert_eq!(fixture.number("SELECT count(*) FROM folded_days WHERE first = 0 AND last = 9"), 3);
}

#[test]
fn old_days_of_many_links_are_merged_once_and_hardly_any_other_row_is_read() {
    let fixture = Fixture::new();
    // One old day of each link, and many that stay.
    // Without statistics, PostgreSQL may read all rows instead of using the index.
    let rows = "INSERT INTO clicks (link, day, referrer, agent, count, seen) SELECT link, day, '', 0, 1, 0 \
         FROM generate_series(1, 5000) AS link, generate_series(0, 40) AS day; ANALYZE clicks";
    fixture.server.execute("postgres", rows).unwrap();
    let url: Conninfo = fixture.server.url("postgres").parse().unwrap();
    let fold = async || {
        let pool = Pool::new(Connector::new(&url, "merging"), 1, Duration::from_secs(20));
        let mut next = Some(0);
        while let Some(from) = next {
            next = clicks::fold_days(&pool, 1, from, 20_000).await.unwrap();
        }
    };
    fixture.node.background.block_on(async { tokio::join!(fold(), fold()) });
    // A session says what it has read by its end at the latest.
    until("both have ended", || {
        fixture.number("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'merging'") == 0
    });
    let told = |columns: &str| {
        fixture.number(&format!("SELECT {columns} FROM pg_stat_user_tables WHERE relname = 'clicks'"))
    };
    until("it is counted", || told("n_tup_del") == 5_000);
    // Each old row once; and both nodes may look for each link.
    let read = told("seq_tup_read + idx_tup_fetch");
    assert!(read <= 3 * 5_000, "{read} rows were read to delete 5,000");
    assert_eq!(fixture.number("SELECT count(*) FROM clicks WHERE day < 0 AND count = 1"), 5_000);
    assert_eq!(fixture.number("SELECT count(*) FROM clicks WHERE day > 0 AND count = 1"), 5_000 * 40);
    assert_eq!(fixture.number("SELECT count(*) FROM folded_days WHERE first = 0 AND last = 0"), 5_000);
    assert_eq!(fixture.number("SELECT count(*) FROM clicks"), 5_000 * 41);
}

#[test]
fn one_node_merges_old_days_and_clicks_are_added_up_meanwhile() {
    let fixture = Fixture::new();
    let link = fixture.add("one");
    fixture.count(link, 1);
    fixture.add_up();
    let more = "INSERT INTO clicks (link, day, referrer, agent, count, seen) SELECT 0, day, '', 0, 1, 0 \
         FROM generate_series(0, 3) AS day";
    fixture.server.execute("postgres", more).unwrap();
    // It waits in the middle of merging.
    let held = "CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$; \
         CREATE TRIGGER held AFTER DELETE ON clicks FOR EACH STATEMENT EXECUTE FUNCTION held()";
    fixture.server.execute("postgres", held).unwrap();
    fixture.count(link, 2);
    let holding = Connector::new(&fixture.server.url("postgres").parse().unwrap(), "holding");
    fixture.node.background.block_on(async {
        let session = holding.connect().await.unwrap();
        let transaction = session.begin().await.unwrap();
        transaction.batch("SELECT pg_advisory_xact_lock(1)").await.unwrap();
        let merging = fixture.node.fold_days(5, FoldCursor::default());
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while fixture.number(waits) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let another = clicks::fold_days(&fixture.node.pool, 5, 0, 7).await.unwrap();
        assert_eq!(another, None, "the first one goes on");
        assert!(clicks::add_up(&fixture.node.pool).await.unwrap(), "it has its turn");
        assert_eq!(fixture.number("SELECT count(*) FROM click_flushes"), 0);
        transaction.commit().await.unwrap();
        assert_eq!(merging.await.unwrap(), None, "all are done");
    });
    assert_eq!(fixture.number("SELECT sum(clicks) FROM totals"), 3);
    assert_eq!(fixture.number("SELECT sum(count) FROM clicks WHERE link = 0 AND day = 7"), 3);
    assert_eq!(fixture.number("SELECT sum(count) FROM clicks WHERE link = 0 AND day < 0"), 4);
    assert_eq!(fixture.number("SELECT count(*) FROM clicks WHERE day BETWEEN 0 AND 4"), 0);
}

#[test]
fn a_flush_of_a_node_that_is_forgotten_meanwhile_is_not_lost() {
    let fixture = Fixture::new();
    let link = fixture.add("one");
    fixture.count(link, 1);
    fixture.add_up();
    let url = fixture.server.url("postgres").parse().unwrap();
    let forgetting = Connector::new(&url, "forgetting");
    fixture.node.background.block_on(async {
        let session = forgetting.connect().await.unwrap();
        let transaction = session.begin().await.unwrap();
        transaction.batch("SELECT * FROM click_nodes FOR UPDATE").await.unwrap();
        let click = Click { link, hour: 7 * 24, referrer: 0, agent: Agent::None, count: 1 };
        let batch =
            ClickBatch { referrers: vec![String::new()], clicks: vec![click], ..ClickBatch::default() };
        let sent = fixture.node.count(Arc::new(batch));
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while fixture.number(waits) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        transaction.batch("DELETE FROM click_nodes").await.unwrap();
        transaction.commit().await.unwrap();
        sent.await.unwrap();
    });
    fixture.add_up();
    assert_eq!(fixture.number("SELECT sum(clicks) FROM totals"), 2);
}

#[test]
fn the_same_is_changed_of_many_and_what_fails_leaves_the_others() {
    let fixture = Fixture::new();
    for code in ["a", "b", "c"] {
        fixture.add(code);
    }
    let starts = LinkPatch { not_before: Some(Some(Timestamp(2_000_000_000))), ..LinkPatch::default() };
    fixture.node.edit("b".to_owned(), starts).wait().unwrap();
    let set = LinkPatch { expires_at: Some(Some(Timestamp(1_900_000_000))), ..LinkPatch::default() };
    let patch = ManyPatch { set, add_tags: vec!["x".to_owned()], ..ManyPatch::default() };
    let keys: Vec<LinkKey> = ["c", "b", "none", "a/b", "a", "a"].map(LinkKey::from).to_vec();
    let see = |before: &Link, after: &Link| format!("{}: {:?} {:?}", after.code, before.tags, after.tags);
    let edited = fixture.node.edit_many(keys, patch, see).wait().unwrap();
    let told = edited.iter().map(|edited| match edited {
        Ok(seen) => seen.clone(),
        Err(error) => error.to_string().split(':').next().unwrap_or_default().to_owned(),
    });
    let told: Vec<String> = told.collect();
    assert_eq!((&*told[0], &*told[4], &*told[5]), ("c: [] [\"x\"]", "a: [] [\"x\"]", "a: [\"x\"] [\"x\"]"));
    assert!(edited[1].is_err() && edited[2].is_err() && edited[3].is_err(), "{told:?}");
    assert_eq!(
        fixture.number("SELECT count(*) FROM links WHERE tags = '{x}' AND expires_at = 1900000000"),
        2
    );
    assert_eq!(fixture.number("SELECT count(*) FROM links WHERE expires_at IS NULL AND tags = '{}'"), 1);
}

#[test]
fn a_full_disk_of_the_server_is_told_and_nothing_of_a_batch_stays() {
    let fixture = Fixture::new();
    let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON links FOR EACH ROW WHEN (NEW.code = 'b') \
         EXECUTE FUNCTION full_disk()";
    fixture.server.execute("postgres", full).unwrap();
    let new = |code: &str| {
        let target = "https://example.com/".to_owned();
        NewLink { code: Some(code.to_owned()), target, ..NewLink::default() }
    };
    let one = fixture.node.create(new("b"), None).wait();
    assert!(matches!(one, Err(Error::Full)), "{one:?}");
    let many = fixture.node.create_many(&InDomains::All, vec![new("a"), new("b")]).wait();
    assert!(matches!(many, Err(Error::Full)), "{many:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM links"), 0);
    fixture.add("a");
}

#[test]
fn many_more_are_changed_than_are_sent_at_once() {
    let fixture = Fixture::new();
    let rows = "INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at) \
         SELECT 0, 'c' || n, 'https://example.com/', '{}', 0, 307, false, 0, n FROM generate_series(1, 500) AS n";
    fixture.server.execute("postgres", rows).unwrap();
    let set = LinkPatch { max_clicks: Some(Some(7)), ..LinkPatch::default() };
    let keys: Vec<LinkKey> = (1..=500).rev().map(|n| LinkKey::from(&*format!("c{n}"))).collect();
    // The first one once more, far from where it was named before.
    let keys = [keys, vec![LinkKey::from("c500")]].concat();
    let see = |before: &Link, after: &Link| (after.code.clone(), before.max_clicks, after.max_clicks);
    let patch = ManyPatch { set, ..ManyPatch::default() };
    let mut edited = fixture.node.edit_many(keys.clone(), patch, see).wait().unwrap();
    let again = edited.pop().expect("a result of each").expect("it is there");
    assert_eq!(again, ("c500".to_owned(), Some(7), Some(7)));
    let told = edited.iter().enumerate().all(|(at, edited)| {
        edited.as_ref().is_ok_and(|seen| *seen == (format!("c{}", 500 - at), None, Some(7)))
    });
    assert!(told && edited.len() == 500, "{edited:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM links WHERE max_clicks = 7"), 500);
    assert_eq!(fixture.number("SELECT count(*) FROM limits WHERE taken = 0"), 500);
    let mut deleted =
        fixture.node.delete_many_seen(keys, |link| (link.code.clone(), link.max_clicks)).wait().unwrap();
    assert!(matches!(deleted.pop(), Some(Err(Error::NotFound(_)))), "it is deleted once");
    let told = deleted
        .iter()
        .enumerate()
        .all(|(at, deleted)| deleted.as_ref().is_ok_and(|seen| *seen == (format!("c{}", 500 - at), Some(7))));
    assert!(told && deleted.len() == 500, "{deleted:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM links"), 0);
}

#[test]
fn a_limit_counts_the_clicks_from_before_it_was_set() {
    let fixture = Fixture::new();
    let link = fixture.add("one");
    // No node has added these clicks up yet.
    fixture.count(link, 50);
    fixture.limit("one", Some(60));
    assert_eq!(fixture.granted(link), 10);
    // Removing and setting it again doesn't give more clicks either.
    fixture.limit("one", None);
    assert_eq!(fixture.granted(link), 0, "without a limit there is nothing to grant");
    fixture.limit("one", Some(60));
    assert_eq!(fixture.granted(link), 0);
    fixture.limit("one", Some(70));
    assert_eq!(fixture.granted(link), 10);
    // Clicks on nodes that hadn't learned of the limit count once they are added up.
    fixture.count(link, 35);
    fixture.add_up();
    fixture.limit("one", Some(90));
    assert_eq!(fixture.granted(link), 5);
    assert_eq!(fixture.number("SELECT clicks FROM totals"), 85);
}

#[test]
fn a_link_is_read_as_its_write_was_answered_and_each_password_differs() {
    let fixture = Fixture::new();
    let target = "https://example.com/".to_owned();
    let password = Some("a".to_owned());
    let new = NewLink { code: Some("one".to_owned()), target, password, ..NewLink::default() };
    let created = fixture.node.create(new, None).wait().unwrap().link;
    assert_eq!(fixture.node.get("one".into()).wait().unwrap(), created);
    let patch = LinkPatch { password: Some(Some("b".to_owned())), ..LinkPatch::default() };
    let edited = fixture.node.edit("one".to_owned(), patch).wait().unwrap();
    assert_eq!(fixture.node.get("one".into()).wait().unwrap(), edited);
    assert!(created.password_end.is_some() && created.password_end != edited.password_end);
}

#[test]
fn visitors_who_wait_for_clicks_leave_the_queue_and_connections_to_writes() {
    let fixture = Fixture::new();
    let link = fixture.add("one");
    fixture.limit("one", Some(50));
    let remote = Remote::of(Arc::clone(&fixture.node));
    fixture.node.background.block_on(async {
        let session = fixture.node.pool.get().await.unwrap();
        let held = session.begin().await.unwrap();
        held.query("SELECT link FROM limits FOR UPDATE", &[]).await.unwrap();
        let waiting: Vec<_> = (0..VISITORS).map(|_| remote.lease(link)).collect();
        let more = remote.lease(link).await;
        assert!(matches!(more, Err(Error::Busy)), "{more:?}");
        let target = "https://example.com/".to_owned();
        let new = NewLink { code: Some("two".to_owned()), target, ..NewLink::default() };
        fixture.node.create(new, None).await.expect("a place and a connection");
        held.rollback().await.unwrap();
        let mut granted = 0;
        for lease in waiting {
            if let Lease::Granted(clicks) = lease.await.unwrap() {
                granted += clicks;
            }
        }
        assert_eq!(granted, 50);
    });
    fixture.limit("one", Some(60));
    assert_eq!(fixture.granted(link), 10);
}

#[test]
fn what_a_link_was_granted_under_two_limits_is_given_back_together() {
    let fixture = Fixture::new();
    let link = fixture.add("one");
    fixture.limit("one", Some(50));
    assert_eq!(fixture.granted(link), 50);
    let (remote, committing) = (Remote::of(Arc::clone(&fixture.node)), Arc::default());
    remote.give_back(vec![(link, 2), (link, 3)], &committing).wait().unwrap();
    assert!(committing.load(Ordering::Relaxed));
    assert_eq!(fixture.granted(link), 5);
}

#[test]
fn a_limit_that_an_import_sets_counts_the_clicks_from_before_too() {
    let fixture = Fixture::new();
    let link = fixture.add("one");
    fixture.add("two");
    // No node has added these clicks up yet.
    fixture.count(link, 50);
    let limited = |code: &str, max_clicks| {
        let target = "https://example.com/".to_owned();
        let link = NewLink { code: Some(code.to_owned()), target, max_clicks, ..NewLink::default() };
        Record { link, created_at: None, clicks: 0, password_hash: None }
    };
    let import = |max_clicks| {
        let rows = vec![limited("one", max_clicks), limited("two", None)];
        assert_eq!(
            fixture
                .node
                .import(rows, OnConflict::Replace, &InDomains::All, &Arc::default())
                .wait()
                .unwrap()
                .replaced,
            2
        );
    };
    import(Some(60));
    assert_eq!(fixture.number("SELECT sum(taken) FROM limits"), 50);
    assert_eq!(fixture.granted(link), 10);
    // Setting it again doesn't give more clicks.
    import(Some(60));
    assert_eq!(fixture.granted(link), 0);
    import(Some(65));
    assert_eq!(fixture.granted(link), 5);
    assert_eq!(fixture.number("SELECT count(*) FROM limits"), 1, "the other link has no limit");
}

#[test]
fn an_export_has_each_link_once_and_in_order_however_few_or_many_are_of_its_domains() {
    let fixture = Fixture::new();
    // One domain has three links, far from one another. Another one has many pages of them. Ids have gaps.
    let rows = "INSERT INTO domains (host, created_at) VALUES ('few.example', 0), ('many.example', 0); \
         INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at) \
         SELECT CASE WHEN n % 22000 = 7 THEN 1 WHEN n % 3 = 0 THEN 2 ELSE 0 END, n::text, 'https://example.com/', \
         '{}', 0, 307, false, 0, 0 FROM generate_series(1, 45000) AS n; \
         INSERT INTO totals SELECT id, id FROM links WHERE id % 2 = 0; \
         DELETE FROM links WHERE id BETWEEN 23000 AND 25000 OR id > 44990";
    fixture.server.execute("postgres", rows).unwrap();
    let only = |ids: &[i64]| InDomains::Only(ids.iter().copied().map(DomainId).collect());
    for (of, so) in [
        (InDomains::All, "true"),
        (only(&[0]), "domain = 0"),
        (only(&[1]), "domain = 1"),
        (only(&[2]), "domain = 2"),
        (only(&[1, 2]), "domain > 0"),
    ] {
        let (mut codes, mut clicks) = (Vec::new(), 0);
        let mut visit = |record: Record| {
            let host = record.link.domain.as_deref().unwrap_or("-");
            codes.push(format!("{}@{host}", record.link.code.unwrap_or_default()));
            clicks += record.clicks;
            true
        };
        fixture.node.export(&of, false, &mut visit).unwrap();
        let expected = format!(
            "SELECT string_agg(code || '@' || coalesce(host, '-'), ' ' ORDER BY l.id) \
             FROM links l LEFT JOIN domains d ON d.id = named_domain WHERE {so}"
        );
        let expected = fixture.server.execute("postgres", &expected).unwrap();
        assert!(codes.join(" ") == expected.trim(), "{so}: {} links", codes.len());
        let counted =
            format!("SELECT coalesce(sum(clicks), 0) FROM totals JOIN links ON id = link WHERE {so}");
        assert_eq!(clicks, fixture.number(&counted), "{so}");
    }
    let mut visited = 0;
    let mut visit = |_: Record| {
        visited += 1;
        visited < 3
    };
    fixture.node.export(&InDomains::All, false, &mut visit).unwrap();
    assert_eq!(visited, 3, "it ends when it is told to");
}

#[test]
fn an_export_that_is_not_read_holds_no_snapshot_and_then_goes_on() {
    // Of 7 KB each: more than fits into all buffers between the database and who reads the export.
    const LINKS: usize = 3_000;
    let fixture = Fixture::new();
    let rows = format!(
        "INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at) \
         SELECT 0, 'c' || n, 'https://example.com/' || repeat('x', 7000), '{{}}', 0, 307, false, 0, 0 \
         FROM generate_series(1, {LINKS}) AS n"
    );
    fixture.server.execute("postgres", &rows).unwrap();
    let (last, gone) = (format!("c{LINKS}"), format!("c{}", LINKS - 1));
    let wait = || {
        let held = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'linerate-links%' \
             AND backend_xmin IS NOT NULL";
        until("no snapshot is held", || fixture.number(held) == 0);
        let target = Some("https://example.com/new".to_owned());
        fixture.node.edit(last.clone(), LinkPatch { target, ..LinkPatch::default() }).wait().unwrap();
        fixture.node.delete(gone.clone()).wait().unwrap();
        fixture.add("later");
    };
    let mut exported = Vec::new();
    let mut visit = |record: Record| {
        if exported.is_empty() {
            wait();
        }
        exported.push((record.link.code.unwrap_or_default(), record.link.target));
        true
    };
    fixture.node.export(&InDomains::All, false, &mut visit).unwrap();
    let codes: Vec<&str> = exported.iter().map(|(code, _)| code.as_str()).collect();
    let expected: Vec<String> = (1..=LINKS).map(|n| format!("c{n}")).filter(|code| *code != gone).collect();
    assert!(codes == expected, "{} links", codes.len());
    let target = exported.last().map(|(_, target)| target.as_str());
    assert_eq!(target, Some("https://example.com/new"), "each is as it was when it was read");
}

#[test]
fn an_export_waits_for_a_session_however_long_others_have_all() {
    let fixture = Fixture::new();
    fixture.add("one");
    let url: Conninfo = fixture.server.url("postgres").parse().unwrap();
    let pool = Pool::new(Connector::new(&url, "exporting"), 1, Duration::from_millis(20));
    let (sender, mut receiver) = mpsc::channel(1);
    fixture.node.background.block_on(async {
        let held = pool.get().await.unwrap();
        let others = async {
            // Far longer than it waits at a time.
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(held);
        };
        let (exported, ()) = tokio::join!(transfer::export(&pool, &InDomains::All, false, &sender), others);
        exported.unwrap();
    });
    let page = receiver.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(page.len(), 1);
}

#[test]
fn lists_hold_every_link_once_and_in_order_however_little_a_page_looks_at() {
    let fixture = Fixture::new();
    let rows = "INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at) \
         SELECT 0, 'c' || (n * 37) % 101, 'https://example.com/', CASE n % 2 WHEN 0 THEN '{even}'::text[] ELSE '{}' END, \
         n % 3 / 2, 307, false, 0, n % 5 FROM generate_series(1, 50) AS n; \
         INSERT INTO totals SELECT id, id % 4 FROM links WHERE id % 3 > 0";
    fixture.server.execute("postgres", rows).unwrap();
    let text = |text: &str| Some(text.to_owned());
    let all = ListQuery { limit: 7, ..ListQuery::default() };
    for (name, narrowed, found) in [
        ("a text that all have", ListQuery { search: text("EXAMPLE"), ..all.clone() }, 50),
        ("a text that some have", ListQuery { search: text("c1"), ..all.clone() }, 6),
        ("a text that none has", ListQuery { search: text("nothing"), ..all.clone() }, 0),
        ("a tag that many have", ListQuery { tag: text("even"), ..all.clone() }, 25),
        ("a tag that none has", ListQuery { tag: text("rare"), ..all.clone() }, 0),
        ("a status", ListQuery { status: Some(Status::Disabled), ..all.clone() }, 17),
        ("all", all, 50),
    ] {
        for (sort, walk) in [
            (Sort::Created, Walk::of_one_part as fn(usize) -> Walk),
            (Sort::Updated, Walk::of_one_part),
            (Sort::Clicks, Walk::of_one_part),
            (Sort::Clicks, Walk::in_parts_of),
            (Sort::Code, Walk::in_parts_of),
        ] {
            for descending in [false, true] {
                let mut query = ListQuery { sort, descending, ..narrowed.clone() };
                let mut listed: Vec<Link> = Vec::new();
                loop {
                    let page = fixture.node.background.block_on(async {
                        let session = fixture.node.pool.get().await?;
                        list::walk(&session, &query, walk(4)).await
                    });
                    let page = page.unwrap();
                    listed.extend(page.links);
                    let Some(next) = page.next else { break };
                    query.cursor = Some(next);
                }
                if descending {
                    listed.reverse();
                }
                let key = |link: &Link| match sort {
                    Sort::Created => (0, String::new(), link.id),
                    Sort::Updated => (link.updated_at.0, String::new(), link.id),
                    Sort::Clicks => (link.clicks as i64, String::new(), link.id),
                    Sort::Code => (0, link.code.clone(), link.id),
                };
                assert_eq!(listed.len(), found, "{name} by {sort:?}");
                assert!(listed.is_sorted_by(|a, b| key(a) < key(b)), "{name} by {sort:?} {descending}");
            }
        }
    }
}

#[test]
fn a_list_of_few_links_is_sorted_and_follows_no_index_past_all_others() {
    let fixture = Fixture::that_explains();
    let rows = "INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, \
         updated_at) SELECT 0, 'c' || n, 'https://example.com/', CASE WHEN n <= 3 THEN '{rare}'::text[] ELSE '{}' END, \
         0, 307, false, 0, n FROM generate_series(1, 10000) AS n";
    fixture.server.execute("postgres", rows).unwrap();
    let before = fixture.server.logged().unwrap().len();
    for sort in [Sort::Created, Sort::Updated, Sort::Clicks, Sort::Code] {
        for descending in [false, true] {
            let tag = Some("rare".to_owned());
            let query = ListQuery { tag, sort, descending, limit: 2, ..ListQuery::default() };
            let first = fixture.node.list(query.clone()).wait().unwrap();
            let rest = fixture.node.list(ListQuery { cursor: first.next, ..query }).wait().unwrap();
            assert_eq!((first.links.len(), rest.links.len()), (2, 1), "{sort:?} {descending}");
        }
    }
    let plans = fixture.server.logged().unwrap().split_off(before);
    assert!(plans.contains("Sort Key: ((l.id + 0))"), "{plans}");
    assert!(!plans.contains("using links_"), "{plans}");
}

#[test]
fn links_that_an_export_disables_are_counted_without_a_look_at_the_others() {
    let fixture = Fixture::that_explains();
    // Ten of a thousand have a password, and one of these is disabled already.
    let rows = "INSERT INTO domains (host, created_at) VALUES ('go.example', 0); \
         INSERT INTO links (domain, code, target, tags, status, redirect, forward_query, created_at, updated_at, \
         password_hash) SELECT n % 2, 'c' || n, 'https://example.com/', '{}', n % 10 / 9, 307, false, 0, 0, \
         CASE WHEN n % 1000 < 10 THEN 'hash' END FROM generate_series(1, 10000) AS n";
    fixture.server.execute("postgres", rows).unwrap();
    let before = fixture.server.logged().unwrap().len();
    for (of, locked) in [(InDomains::All, 90), (InDomains::Only(vec![DomainId(1)]), 40)] {
        assert_eq!(fixture.node.locked(of).wait().unwrap(), locked);
    }
    let plans = fixture.server.logged().unwrap().split_off(before);
    assert_eq!(plans.matches("links_locked").count(), 2, "{plans}");
    assert!(!plans.contains("Seq Scan"), "{plans}");
}
