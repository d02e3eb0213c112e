//! Tests of the whole store through its public interface.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::agent::Agent;
use crate::code::CodePolicy;
use crate::country::Country;
use crate::domains::InDomains;
use crate::link::{LinkPatch, NewLink, Status};
use crate::store::rules::walk::{PAGE_BYTES, Walk};
use crate::store::{Change, Click, Count, CountryClick, ListQuery, Older, Scope, Sort, Stats, TimeCount};
use crate::target::InvalidTarget;
use crate::when::Timestamp;

use super::tables::list;
use super::*;

mod domains;

/// A store in a separate directory.
struct Fixture {
    store: Store,
    // Dropped after the store.
    directory: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(CodePolicy::default())
    }

    fn with(codes: CodePolicy) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { codes, ..Options::new(&directory.path().join("links.db")) };
        Self { store: Store::open(options).unwrap(), directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("links.db")
    }

    fn add(&self, code: &str) -> Link {
        self.store.create(link(code), None).wait().unwrap().link
    }

    fn reader(&self) -> Reader {
        self.store.reader().unwrap()
    }

    fn count(&self, batch: ClickBatch) {
        self.store.count(Arc::new(batch)).wait().unwrap();
    }
}

fn link(code: &str) -> NewLink {
    NewLink {
        code: Some(code.to_owned()),
        target: format!("https://example.com/{code}"),
        ..NewLink::default()
    }
}

fn anywhere() -> NewLink {
    NewLink { target: "https://example.com/".to_owned(), ..NewLink::default() }
}

fn click(link: i64, day: i32, referrer: u32, agent: Agent, count: u32) -> Click {
    Click { link, hour: 24 * day, referrer, agent, count }
}

/// Submits work that blocks the writer until the sender is dropped.
fn hold(store: &Store) -> (std::sync::mpsc::Sender<()>, Pending<()>) {
    let (started, has_started) = channel();
    let (go, wait): (_, Receiver<()>) = channel();
    let pending = store.writer.submit(move |_| {
        started.send(()).unwrap();
        let _ = wait.recv();
        Ok(())
    });
    has_started.recv().unwrap();
    (go, pending)
}

#[test]
fn a_link_is_created_read_edited_and_deleted() {
    let fixture = Fixture::new();
    let new = NewLink {
        title: Some(" A title ".to_owned()),
        tags: vec!["b".to_owned(), "a".to_owned(), "b".to_owned()],
        forward_query: true,
        password: Some("secret".to_owned()),
        expires_at: Some(Timestamp(4_000_000_000)),
        max_clicks: Some(3),
        ..link("one")
    };
    let created = fixture.store.create(new, None).wait().unwrap();
    assert!(!created.replayed);
    let reader = fixture.reader();
    assert_eq!(reader.get("one").unwrap(), created.link);
    assert_eq!(created.link.title.as_deref(), Some("A title"));
    assert_eq!(created.link.tags, ["a", "b"]);
    assert!(created.link.protected);
    let route = reader.route("one").unwrap().unwrap();
    assert_eq!((route.id, route.target.as_str()), (created.link.id, "https://example.com/one"));
    assert!(route.password_hash.is_some_and(|hash| service::password::verify("secret", &hash)));

    let patch = LinkPatch {
        target: Some("https://example.org/".to_owned()),
        title: Some(None),
        tags: Some(vec!["c".to_owned()]),
        status: Some(Status::Disabled),
        password: Some(None),
        max_clicks: Some(None),
        ..LinkPatch::default()
    };
    let edited = fixture.store.edit("one".to_owned(), patch).wait().unwrap();
    assert_eq!(reader.get("one").unwrap(), edited);
    assert_eq!((edited.title, edited.protected, edited.max_clicks), (None, false, None));
    assert_eq!(edited.expires_at, Some(Timestamp(4_000_000_000)), "an absent field stays");
    assert_eq!(reader.route("one").unwrap().unwrap().target, "https://example.org/");

    fixture.store.delete("one".to_owned()).wait().unwrap();
    assert!(matches!(reader.get("one"), Err(Error::NotFound(code)) if code == "one"));
    assert_eq!(reader.route("one").unwrap(), None);
    for gone in [
        fixture.store.delete("one".to_owned()).wait(),
        fixture.store.edit("one".to_owned(), LinkPatch::default()).wait().map(drop),
    ] {
        assert!(matches!(gone, Err(Error::NotFound(_))), "{gone:?}");
    }
}

#[test]
fn an_edit_that_breaks_a_rule_changes_nothing() {
    let fixture = Fixture::new();
    let before = fixture.add("one");
    let title = |title: &str| LinkPatch { title: Some(Some(title.to_owned())), ..LinkPatch::default() };
    let dates = LinkPatch {
        not_before: Some(Some(Timestamp(20))),
        expires_at: Some(Some(Timestamp(10))),
        ..title("new")
    };
    assert!(matches!(
        fixture.store.edit("one".to_owned(), dates).wait(),
        Err(Error::Field { field: "expires_at", .. })
    ));
    let refused = fixture.store.edit_if("one".to_owned(), title("new"), |link| link.title.is_some()).wait();
    assert!(matches!(refused, Err(Error::Changed)));
    assert!(matches!(fixture.store.delete_if("one".to_owned(), |_| false).wait(), Err(Error::Changed)));
    assert_eq!(fixture.reader().get("one").unwrap(), before);
}

#[test]
fn a_code_is_refused_when_taken_reserved_or_malformed() {
    let fixture = Fixture::new();
    fixture.add("one");
    let create = |code| fixture.store.create(link(code), None).wait();
    assert!(matches!(create("one"), Err(Error::Taken(code)) if code == "one"));
    assert!(matches!(create("API"), Err(Error::Code(_))));
    assert!(matches!(create("a/b"), Err(Error::Code(_))));
    assert!(create("One").is_ok(), "codes differ by case");
}

#[test]
fn random_codes_grow_when_they_run_out() {
    let fixture = Fixture::with(CodePolicy { length: 1, alphabet: "ab".to_owned(), reserved: Vec::new() });
    let mut codes: Vec<_> =
        (0..100).map(|_| fixture.store.create(anywhere(), None).wait().unwrap().link.code).collect();
    assert!(codes[0].len() == 1 && codes[99].len() > 4, "{codes:?}");
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), 100);
}

#[test]
fn a_repeated_request_is_answered_with_the_first_ones_link() {
    let fixture = Fixture::new();
    let body = |title: &str, password: &str| format!(r#"{{"title":"{title}","password":"{password}"}}"#);
    let named = |name: &str, body: String| Some(IdempotencyKey::new(name.to_owned(), body.as_bytes()));
    let key = |title: &str| named("key", body(title, "secret"));
    let first = fixture.store.create(anywhere(), key("a")).wait().unwrap();
    let again = fixture.store.create(anywhere(), key("a")).wait().unwrap();
    assert_eq!(again, Created { replayed: true, ..first.clone() });
    assert!(matches!(fixture.store.create(anywhere(), key("b")).wait(), Err(Error::KeyReused)));
    assert_eq!(key("a"), named("key", body("a", "guess")), "a password cannot be guessed by the digest");
    let other = named("other", body("a", "secret"));
    assert_ne!(fixture.store.create(anywhere(), other).wait().unwrap().link.code, first.link.code);
    fixture.store.delete(first.link.code.clone()).wait().unwrap();
    let anew = fixture.store.create(anywhere(), key("a")).wait().unwrap();
    assert!(!anew.replayed && anew.link.id != first.link.id);
}

#[test]
fn each_command_of_a_transaction_stands_on_its_own() {
    let fixture = Fixture::new();
    fixture.add("taken");
    let (go, held) = hold(&fixture.store);
    let good = fixture.store.create(link("good"), None);
    let bad = fixture.store.create(link("taken"), None);
    let also = fixture.store.create(link("also"), None);
    let many = fixture.store.create_many(&InDomains::All, vec![link("x"), link("good"), link("y")]);
    let gone = fixture.store.delete_many(vec!["taken".to_owned(), "nobody".to_owned()]);
    drop(go);
    held.wait().unwrap();
    assert!(good.wait().is_ok() && also.wait().is_ok());
    assert!(matches!(bad.wait(), Err(Error::Taken(_))));
    assert!(matches!(many.wait().unwrap().as_slice(), [Ok(_), Err(Error::Taken(_)), Ok(_)]));
    assert!(matches!(gone.wait().unwrap().as_slice(), [Ok(()), Err(Error::NotFound(_))]));
    assert_eq!(fixture.reader().len().unwrap(), 4);
}

#[test]
fn a_full_disk_refuses_what_it_cannot_keep_and_nothing_afterwards() {
    let fixture = Fixture::new();
    fixture.add("before");
    let limit = |pages: &'static str| {
        let set = move |work: &mut work::WriteContext<'_>| {
            let sql = format!("PRAGMA max_page_count = {pages}");
            Ok(work.connection.query_row(&sql, [], |row| row.get::<_, i64>(0))?)
        };
        fixture.store.writer.submit(set).wait().unwrap()
    };
    // The lowest possible limit: the existing pages.
    limit("1");
    let big =
        |code: &str| NewLink { target: format!("https://example.com/{}", "x".repeat(7_000)), ..link(code) };
    let (go, held) = hold(&fixture.store);
    let pending: Vec<_> = (0..50).map(|n| fixture.store.create(big(&format!("big{n}")), None)).collect();
    // The deletion needs no space, but it shares the transaction that is lost.
    let delete = fixture.store.delete("before".to_owned());
    drop(go);
    held.wait().unwrap();
    for answer in pending.into_iter().map(|pending| pending.wait().map(drop)).chain([delete.wait()]) {
        assert!(matches!(answer, Err(Error::Full)), "{answer:?}");
    }
    let reader = fixture.reader();
    assert_eq!(reader.len().unwrap(), 1);
    assert!(reader.route("before").unwrap().is_some());
    limit("1000000");
    fixture.store.create(big("after"), None).wait().unwrap();
    assert_eq!(reader.check().unwrap(), [""; 0]);
}

/// Runs a test on a thread to which file permissions apply, even if the tests run as root.
fn without_override(test: impl FnOnce() + Send + 'static) {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let run = move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap();
        test();
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn a_database_that_cannot_be_written_is_read() {
    use std::os::unix::fs::PermissionsExt;
    for (file, directory) in [(0o444, 0o755), (0o444, 0o555), (0o644, 0o555)] {
        let fixture = Fixture::new();
        fixture.add("one");
        fixture.store.close();
        let path = fixture.path();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&path, file);
        set(fixture.directory.path(), directory);
        without_override(move || {
            let store = Store::open(Options::new(&path)).unwrap();
            let reader = store.reader().unwrap();
            assert_eq!(reader.route("one").unwrap().unwrap().target, "https://example.com/one");
            assert_eq!(reader.len().unwrap(), 1);
            assert!(!store.is_writable());
            for refused in [
                store.create(link("two"), None).wait().map(drop),
                store.delete("one".to_owned()).wait(),
                store.count(Arc::default()).wait(),
            ] {
                assert!(matches!(refused, Err(Error::ReadOnly)), "{file:o} {directory:o}: {refused:?}");
            }
        });
        set(fixture.directory.path(), 0o755);
    }
}

#[test]
fn a_newer_database_is_refused_untouched() {
    let fixture = Fixture::new();
    fixture.store.close();
    let connection = Connection::open(fixture.path()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let refused = Store::open(Options::new(&fixture.path())).map(drop);
    assert!(matches!(refused, Err(Error::TooNew { found: 99, .. })), "{refused:?}");
}

#[test]
fn a_release_that_knows_nothing_of_later_columns_goes_on_with_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("links.db");
    let old = Connection::open(&path).unwrap();
    schema::MIGRATIONS.iter().for_each(|step| old.execute_batch(step).unwrap());
    let version = schema::MIGRATIONS.len() as i64;
    old.pragma_update(None, "user_version", version).unwrap();
    old.pragma_update(None, "application_id", 0x6c6e_6b73).unwrap();
    let insert = "INSERT INTO tokens (name, scope, selector, hash, created_at, domains) \
                  VALUES (?1, 0, ?1, x'00', 1, NULL)";
    old.execute(insert, ["before"]).unwrap();
    // A process that takes over from a serving one does not migrate this database, and doesn't need to.
    assert!(is_current(&path).unwrap());
    let store = Store::open(Options::new(&path)).unwrap();
    old.execute(insert, ["after"]).unwrap();
    let found: i64 = old.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(found, version, "the release before starts");
    let reader = store.reader().unwrap();
    let tokens = reader.tokens().unwrap();
    assert_eq!(tokens.iter().map(|token| &*token.name).collect::<Vec<_>>(), ["before", "after"]);
    assert!(tokens.iter().all(|token| token.expires_at.is_none() && token.last_used_at.is_none()));
    for at in [7, 5] {
        store.token_used(tokens[1].id, Timestamp(at)).wait().unwrap();
    }
    let used = |id: usize| reader.tokens().unwrap()[id].last_used_at;
    assert_eq!((used(0), used(1)), (None, Some(Timestamp(7))), "the later one stays");
}

#[test]
fn a_database_of_the_first_version_keeps_its_clicks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("links.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(schema::MIGRATIONS[0]).unwrap();
    connection.pragma_update(None, "user_version", 1).unwrap();
    for (code, clicks) in [("never", 0), ("often", 7)] {
        let sql = "INSERT INTO links (code, target, tags, status, redirect, forward_query, clicks, created_at, \
                   updated_at) VALUES (?1, 'https://example.com/', '', 0, 307, 0, ?2, 1, 1)";
        connection.execute(sql, (code, clicks)).unwrap();
    }
    connection
        .execute_batch(
            "INSERT INTO referrers VALUES (5, 'news.example');
        INSERT INTO clicks VALUES (2, 0, 5, 4, 3), (2, 0, 0, 4, 4)",
        )
        .unwrap();
    drop(connection);
    let store = Store::open(Options::new(&path)).unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(reader.get("never").unwrap().clicks, 0);
    assert_eq!(reader.get("often").unwrap().clicks, 7);
    let stats = reader.stats(Some("often"), 0..=0).unwrap();
    let count = |name: &str, clicks| Count { name: name.to_owned(), clicks };
    assert_eq!(stats.referrers, [count("", 4), count("news.example", 3)]);
    assert_eq!(stats.agents, [count("chrome", 7)]);
}

#[test]
fn a_database_of_another_program_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    for (name, made) in [
        ("tables", "CREATE TABLE notes (text)"),
        ("version", "PRAGMA user_version = 2; CREATE TABLE links (a)"),
        ("later-version", "PRAGMA user_version = 3"),
        ("application", "PRAGMA application_id = 7"),
        // The table is in a log that hasn't been written back yet, from a program that has ended.
        ("log", "PRAGMA journal_mode = WAL; CREATE TABLE notes (text)"),
    ] {
        let path = directory.path().join(name);
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(made).unwrap();
        if name == "log" {
            // This is the state after a crash: closing would write the log back.
            for end in ["", "-wal"] {
                let copy = directory.path().join(format!("copy{end}"));
                std::fs::copy(directory.path().join(format!("log{end}")), copy).unwrap();
            }
        }
        drop(connection);
        let path = if name == "log" { directory.path().join("copy") } else { path };
        let bytes = || {
            let log = directory.path().join("copy-wal");
            [&path, &log].map(|file| std::fs::read(file).ok())
        };
        let before = bytes();
        let refused = Store::open(Options::new(&path)).map(drop);
        assert!(matches!(refused, Err(Error::Foreign)), "{name}: {refused:?}");
        assert_eq!(bytes(), before, "{name}");
    }
}

#[test]
fn a_new_database_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    fixture.add("one");
    for entry in std::fs::read_dir(fixture.directory.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "not a database, but long enough to be taken for one\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    assert!(matches!(Store::open(Options::new(&path)).map(drop), Err(Error::NotADatabase)));
    assert!(matches!(Store::open(Options::new(directory.path())).map(drop), Err(Error::Directory)));
    let fixture = Fixture::new();
    assert!(fixture.reader().backup(&path, &mut |_| {}).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn changes_are_told_after_their_commit_and_before_their_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("links.db");
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&seen);
    let look = path.clone();
    let on_change: OnChange = Box::new(move |change| {
        let committed: i64 = Connection::open(&look)
            .and_then(|other| other.query_row("SELECT count(*) FROM links", [], |row| row.get(0)))
            .unwrap();
        let what = match change {
            Change::Codes(keys) => format!("{:?}", keys.iter().map(|key| &key.code).collect::<Vec<_>>()),
            Change::All => "All".to_owned(),
        };
        log.lock().unwrap().push(format!("{what} {committed}"));
    });
    let store = Store::open(Options { on_change, ..Options::new(&path) }).unwrap();
    let told = |expected: &str| assert_eq!(seen.lock().unwrap().drain(..).collect::<Vec<_>>(), [expected]);
    store.create(link("one"), None).wait().unwrap();
    told(r#"["one"] 1"#);
    store.edit("one".to_owned(), LinkPatch::default()).wait().unwrap();
    told(r#"["one"] 1"#);
    store
        .import(
            vec![Record { link: link("two"), ..Record::default() }],
            OnConflict::Fail,
            &InDomains::All,
            &Arc::default(),
        )
        .wait()
        .unwrap();
    told("All 2");
    store.delete("one".to_owned()).wait().unwrap();
    told(r#"["one"] 1"#);
    store.create(link("two"), None).wait().unwrap_err();
    store.count(Arc::default()).wait().unwrap();
    assert!(seen.lock().unwrap().is_empty(), "neither changes a link's answer");

    Connection::open(&path).unwrap().execute("UPDATE links SET target = 'https://b.example/'", []).unwrap();
    let since = Instant::now();
    while seen.lock().unwrap().is_empty() {
        assert!(since.elapsed() < Duration::from_secs(60), "the other process's commit goes unnoticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    told("All 1");
}

#[test]
fn a_full_queue_is_busy_and_a_closed_store_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("links.db");
    let store = Store::open(Options { queue: 2, ..Options::new(&path) }).unwrap();
    let (go, held) = hold(&store);
    let waiting = [store.create(link("a"), None), store.create(link("b"), None)];
    assert_eq!(store.depth(), 3);
    assert!(matches!(store.create(link("c"), None).wait(), Err(Error::Busy)));
    drop(go);
    held.wait().unwrap();
    store.close();
    assert!(matches!(store.create(link("d"), None).wait(), Err(Error::Closed)));
    for done in waiting {
        done.wait().expect("what waited is committed before the writer stops");
    }
    let store = Store::open(Options::new(&path)).unwrap();
    let reader = store.reader().unwrap();
    assert!(reader.get("a").is_ok() && reader.get("b").is_ok());
    assert_eq!(reader.len().unwrap(), 2);
}

#[test]
fn clicks_are_summed_by_day_referrer_and_agent() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.add("one").id, fixture.add("two").id);
    let referrers = vec![String::new(), "news.example".to_owned(), "mail.example".to_owned()];
    fixture.count(ClickBatch {
        referrers: referrers.clone(),
        clicks: vec![
            click(one, 0, 0, Agent::Chrome, 1),
            click(one, 1, 1, Agent::Chrome, 2),
            click(one, 1, 2, Agent::Firefox, 4),
            click(two, 1, 1, Agent::Bot, 8),
            click(999, 1, 1, Agent::Bot, 16),
        ],
        ..ClickBatch::default()
    });
    fixture.count(ClickBatch {
        referrers,
        clicks: vec![click(one, 1, 1, Agent::Chrome, 32)],
        ..ClickBatch::default()
    });
    let reader = fixture.reader();
    assert_eq!(reader.get("one").unwrap().clicks, 39);
    let named = |counts: &[Count]| {
        counts.iter().map(|count| format!("{}={}", count.name, count.clicks)).collect::<Vec<_>>().join(" ")
    };
    let timed = |counts: &[TimeCount]| {
        let one = |count: &TimeCount| format!("{}={}/{}", count.name, count.clicks, count.bots);
        counts.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    for (code, days, total, by_day, by_referrer, by_agent) in [
        (
            Some("one"),
            0..=9,
            39,
            "1970-01-01=1/0 1970-01-02=38/0",
            "news.example=34 mail.example=4 =1",
            "chrome=35 firefox=4",
        ),
        (Some("one"), 0..=0, 1, "1970-01-01=1/0", "=1", "chrome=1"),
        (Some("one"), 2..=9, 0, "", "", ""),
        (Some("two"), 0..=9, 8, "1970-01-02=8/8", "news.example=8", "bot=8"),
        (None, 1..=1, 46, "1970-01-02=46/8", "news.example=42 mail.example=4", "chrome=34 bot=8 firefox=4"),
    ] {
        let stats = reader.stats(code, days.clone()).unwrap();
        assert_eq!(stats.clicks, total, "{code:?} {days:?}");
        assert_eq!(timed(&stats.days), by_day, "{code:?} {days:?}");
        assert_eq!(named(&stats.referrers), by_referrer, "{code:?} {days:?}");
        assert_eq!(named(&stats.agents), by_agent, "{code:?} {days:?}");
    }
    assert!(matches!(reader.stats(Some("nobody"), 0..=1), Err(Error::NotFound(_))));
    fixture.store.delete("one".to_owned()).wait().unwrap();
    assert_eq!(reader.stats(None, 0..=9).unwrap().clicks, 47, "the sum outlives the link");
}

/// More links than one statement adds: some clicked before, some for the first time, and some that are gone.
#[test]
fn clicks_of_many_links_are_counted_for_each() {
    const LINKS: i64 = 100;
    let fixture = Fixture::new();
    let links: Vec<Link> = (0..LINKS).map(|number| fixture.add(&format!("c{number}"))).collect();
    for link in links.iter().skip(5).step_by(10) {
        fixture.store.delete(link.code.clone()).wait().unwrap();
    }
    let flush = |clicked: &dyn Fn(&i64) -> bool| {
        let agents = [Agent::Chrome, Agent::Bot];
        let of = |link: i64| agents.map(|agent| click(link, 1, 1, agent, link as u32));
        fixture.count(ClickBatch {
            referrers: vec![String::new(), "news.example".to_owned()],
            clicks: links.iter().map(|link| link.id).filter(clicked).flat_map(of).collect(),
            countries: Vec::new(),
        });
    };
    flush(&|link| link % 2 == 0);
    flush(&|_| true);
    let connection = Connection::open(fixture.path()).unwrap();
    let sums = |sql: &str| -> Vec<(i64, i64)> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let times = |id: i64| if id % 2 == 0 { 4 } else { 2 };
    let of = |(number, link): (usize, &Link)| (number % 10 != 5).then(|| (link.id, times(link.id) * link.id));
    let expected: Vec<_> = links.iter().enumerate().filter_map(of).collect();
    let all: i64 = expected.iter().map(|(_, clicks)| clicks).sum();
    assert_eq!(sums("SELECT link, clicks FROM totals ORDER BY link"), expected);
    let with_all: Vec<_> = [(0, all)].into_iter().chain(expected).collect();
    for table in ["clicks", "click_hours"] {
        let counted = sums(&format!("SELECT link, sum(count) FROM {table} GROUP BY link ORDER BY link"));
        assert_eq!(counted, with_all, "{table}");
    }
    assert_eq!(sums("SELECT 0, sum(bots) FROM click_hours WHERE link > 0"), [(0, all / 2)]);
}

#[test]
fn hours_are_told_apart_until_they_are_forgotten_and_go_with_their_link() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.add("one").id, fixture.add("two").id);
    let click = |link, hour, referrer, agent, count| Click { link, hour, referrer, agent, count };
    fixture.count(ClickBatch {
        referrers: vec![String::new(), "a.example".to_owned()],
        clicks: vec![
            click(one, 5, 0, Agent::Chrome, 1),
            click(one, 5, 1, Agent::Bot, 2),
            click(one, 6, 0, Agent::Firefox, 4),
            click(one, 30, 0, Agent::Bot, 8),
            click(two, 5, 0, Agent::Tool, 16),
            click(999, 5, 0, Agent::Tool, 32),
        ],
        ..ClickBatch::default()
    });
    fixture.count(ClickBatch {
        referrers: vec![String::new()],
        clicks: vec![click(one, 6, 0, Agent::Bot, 64)],
        ..ClickBatch::default()
    });
    let reader = fixture.reader();
    let told = |code: Option<&str>, hours| {
        let one = |count: &TimeCount| format!("{}={}/{}", &count.name[8..], count.clicks, count.bots);
        reader.hours(code, hours).unwrap().iter().map(one).collect::<Vec<_>>().join(" ")
    };
    for (code, hours, expected) in [
        (Some("one"), 0..=99, "01T05=3/2 01T06=68/64 02T06=8/8"),
        (Some("one"), 6..=29, "01T06=68/64"),
        (Some("two"), 0..=99, "01T05=16/0"),
        (None, 0..=99, "01T05=19/2 01T06=68/64 02T06=8/8"),
    ] {
        assert_eq!(told(code, hours.clone()), expected, "{code:?} {hours:?}");
    }
    assert!(matches!(reader.hours(Some("nobody"), 0..=1), Err(Error::NotFound(_))));
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = fixture.store.forget_hours(6, from).wait().unwrap();
    }
    assert_eq!(told(Some("one"), 0..=99), "01T06=68/64 02T06=8/8");
    assert_eq!((told(Some("two"), 0..=99), told(None, 0..=5)), (String::new(), String::new()));
    assert_eq!(reader.stats(Some("one"), 0..=9).unwrap().clicks, 79, "all other sums keep them");
    // A release that doesn't know hours deletes the link.
    let other = Connection::open(fixture.path()).unwrap();
    other.execute("DELETE FROM links WHERE id = ?1", [one]).unwrap();
    let left: i64 =
        other.query_row("SELECT count(*) FROM click_hours WHERE link = ?1", [one], |row| row.get(0)).unwrap();
    assert_eq!((left, told(None, 0..=99)), (0, "01T06=68/64 02T06=8/8".to_owned()));
}

#[test]
fn a_piece_of_work_forgets_so_many_hours_and_the_next_goes_on_from_there() {
    let fixture = Fixture::new();
    let other = Connection::open(fixture.path()).unwrap();
    let hours = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) \
         INSERT INTO click_hours SELECT i / 100, i % 100, 1, 0 FROM n";
    other.execute_batch(hours).unwrap();
    let left =
        || other.query_row("SELECT count(*) FROM click_hours", [], |row| row.get::<_, u64>(0)).unwrap();
    let forget = |from| fixture.store.forget_hours(90, from).wait().unwrap();
    let next = forget(FoldCursor::default());
    // 90 hours of each link are deleted, and there are a hundred links.
    assert_eq!((next, left()), (Some(FoldCursor(67)), 10_000 - 67 * 90));
    assert_eq!((forget(next.unwrap()), left()), (None, 100 * 10));
}

#[test]
fn countries_are_summed_and_folded_by_day_and_go_with_their_link() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.add("one").id, fixture.add("two").id);
    let from = |link, day, code, count| CountryClick { link, day, country: Country::of(code), count };
    fixture.count(ClickBatch {
        referrers: vec![String::new()],
        clicks: vec![click(one, 1, 0, Agent::None, 15), click(two, 5, 0, Agent::None, 16)],
        countries: vec![
            from(one, 1, "DE", 1),
            from(one, 1, "", 2),
            from(one, 5, "DE", 4),
            from(one, 6, "FR", 8),
            from(two, 5, "DE", 16),
        ],
    });
    let gone = vec![click(999, 1, 0, Agent::None, 1)];
    fixture.count(ClickBatch {
        clicks: gone,
        countries: vec![from(999, 1, "JP", 1)],
        ..ClickBatch::default()
    });
    let reader = fixture.reader();
    let told = |code: Option<&str>, days| {
        let one = |count: &Count| format!("{}={}", count.name, count.clicks);
        reader.stats(code, days).unwrap().countries.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    let sums =
        [(Some("one"), 0..=9, "FR=8 DE=5 =2"), (Some("two"), 0..=9, "DE=16"), (None, 0..=9, "DE=21 FR=8 =2")];
    for (code, days, expected) in [(Some("one"), 5..=5, "DE=4")].into_iter().chain(sums.clone()) {
        assert_eq!(told(code, days.clone()), expected, "{code:?} {days:?}");
    }
    fold(&fixture.store, 6);
    for (code, days, expected) in [(Some("one"), 5..=9, "FR=8")].into_iter().chain(sums) {
        assert_eq!(told(code, days.clone()), expected, "{code:?} {days:?}");
    }
    let other = Connection::open(fixture.path()).unwrap();
    other.execute("DELETE FROM links WHERE id = ?1", [one]).unwrap();
    let left: i64 = other
        .query_row("SELECT count(*) FROM click_countries WHERE link = ?1", [one], |row| row.get(0))
        .unwrap();
    assert_eq!((left, &*told(None, 0..=9)), (0, "DE=21 FR=8 =2"));
}

#[test]
fn many_links_forget_their_hours_part_by_part() {
    let fixture = Fixture::new();
    let links: Vec<i64> = (0..600).map(|n| fixture.add(&format!("n{n}")).id).collect();
    let clicks = links.iter().map(|&link| click(link, 0, 0, Agent::Chrome, 1)).collect();
    fixture.count(ClickBatch { referrers: vec![String::new()], clicks, ..ClickBatch::default() });
    let (mut next, mut parts) = (Some(FoldCursor::default()), 0);
    while let Some(from) = next {
        next = fixture.store.forget_hours(i32::MAX, from).wait().unwrap();
        parts += 1;
    }
    assert_eq!(parts, 3, "601 of them, 250 at a time");
    assert_eq!(fixture.reader().hours(None, i32::MIN..=i32::MAX).unwrap(), []);
}

/// Clicks on `link` on day 0, one from each of these hosts.
fn clicks_from(link: i64, hosts: impl Iterator<Item = String>) -> ClickBatch {
    let referrers: Vec<_> = std::iter::once(String::new()).chain(hosts).collect();
    let clicks = (1..referrers.len() as u32).map(|n| click(link, 0, n, Agent::Other, 1)).collect();
    ClickBatch { referrers, clicks, ..ClickBatch::default() }
}

fn from(stats: &Stats, name: &str) -> u64 {
    stats.referrers.iter().find(|count| count.name == name).map_or(0, |count| count.clicks)
}

#[test]
fn made_up_referrers_cannot_spoil_the_count_of_real_ones() {
    let fixture = Fixture::new();
    let one = fixture.add("one").id;
    fixture.count(clicks_from(one, std::iter::repeat_n("before.example".to_owned(), 40)));
    for round in 0..100 {
        // These are as many as a worker hands over at once, with a real one among them now and then.
        let made_up = (0..1000).map(|n| format!("x{}.example", round * 1000 + n));
        fixture.count(clicks_from(one, made_up));
        fixture.count(clicks_from(one, std::iter::repeat_n("during.example".to_owned(), 2)));
    }
    let real = (0..20).map(|n| format!("after{n}.example"));
    fixture.count(clicks_from(one, real.clone()));
    fixture.count(clicks_from(one, real));
    for code in [Some("one"), None] {
        let stats = fixture.reader().stats(code, 0..=0).unwrap();
        assert_eq!(stats.clicks, 100_000 + 40 + 200 + 40);
        assert_eq!(from(&stats, "before.example"), 40);
        assert_eq!(from(&stats, "during.example"), 200);
        for n in 0..20 {
            assert_eq!(from(&stats, &format!("after{n}.example")), 2, "{n}");
        }
        assert!(from(&stats, "(other)") > 90_000, "{:?}", stats.referrers[0]);
    }
    // The rows that remain are limited, and do not displace those of another link.
    let two = fixture.add("two").id;
    fixture.count(clicks_from(two, std::iter::once("real.example".to_owned())));
    assert_eq!(from(&fixture.reader().stats(Some("two"), 0..=0).unwrap(), "real.example"), 1);
    let rows: i64 = Connection::open(fixture.path())
        .unwrap()
        .query_row("SELECT count(*) FROM clicks", [], |row| row.get(0))
        .unwrap();
    assert!(rows < 6_000, "{rows} rows");
}

/// Folds everything older than a day.
fn fold(store: &Store, before: i32) {
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = store.fold_days(before, from).wait().unwrap();
    }
}

/// One click per referrer and day, from this many referrers.
fn clicks_on(link: i64, days: std::ops::Range<i32>, referrers: u32) -> ClickBatch {
    let names = std::iter::once(String::new()).chain((0..referrers).map(|n| format!("r{n}.example")));
    let clicks =
        days.flat_map(|day| (1..=referrers).map(move |n| click(link, day, n, Agent::Chrome, 1))).collect();
    ClickBatch { referrers: names.collect(), clicks, ..ClickBatch::default() }
}

#[test]
fn days_that_are_too_old_become_one_and_no_sum_changes() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.add("one").id, fixture.add("two").id);
    fixture.count(clicks_on(one, 0..10, 3));
    fixture.count(ClickBatch {
        referrers: vec![String::new()],
        clicks: vec![click(one, 2, 0, Agent::Bot, 7), click(two, 9, 0, Agent::None, 1)],
        ..ClickBatch::default()
    });
    let reader = fixture.reader();
    let ever = i32::MIN..=i32::MAX;
    let sums = |code: Option<&str>| {
        let stats = reader.stats(code, ever.clone()).unwrap();
        (stats.clicks, stats.referrers, stats.agents)
    };
    let named = |days: &[TimeCount]| days.iter().map(|day| day.name.clone()).collect::<Vec<_>>();
    let before = [sums(Some("one")), sums(Some("two")), sums(None)];
    assert_eq!([before[0].0, before[1].0, before[2].0], [37, 1, 38]);

    fold(&fixture.store, 8);
    assert_eq!([sums(Some("one")), sums(Some("two")), sums(None)], before);
    assert_eq!(reader.get("one").unwrap().clicks, 37);
    let stats = reader.stats(Some("one"), 0..=20).unwrap();
    assert_eq!(named(&stats.days), ["1970-01-09", "1970-01-10"]);
    let older = Older { from: "1970-01-01".to_owned(), to: "1970-01-08".to_owned(), clicks: 31 };
    assert_eq!(stats.older, Some(older));
    assert_eq!(reader.stats(Some("two"), ever.clone()).unwrap().older, None);
    // If only some of the merged days are requested, it is unknown how many clicks those had.
    for (days, clicks) in [(1..=20, 6), (0..=6, 0), (8..=20, 6), (9..=9, 3)] {
        let stats = reader.stats(Some("one"), days.clone()).unwrap();
        assert_eq!((stats.clicks, stats.older), (clicks, None), "{days:?}");
        let sums = [&stats.referrers, &stats.agents]
            .map(|counts| counts.iter().map(|count| count.clicks).sum::<u64>());
        assert_eq!(sums, [clicks; 2], "{days:?}");
    }

    // Another day is merged, and a click for it comes late.
    fixture.count(clicks_on(one, 3..4, 1));
    let before = [sums(Some("one")), sums(None)];
    assert_eq!(before[0].0, 38);
    fold(&fixture.store, 9);
    fold(&fixture.store, 9);
    assert_eq!([sums(Some("one")), sums(None)], before);
    let stats = reader.stats(Some("one"), 0..=20).unwrap();
    let older = Older { from: "1970-01-01".to_owned(), to: "1970-01-09".to_owned(), clicks: 35 };
    assert_eq!((named(&stats.days), stats.older), (vec!["1970-01-10".to_owned()], Some(older)));

    fixture.store.delete("one".to_owned()).wait().unwrap();
    assert_eq!(sums(None), before[1], "the sum outlives the link");
    let left = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table} WHERE link = {one}");
        Connection::open(fixture.path()).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!([left("clicks"), left("folded_days")], [0, 0]);
}

#[test]
fn however_many_days_a_link_is_followed_its_rows_are_bounded() {
    let fixture = Fixture::new();
    let one = fixture.add("one").id;
    let rows = |link: i64| -> i64 {
        let sql = format!("SELECT count(*) FROM clicks WHERE link = {link}");
        Connection::open(fixture.path()).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    let mut most = 0;
    for day in 0..40 {
        let made_up = (0..200).map(|n| format!("x{n}-{day}.example"));
        let mut batch = clicks_from(one, made_up.chain(["real.example".to_owned()]));
        for click in &mut batch.clicks {
            click.hour = 24 * day;
        }
        batch.clicks.last_mut().unwrap().count = 3;
        fixture.count(batch);
        fold(&fixture.store, day - 1);
        most = most.max(rows(one));
    }
    assert!(most <= 3 * 250, "{most} rows");
    let stats = fixture.reader().stats(Some("one"), 0..=100).unwrap();
    assert_eq!((stats.clicks, from(&stats, "real.example")), (40 * 203, 40 * 3));
    assert_eq!(stats.days.len(), 2);
}

#[test]
fn folding_takes_small_steps_and_goes_on_after_a_restart() {
    use crate::store::rules::clicks::{MAX_LINKS_FOLDED as MAX_LINKS, MAX_ROWS_FOLDED as MAX_ROWS, OLDER};
    let fixture = Fixture::new();
    let one = fixture.add("one").id;
    let codes = (0..2 * MAX_LINKS).map(|n| link(&format!("c{n}"))).collect();
    let others = fixture.store.create_many(&InDomains::All, codes).wait().unwrap();
    let clicks = others.iter().map(|link| click(link.as_ref().unwrap().id, 9, 0, Agent::None, 1)).collect();
    fixture.count(ClickBatch { referrers: vec![String::new()], clicks, ..ClickBatch::default() });
    fixture.count(clicks_on(one, 0..9, 100));
    fixture.store.close();
    let path = fixture.path();
    let counted = |sql: &str| -> usize {
        Connection::open(&path).unwrap().query_row(sql, [OLDER], |row| row.get(0)).unwrap()
    };
    let apart = || counted("SELECT count(*) FROM clicks WHERE day > ?1 AND day < 9");
    assert_eq!(apart(), 2 * 900, "of the link and of all");
    let mut steps = 0;
    let mut next = Some(FoldCursor::default());
    while next.is_some() {
        let before = apart();
        let store = Store::open(Options::new(&path)).unwrap();
        // Each start begins from the first link.
        next = store.fold_days(9, FoldCursor::default()).wait().unwrap().filter(|_| before > 0);
        let reader = store.reader().unwrap();
        for (code, clicks) in [(Some("one"), 900), (None, 900 + 2 * MAX_LINKS as u64)] {
            assert_eq!(reader.stats(code, 0..=9).unwrap().clicks, clicks, "after {steps} steps");
        }
        store.close();
        assert!(before - apart() <= MAX_ROWS && (apart() < before || before == 0), "{steps}");
        steps += 1;
    }
    assert_eq!(steps, 2 * 900 / MAX_ROWS + 2);
    // If nothing is old, a step ends after a number of links.
    let store = Store::open(Options::new(&path)).unwrap();
    let mut next = Some(FoldCursor::default());
    let mut steps = 0;
    while let Some(from) = next {
        next = store.fold_days(9, from).wait().unwrap();
        steps += 1;
    }
    assert_eq!(steps, 3);
    let folding = store.fold_days(9, FoldCursor::default());
    store.close();
    folding.wait().expect("what waited is done before the writer stops");
}

#[test]
fn a_writer_that_is_stuck_is_not_alive_until_it_goes_on() {
    let fixture = Fixture::new();
    fixture.add("one");
    let mut watch = fixture.store.watch(Duration::from_millis(300));
    let (release, held) = channel();
    let pending = fixture.store.edit_if("one".to_owned(), LinkPatch::default(), move |_| held.recv().is_ok());
    while watch.alive() {
        std::thread::sleep(Duration::from_millis(10));
    }
    release.send(()).unwrap();
    pending.wait().unwrap();
    while !watch.alive() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_panic_costs_the_write_it_is_in_and_no_other() {
    let fixture = Fixture::new();
    fixture.add("one");
    let patch = || LinkPatch { title: Some(Some("new".to_owned())), ..LinkPatch::default() };
    let panics = fixture.store.edit_if("one".to_owned(), patch(), |_| panic!("as a test asks"));
    assert!(matches!(panics.wait(), Err(Error::Panicked)));
    assert_eq!(fixture.reader().get("one").unwrap().title, None, "undone");
    fixture.store.edit("one".to_owned(), patch()).wait().unwrap();
    fixture.add("two");
    assert!(!fixture.store.has_ended());
    fixture.store.close();
    assert!(fixture.store.has_ended());
}

#[test]
fn an_imported_count_at_the_greatest_integer_does_not_stop_others_from_counting() {
    let fixture = Fixture::new();
    let most = i64::MAX as u64;
    let record = Record { link: link("most"), clicks: most, ..Record::default() };
    fixture.store.import(vec![record], OnConflict::Fail, &InDomains::All, &Arc::default()).wait().unwrap();
    let (most_id, one) = (fixture.reader().get("most").unwrap().id, fixture.add("one").id);
    fixture.count(ClickBatch {
        referrers: vec![String::new()],
        clicks: vec![click(most_id, 0, 0, Agent::None, 5), click(one, 0, 0, Agent::None, 5)],
        ..ClickBatch::default()
    });
    let reader = fixture.reader();
    assert_eq!(reader.get("most").unwrap().clicks, most);
    assert_eq!(reader.get("one").unwrap().clicks, 5);
}

#[test]
fn a_token_is_known_by_all_of_its_secret_until_it_is_revoked() {
    let fixture = Fixture::new();
    let create = |name: &str, scope| {
        let new = NewToken { name: name.to_owned(), scope, domains: None, expires_at: None };
        fixture.store.create_token(new).wait().unwrap()
    };
    let (reading, read) = create("reading", Scope::Read);
    let (writing, write) = create("writing", Scope::Write);
    let reader = fixture.reader();
    let flipped = |secret: &str| {
        let (rest, last) = secret.split_at(secret.len() - 1);
        format!("{rest}{}", if last == "0" { "1" } else { "0" })
    };
    let crossed = format!("{}{}", &read[..19], &write[19..]);
    for (secret, expected) in [
        (read.as_str(), Some(Scope::Read)),
        (write.as_str(), Some(Scope::Write)),
        (&flipped(&read), None),
        (&read[..read.len() - 1], None),
        (&read[..19], None),
        (&format!("{read}0"), None),
        (&crossed, None),
        ("lr_", None),
        ("lr_\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", None),
        ("", None),
    ] {
        let grant = reader.authorize(secret).unwrap();
        assert!(grant.as_ref().is_none_or(|grant| grant.domains == InDomains::All), "{secret}");
        assert_eq!(grant.map(|grant| grant.scope), expected, "{secret}");
    }
    assert_eq!(reader.tokens().unwrap(), [reading.clone(), writing]);
    let bytes = std::fs::read(fixture.path().with_extension("db-wal")).unwrap();
    let digits = &read.as_bytes()[19..];
    assert!(!bytes.windows(digits.len()).any(|window| window == digits), "the secret is not stored");
    fixture.store.revoke_token(reading.id).wait().unwrap();
    assert_eq!(reader.authorize(&read).unwrap(), None);
    assert!(matches!(fixture.store.revoke_token(reading.id).wait(), Err(Error::NoToken(_))));
}

#[test]
fn lists_find_by_text_tag_and_status() {
    let fixture = Fixture::new();
    for (code, title, tags, status) in [
        ("percent", "100% pure", "a b", Status::Active),
        ("under_score", "plain", "b", Status::Active),
        ("back", r"a\b", "", Status::Disabled),
        ("other", "1000 pure", "a", Status::Disabled),
    ] {
        let new = NewLink {
            title: Some(title.to_owned()),
            tags: tags.split_whitespace().map(str::to_owned).collect(),
            status,
            ..link(code)
        };
        fixture.store.create(new, None).wait().unwrap();
    }
    let reader = fixture.reader();
    let codes = |query: ListQuery| {
        let page = reader.list(&ListQuery { limit: 10, ..query }).unwrap();
        page.links.into_iter().map(|link| link.code).collect::<Vec<_>>().join(" ")
    };
    let search = |text: &str| ListQuery { search: Some(text.to_owned()), ..ListQuery::default() };
    let tag = |tag: &str| ListQuery { tag: Some(tag.to_owned()), ..ListQuery::default() };
    let status = |status| ListQuery { status: Some(status), ..ListQuery::default() };
    for (query, expected) in [
        (search("0%"), "percent"),
        (search("_"), "under_score"),
        (search(r"\"), "back"),
        (search("PURE"), "percent other"),
        (search("example.com/other"), "other"),
        (search(""), "percent under_score back other"),
        (search("nothing"), ""),
        (tag("a"), "percent other"),
        (tag("A"), ""),
        (status(Status::Disabled), "back other"),
        (ListQuery { status: Some(Status::Active), ..tag("a") }, "percent"),
        (ListQuery { sort: Sort::Code, descending: true, ..tag("a") }, "percent other"),
    ] {
        assert_eq!(codes(query.clone()), expected, "{query:?}");
    }
    for cursor in ["", "x", "ca", "ca~1", "ca~x~1", "cd~1~1", "ka~a~1", "ca~1~99999999999999999999"] {
        let query = ListQuery { cursor: Some(cursor.to_owned()), limit: 10, ..ListQuery::default() };
        assert!(matches!(reader.list(&query), Err(Error::Field { field: "cursor", .. })), "{cursor}");
    }
    assert!(matches!(reader.list(&search(&"x".repeat(60_000))), Err(Error::Field { .. })));
}

#[test]
fn a_page_whose_time_is_over_says_so_and_the_next_goes_on_behind_it() {
    let fixture = Fixture::new();
    for n in 0..60 {
        let tags = match n {
            7 => vec!["rare".to_owned()],
            _ if n % 2 == 0 => vec!["even".to_owned()],
            _ => Vec::new(),
        };
        let id =
            fixture.store.create(NewLink { tags, ..link(&format!("n{n:02}")) }, None).wait().unwrap().link.id;
        if n % 3 == 0 {
            fixture.count(ClickBatch {
                referrers: vec![String::new()],
                clicks: vec![click(id, 0, 0, Agent::Chrome, 1 + n % 2)],
                ..ClickBatch::default()
            });
        }
    }
    let connection = Connection::open(fixture.path()).unwrap();
    let search = |text: &str, sort| ListQuery {
        search: Some(text.to_owned()),
        sort,
        limit: 5,
        ..ListQuery::default()
    };
    for (query, expected, pages) in [
        // A page examines eight links. Sixty links are seven full pages and a rest.
        (search("n07", Sort::Created), "n07", 8),
        (search("n07", Sort::Code), "n07", 8),
        (search("nothing", Sort::Updated), "", 8),
        // Sorted by clicks, links without clicks come first. To find them, all sixty are examined, and then the twenty
        // with clicks.
        (search("n0", Sort::Clicks), "n01 n02 n04 n05 n07 n08 n00 n06 n03 n09", 10),
        (ListQuery { search: None, tag: Some("rare".to_owned()), ..search("", Sort::Code) }, "n07", 1),
        (ListQuery { tag: Some("even".to_owned()), ..search("n0", Sort::Code) }, "n00 n02 n04 n06 n08", 8),
    ] {
        let (mut query, mut found, mut seen) = (query, Vec::new(), 0);
        loop {
            let page = list::walk(&connection, &query, Walk::of_one_part(8)).unwrap();
            seen += 1;
            found.extend(page.links.into_iter().map(|link| link.code));
            assert_eq!(page.looked_at, page.next.as_ref().map(|_| 8), "{query:?}");
            let Some(next) = page.next else { break };
            query.cursor = Some(next);
        }
        assert_eq!((found.join(" "), seen), (expected.to_owned(), pages), "{query:?}");
    }
}

#[test]
fn links_that_are_too_many_to_be_sorted_at_once_are_each_on_one_page_by_clicks() {
    let fixture = Fixture::new();
    let links = (0..100).map(|n| link(&format!("n{n:02}")));
    let made = fixture.store.create_many(&InDomains::All, links.collect()).wait().unwrap();
    let some = made.iter().flatten().enumerate().filter(|(n, _)| n % 3 > 0);
    fixture.count(ClickBatch {
        referrers: vec![String::new()],
        clicks: some.map(|(n, link)| click(link.id, 0, 0, Agent::Chrome, 1 + n as u32 % 5)).collect(),
        ..ClickBatch::default()
    });
    let connection = Connection::open(fixture.path()).unwrap();
    for descending in [false, true] {
        let search = Some("n".to_owned());
        let mut query =
            ListQuery { sort: Sort::Clicks, descending, search, limit: 7, ..ListQuery::default() };
        let mut found = Vec::new();
        loop {
            let page = list::walk(&connection, &query, Walk::in_parts_of(3)).unwrap();
            found.extend(page.links.into_iter().map(|link| (link.clicks, link.id)));
            let Some(next) = page.next else { break };
            query.cursor = Some(next);
        }
        if descending {
            found.reverse();
        }
        assert_eq!(found.len(), 100);
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    }
}

#[test]
fn a_page_of_long_links_ends_early_and_the_next_goes_on_behind_it() {
    let fixture = Fixture::new();
    let target = format!("https://example.com/{}", "x".repeat(7_900));
    let links = (0..300).map(|n| NewLink { target: target.clone(), ..link(&format!("n{n:03}")) });
    let made = fixture.store.create_many(&InDomains::All, links.collect()).wait().unwrap();
    let third = made.iter().flatten().step_by(3).map(|link| click(link.id, 0, 0, Agent::Chrome, 1));
    fixture.count(ClickBatch {
        referrers: vec![String::new()],
        clicks: third.collect(),
        ..ClickBatch::default()
    });
    let reader = fixture.reader();
    let fitting = PAGE_BYTES / target.len() + 1;
    for (sort, search) in [Sort::Created, Sort::Updated, Sort::Clicks, Sort::Code]
        .into_iter()
        .flat_map(|sort| [(sort, None), (sort, Some("n".to_owned()))])
    {
        let mut query = ListQuery { sort, search, limit: 1_000, ..ListQuery::default() };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = reader.list(&query).unwrap();
            pages += 1;
            assert!(page.links.len() <= fitting, "{query:?}: {}", page.links.len());
            assert_eq!(page.looked_at, None, "{query:?}");
            found.extend(page.links.into_iter().map(|link| link.code));
            let Some(next) = page.next else { break };
            query.cursor = Some(next);
        }
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!((count, found.len(), pages), (300, 300, 3), "{query:?}");
    }
}

#[test]
fn no_list_sorts_what_an_index_has_in_order_nor_looks_through_what_is_alike() {
    let fixture = Fixture::new();
    fixture.add("one");
    let connection = Connection::open(fixture.path()).unwrap();
    for (sort, conditions, expected) in [
        ("id", "id < 9 AND id >= 1", "links USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("updated_at, id", "updated_at < 9 AND updated_at > 1", "(updated_at>? AND updated_at<?)"),
        ("updated_at, id", "updated_at = 9 AND id < 9 AND id >= 1", "(updated_at=? AND id>? AND id<?)"),
        ("domain, code, id", "(domain, code, id) < (0, 'b', 1)", "INDEX links_by_code ((domain,code)<(?,?))"),
    ] {
        for order in ["ASC", "DESC"] {
            let sql = format!(
                "EXPLAIN QUERY PLAN SELECT {} FROM links WHERE {conditions} ORDER BY {} LIMIT 10",
                links::COLUMNS,
                sort.split(", ").map(|column| format!("{column} {order}")).collect::<Vec<_>>().join(", "),
            );
            let mut statement = connection.prepare(&sql).unwrap();
            let plan: Vec<String> =
                statement.query_map([], |row| row.get(3)).unwrap().map(Result::unwrap).collect();
            assert!(plan[0].starts_with("SEARCH") && plan[0].contains(expected), "{sort}: {plan:?}");
            assert!(!plan.iter().any(|step| step.contains("B-TREE")), "{sort}: {plan:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn pages_hold_every_link_once_and_in_order(
        rows in proptest::collection::vec((0..5_u64, 0..5_i64), 0..40),
        limit in 1..12_usize,
    ) {
        let fixture = Fixture::new();
        for (n, (clicks, updated)) in rows.iter().enumerate() {
            let code = format!("c{}", (n * 37) % 101);
            let id = fixture.add(&code).id;
            let row = (*clicks, *updated);
            fixture.store.writer.submit(move |work| {
                work.connection.execute("UPDATE links SET updated_at = ?1 WHERE id = ?2", (row.1, id))?;
                clicks::Totals::of(work.connection)?.add(id, row.0)?;
                Ok(())
            }).wait().unwrap();
        }
        let connection = Connection::open(fixture.path()).unwrap();
        // In the other two cases, a part has few links, and all links contain the text. A page then has one part, or as
        // many parts as it takes.
        for (sort, part) in [Sort::Created, Sort::Updated, Sort::Clicks, Sort::Code]
            .into_iter()
            .flat_map(|sort| [(sort, None), (sort, Some(Walk::of_one_part as fn(usize) -> Walk)), (sort, Some(Walk::in_parts_of))])
        {
            for descending in [false, true] {
                let search = part.map(|_| "C".to_owned());
                let mut query = ListQuery { sort, descending, limit, search, ..ListQuery::default() };
                let mut found = Vec::new();
                loop {
                    let walk = part.map_or_else(|| Walk::of(&query), |of| of(3));
                    let page = list::walk(&connection, &query, walk).unwrap();
                    prop_assert!(page.links.len() <= limit);
                    found.extend(page.links);
                    match page.next {
                        Some(next) => query.cursor = Some(next),
                        None => break,
                    }
                }
                let key = |link: &Link| match sort {
                    Sort::Created => (0, String::new(), link.id),
                    Sort::Updated => (link.updated_at.0, String::new(), link.id),
                    Sort::Clicks => (link.clicks as i64, String::new(), link.id),
                    Sort::Code => (0, link.code.clone(), link.id),
                };
                if descending {
                    found.reverse();
                }
                prop_assert_eq!(found.len(), rows.len());
                prop_assert!(found.is_sorted_by(|a, b| key(a) < key(b)), "{:?} {}", sort, descending);
            }
        }
    }
}

#[test]
fn what_is_exported_is_imported_as_it_was() {
    let fixture = Fixture::new();
    fixture.add("plain");
    let full = NewLink {
        title: Some("T".to_owned()),
        tags: vec!["a".to_owned()],
        password: Some("secret".to_owned()),
        max_clicks: Some(9),
        not_before: Some(Timestamp(10)),
        expires_at: Some(Timestamp(4_000_000_000)),
        ..link("full")
    };
    fixture.store.create(full, None).wait().unwrap();
    let export = |fixture: &Fixture, hashes| {
        let mut records = Vec::new();
        fixture
            .reader()
            .export(&InDomains::All, hashes, &mut |record| {
                records.push(record);
                true
            })
            .unwrap();
        records
    };
    let records = export(&fixture, true);
    assert!(export(&fixture, false).iter().all(|record| record.password_hash.is_none()));
    let other = Fixture::new();
    let tally = other
        .store
        .import(records.clone(), OnConflict::Fail, &InDomains::All, &Arc::default())
        .wait()
        .unwrap();
    assert_eq!(tally, Tally { created: 2, ..Tally::default() });
    assert_eq!(export(&other, true), records);
}

#[test]
fn an_export_holds_no_snapshot_while_its_client_waits_and_has_each_link_once() {
    let fixture = Fixture::new();
    let links = (0..1_200).map(|number| link(&format!("r{number}"))).collect();
    fixture.store.create_many(&InDomains::All, links).wait().unwrap();
    let other = Connection::open(fixture.path()).unwrap();
    // The writer has a snapshot for a moment now and then.
    other.busy_timeout(Duration::from_secs(60)).unwrap();
    let mut codes = Vec::new();
    let mut visit = |record: Record| {
        if codes.is_empty() {
            fixture.add("later");
            let held: i64 = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
            assert_eq!(held, 0, "the log cannot be written back");
        }
        codes.push(record.link.code.unwrap());
        true
    };
    fixture.reader().export(&InDomains::All, false, &mut visit).unwrap();
    assert_eq!(codes, (0..1_200).map(|number| format!("r{number}")).collect::<Vec<_>>());
}

#[test]
fn an_import_does_with_taken_codes_as_told() {
    let record = |code: &str, target: &str| Record {
        link: NewLink { target: target.to_owned(), ..link(code) },
        clicks: 7,
        ..Record::default()
    };
    for (on_conflict, expected, target) in [
        (OnConflict::Fail, "1 0 0 3", "https://example.com/one"),
        (OnConflict::Skip, "1 0 1 2", "https://example.com/one"),
        (OnConflict::Replace, "1 1 0 2", "https://new.example/"),
    ] {
        let fixture = Fixture::new();
        let before = fixture.add("one");
        let rows = vec![
            record("one", "https://new.example/"),
            record("bad code", "https://new.example/"),
            record("two", "https://new.example/"),
            record("three", "nowhere"),
        ];
        let tally = fixture.store.import(rows, on_conflict, &InDomains::All, &Arc::default()).wait().unwrap();
        let found = format!("{} {} {} {}", tally.created, tally.replaced, tally.skipped, tally.failed);
        assert_eq!(found, expected, "{on_conflict:?}: {tally:?}");
        assert_eq!(tally.errors.last().map(|(row, _)| *row), Some(3));
        let after = fixture.reader().get("one").unwrap();
        assert_eq!((after.target.as_str(), after.id, after.clicks), (target, before.id, 0));
    }
}

#[test]
fn a_backup_opens_and_holds_the_same() {
    let fixture = Fixture::new();
    for n in 0..500 {
        fixture.add(&format!("c{n}"));
    }
    let to = fixture.directory.path().join("backup.db");
    let reader = fixture.reader();
    // A snapshot that redirects hold doesn't block the backup.
    assert!(reader.route("c1").unwrap().is_some());
    let mut last = None;
    reader.backup(&to, &mut |progress| last = Some((progress.done, progress.total))).unwrap();
    assert!(matches!(last, Some((done, total)) if done == total && total > 10), "{last:?}");
    fixture.add("later");
    reader.backup(&to, &mut |_| {}).expect("an older backup is replaced");
    let copy = Store::open(Options::new(&to)).unwrap();
    let copy = copy.reader().unwrap();
    assert_eq!(copy.check().unwrap(), [""; 0]);
    assert_eq!(copy.len().unwrap(), 501);
    assert_eq!(copy.get("c7").unwrap(), reader.get("c7").unwrap());
    let own = reader.backup(&fixture.path(), &mut |_| {});
    assert!(matches!(own, Err(Error::Field { .. })), "{own:?}");
}

#[test]
fn a_check_finds_damage_and_nothing_else() {
    let fixture = Fixture::new();
    for n in 0..500 {
        fixture.add(&format!("c{n}"));
    }
    assert_eq!(fixture.reader().check().unwrap(), [""; 0]);
    fixture.store.close();
    let mut bytes = std::fs::read(fixture.path()).unwrap();
    // The last page has links. Everything that is read when the database is opened comes before it.
    let last = bytes.len() - 4096;
    bytes[last..].fill(0xa5);
    std::fs::write(fixture.path(), bytes).unwrap();
    let store = Store::open(Options::new(&fixture.path())).unwrap();
    assert!(!store.reader().unwrap().check().unwrap().is_empty());
}

#[test]
fn a_reader_sees_what_was_committed_before_it_asks() {
    let fixture = Fixture::new();
    let reader = fixture.reader();
    for n in 0..50 {
        let code = format!("c{n}");
        assert_eq!(reader.route(&code).unwrap(), None);
        fixture.add(&code);
        assert!(reader.route(&code).unwrap().is_some());
        fixture.store.delete(code.clone()).wait().unwrap();
        assert!(matches!(reader.get(&code), Err(Error::NotFound(_))));
        assert_eq!(reader.route(&code).unwrap(), None);
    }
}
