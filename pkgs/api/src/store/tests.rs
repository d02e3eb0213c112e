//! What holds for every database.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bench::postgres::{Durability, Postgres as Server};
use serde_json::{Map, Value, json};

use super::budget::WRITE_BYTES;
use super::*;
use crate::user::{Document, Preferences, Profile, Status};

/// A database for one test, removed with it.
struct Place<S, K> {
    store: S,
    _kept: K,
}

async fn sqlite() -> Place<Sqlite, tempfile::TempDir> {
    let directory = tempfile::tempdir().expect("a directory");
    let store =
        Sqlite::open(&directory.path().join("users.db"), Arc::new(()), WRITE_BYTES).await.expect("it opens");
    Place { store, _kept: directory }
}

async fn postgres() -> Place<Postgres, Arc<Server>> {
    let server = server();
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    server.create_database(&name).expect("it is new");
    let options = postgres::Options {
        url: server.url(&name).parse().expect("a URL"),
        connections: NonZero::new(3).expect("three is not zero"),
        acquire_timeout: Duration::from_secs(60),
        timeout: Duration::from_secs(120),
        pipelines: NonZero::<usize>::MIN,
        staleness: Duration::from_secs(1),
        write_bytes: WRITE_BYTES,
    };
    let store = Postgres::open(&options, Arc::new(())).await.expect("it opens");
    Place { store, _kept: server }
}

/// A server for all tests that run at the same time; it ends with the last one.
fn server() -> Arc<Server> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Server::start(Durability::None, &[]).expect("PostgreSQL starts"));
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Runs each check on each database, each time on a new one.
macro_rules! on_every_database {
    ($($check:ident)*) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $check() {
                let place = super::sqlite().await;
                super::$check(&place.store).await;
            })*
        }

        mod on_postgres {
            $(#[tokio::test]
            async fn $check() {
                let place = super::postgres().await;
                super::$check(&place.store).await;
            })*
        }
    };
}

on_every_database! {
    what_is_created_is_read
    emails_are_unique_without_regard_to_case
    nothing_of_a_creation_that_fails_stays
    a_replacement_needs_the_version_it_was_made_from
    a_deletion_needs_the_version_it_was_made_for
    a_claimed_request_is_made_once
    what_is_kept_of_a_request_goes_with_the_users_it_created
    what_is_kept_of_a_large_request_goes_as_fast_as_it_came
    a_list_is_read_page_by_page_in_every_order
    filters_and_searches_find_what_they_say
    what_is_loaded_is_what_was_not_there
    keys_are_found_by_digest_until_revoked
    an_update_moves_tags_and_words
    a_sigma_is_found_however_it_is_written
}

fn user(email: &str, name: &str) -> Draft {
    drafted(&document(email, name))
}

fn drafted(document: &Document<'_>) -> Draft {
    Draft::of(document).expect("it serialises")
}

fn document<'a>(email: &'a str, name: &'a str) -> Document<'a> {
    Document {
        email: email.into(),
        name: name.into(),
        status: Status::default(),
        profile: None,
        addresses: Vec::new(),
        tags: Vec::new(),
        preferences: Preferences::default(),
        more: Map::new(),
    }
}

async fn created(store: &impl Store, users: Vec<Draft>) -> Vec<Record> {
    match store.create(users, None).await.expect("the database answers") {
        Created::Done(records) => records,
        other => panic!("{other:?}"),
    }
}

async fn get(store: &impl Store, id: UserId) -> Option<Record> {
    store.get(id).await.expect("the database answers")
}

fn json_of(record: &Record) -> Value {
    serde_json::from_slice(&record.body).expect("a representation is JSON")
}

async fn what_is_created_is_read(store: &impl Store) {
    store.ping().await.expect("the database answers");
    let records = created(store, vec![user("a@b.c", "A\u{0}b"), user("b@b.c", "B")]).await;
    assert_eq!(records.iter().map(|record| record.version).collect::<Vec<_>>(), [1, 1]);
    let body = json_of(&records[0]);
    assert_eq!(
        (&body["email"], &body["name"], &body["version"]),
        (&json!("a@b.c"), &json!("A\u{0}b"), &json!(1))
    );
    assert_eq!(body["id"], json!(records[0].id.to_string()));
    assert_eq!(body["created_at"], body["updated_at"]);
    assert_eq!(get(store, records[1].id).await.as_ref(), Some(&records[1]));
    assert_eq!(get(store, UserId::generate()).await, None);
    let ids = [records[1].id, UserId::generate(), records[0].id];
    let mut many = store.get_many(&ids).await.expect("the database answers");
    many.sort_by_key(|record| record.id);
    assert_eq!(many, records);
    assert!(store.get_many(&[]).await.expect("the database answers").is_empty());
    assert_eq!(store.count(&Filter::default()).await.expect("the database answers"), 2);
}

async fn emails_are_unique_without_regard_to_case(store: &impl Store) {
    let first = created(store, vec![user("Ada@Example.com", "Ada")]).await.remove(0);
    for (users, index) in [
        (vec![user("x@b.c", "X"), user("ADA@example.COM", "B")], 1),
        (vec![user("é@b.c", "X"), user("É@b.c", "B"), user("ada@example.com", "B")], 1),
    ] {
        let outcome = store.create(users, None).await.expect("the database answers");
        assert_eq!(outcome, Created::EmailTaken(index));
    }
    let second = created(store, vec![user("b@b.c", "B")]).await.remove(0);
    let taken = store.replace(second.id, None, user("ada@EXAMPLE.com", "B")).await;
    assert_eq!(taken.expect("the database answers"), Replaced::EmailTaken);
    let own = store.replace(first.id, None, user("ADA@EXAMPLE.COM", "Ada")).await;
    assert!(matches!(own.expect("the database answers"), Replaced::Done(_)));
}

async fn nothing_of_a_creation_that_fails_stays(store: &impl Store) {
    created(store, vec![user("a@b.c", "A")]).await;
    let record = IdempotencyRecord { owner: None, key: "k".into(), digest: [1; 32] };
    let users = vec![user("b@b.c", "B"), user("a@b.c", "C")];
    let outcome = store.create(users, Some(record.clone())).await.expect("the database answers");
    assert_eq!(outcome, Created::EmailTaken(1));
    assert_eq!(store.count(&Filter::default()).await.expect("the database answers"), 1);
    let outcome = store.create(vec![user("c@b.c", "C")], Some(record)).await.expect("the database answers");
    assert!(matches!(outcome, Created::Done(_)), "{outcome:?}");
}

async fn a_replacement_needs_the_version_it_was_made_from(store: &impl Store) {
    let first = created(store, vec![user("a@b.c", "A")]).await.remove(0);
    let replace = async |id, expected, name| {
        store.replace(id, expected, user("a@b.c", name)).await.expect("the database answers")
    };
    let Replaced::Done(second) = replace(first.id, Some(1), "B").await else { panic!("it is at version 1") };
    assert_eq!((second.version, second.id), (2, first.id));
    assert_eq!(json_of(&second)["created_at"], json_of(&first)["created_at"]);
    assert_ne!(json_of(&second)["updated_at"], json_of(&first)["updated_at"]);
    assert_eq!(replace(first.id, Some(1), "C").await, Replaced::Changed(2));
    assert_eq!(get(store, first.id).await, Some(second));
    let Replaced::Done(third) = replace(first.id, None, "D").await else { panic!("any version will do") };
    assert_eq!(third.version, 3);
    assert_eq!(replace(UserId::generate(), None, "E").await, Replaced::Missing);
    assert_eq!(replace(UserId::generate(), Some(1), "E").await, Replaced::Missing);
}

async fn a_deletion_needs_the_version_it_was_made_for(store: &impl Store) {
    let records = created(store, vec![user("a@b.c", "A"), user("b@b.c", "B"), user("c@b.c", "C")]).await;
    let ids: Vec<UserId> = records.iter().map(|record| record.id).collect();
    let delete = async |ids: &[UserId], expected| match store
        .delete(ids, expected)
        .await
        .expect("the database answers")
    {
        Deleted::Done(mut gone) => {
            gone.sort_unstable();
            Deleted::Done(gone)
        }
        changed => changed,
    };
    assert_eq!(delete(&ids[..1], Some(2)).await, Deleted::Changed(1));
    assert_eq!(delete(&ids[..1], Some(1)).await, Deleted::Done(vec![ids[0]]));
    assert_eq!(delete(&ids[..1], Some(1)).await, Deleted::Done(vec![]));
    assert_eq!(get(store, ids[0]).await, None);
    assert_eq!(delete(&ids, None).await, Deleted::Done(vec![ids[1], ids[2]]));
    assert_eq!(store.count(&Filter::default()).await.expect("the database answers"), 0);
    // The deleted user's email is free again.
    created(store, vec![user("a@b.c", "A")]).await;
}

async fn a_claimed_request_is_made_once(store: &impl Store) {
    let record = |owner, digest| IdempotencyRecord { owner, key: "once".into(), digest: [digest; 32] };
    let create = async |email: &str, record| {
        store.create(vec![user(email, "A")], Some(record)).await.expect("the database answers")
    };
    let Created::Done(first) = create("a@b.c", record(None, 1)).await else { panic!("it is the first") };
    store.replace(first[0].id, None, user("a@b.c", "B")).await.expect("the database answers");
    assert_eq!(create("a@b.c", record(None, 1)).await, Created::Before(first.clone()), "as it was then");
    assert_eq!(create("b@b.c", record(None, 2)).await, Created::KeyReused);
    assert!(
        matches!(create("c@b.c", record(Some(7), 2)).await, Created::Done(_)),
        "another's key is another key"
    );
    let both = async || create("d@b.c", record(Some(8), 3)).await;
    let outcomes = tokio::join!(both(), both());
    let (Created::Done(done), Created::Before(before)) = (match outcomes {
        (before @ Created::Before(_), done) => (done, before),
        other => other,
    }) else {
        panic!("one of two at once is the first")
    };
    assert_eq!(done, before);
    assert_eq!(store.count(&Filter::default()).await.expect("the database answers"), 3);
}

async fn what_is_kept_of_a_request_goes_with_the_users_it_created(store: &impl Store) {
    let record = |key: &str| Some(IdempotencyRecord { owner: None, key: key.into(), digest: [1; 32] });
    let create = async |emails: &[&str], key| {
        let users = emails.iter().map(|email| user(email, "A")).collect();
        store.create(users, record(key)).await.expect("the database answers")
    };
    let Created::Done(one) = create(&["a@b.c"], "one").await else { panic!("it is the first") };
    let Created::Done(two) = create(&["b@b.c", "c@b.c"], "two").await else { panic!("it is the first") };
    let Created::Done(_) = create(&["d@b.c"], "three").await else { panic!("it is the first") };
    store.delete(&[one[0].id], None).await.expect("the database answers");
    assert_eq!(create(&["a@b.c"], "one").await, Created::Erased, "nobody is created anew by a repetition");
    assert_eq!(
        create(&["b@b.c", "c@b.c"], "two").await,
        Created::Before(two.clone()),
        "others are as before"
    );
    store.delete(&[two[1].id], None).await.expect("the database answers");
    assert_eq!(create(&["b@b.c", "c@b.c"], "two").await, Created::Erased);
    assert!(matches!(create(&["d@b.c"], "three").await, Created::Before(_)));
    assert_eq!(store.count(&Filter::default()).await.expect("the database answers"), 2);
}

async fn what_is_kept_of_a_large_request_goes_as_fast_as_it_came(store: &impl Store) {
    const USERS: usize = 1000;
    let note = json!("x".repeat(8 << 10));
    let create = async |key: &str| {
        let draft = |number: usize| {
            let more = Map::from_iter([("note".to_owned(), note.clone())]);
            drafted(&Document { more, ..document(&format!("a{number}@b.c"), "A") })
        };
        let record = IdempotencyRecord { owner: None, key: key.into(), digest: [1; 32] };
        store.create((0..USERS).map(draft).collect(), Some(record)).await.expect("the database answers")
    };
    let mut times = Vec::new();
    for key in ["one", "two", "three"] {
        let begun = Instant::now();
        let Created::Done(records) = create(key).await else { panic!("it is the first") };
        let creating = begun.elapsed();
        let ids: Vec<UserId> = records.iter().map(|record| record.id).collect();
        let begun = Instant::now();
        let deleted = store.delete(&ids, None).await.expect("the database answers");
        times.push((begun.elapsed(), creating));
        assert!(matches!(deleted, Deleted::Done(gone) if gone.len() == USERS));
        assert!(matches!(create(key).await, Created::Erased));
    }
    // A search for each user in all of it would take ten times as long. The second is for a busy machine, which may
    // also stand still for some of them.
    let is_fast = |&(deleting, creating)| deleting < 4 * creating + Duration::from_secs(1);
    assert!(times.iter().any(is_fast), "deleting and creating took {times:?}");
}

/// All of a list's pages, as names.
async fn names(store: &impl Store, mut query: Query) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let page = store.list(&query).await.expect("the database answers");
        assert!(page.records.len() <= query.limit as usize);
        let name = |record: &Record| json_of(record)["name"].as_str().expect("a name").to_owned();
        names.extend(page.records.iter().map(name));
        let Some(next) = page.next else { return names };
        assert_eq!(page.records.len(), query.limit as usize);
        query.after = Some(next);
    }
}

async fn a_list_is_read_page_by_page_in_every_order(store: &impl Store) {
    // The names sort differently from the emails. Two of them are equal in lower case, and one is last only by code
    // point.
    for (email, name) in [("D@b.c", "ada"), ("c@b.c", "Zoe"), ("b@b.c", "Ada"), ("a@b.c", "Émile")] {
        created(store, vec![user(email, name)]).await;
    }
    let query = Query { filter: Filter::default(), sort: Sort::default(), after: None, limit: 1 };
    let first = store.list(&query).await.expect("the database answers").records.remove(0);
    let replaced = store.replace(first.id, None, user("D@b.c", "ada")).await.expect("the database answers");
    assert!(matches!(replaced, Replaced::Done(_)));
    for (by, expected) in [
        (SortBy::CreatedAt, ["ada", "Zoe", "Ada", "Émile"]),
        (SortBy::UpdatedAt, ["Zoe", "Ada", "Émile", "ada"]),
        (SortBy::Name, ["ada", "Ada", "Zoe", "Émile"]),
        (SortBy::Email, ["Émile", "Ada", "Zoe", "ada"]),
    ] {
        for limit in [1, 2, 3, 4, 5] {
            for descending in [false, true] {
                let sort = Sort { by, descending };
                let mut found =
                    names(store, Query { filter: Filter::default(), sort, after: None, limit }).await;
                if descending {
                    found.reverse();
                }
                assert_eq!(found, expected, "{sort:?} by {limit}");
            }
        }
    }
}

fn people() -> [Draft; 3] {
    let profile = |bio: &'static str| Some(Profile { bio: Some(bio.into()), ..Profile::default() });
    let tags = |tags: &[&'static str]| tags.iter().map(|&tag| tag.into()).collect();
    [
        Document {
            tags: tags(&["math", "Math", "math"]),
            profile: profile("Wrote the first program; for a machine that was not built."),
            ..document("ada@analytical.example", "Ada Lovelace")
        },
        Document {
            tags: tags(&["navy"]),
            status: Status::Invited,
            profile: profile("Compilers, and Ægir's café."),
            ..document("grace@navy.example", "Grace Hopper")
        },
        Document {
            tags: tags(&["math", "os"]),
            status: Status::Suspended,
            ..document("linus@kernel.example", "Linus")
        },
    ]
    .map(|person| drafted(&person))
}

async fn filters_and_searches_find_what_they_say(store: &impl Store) {
    let mut records = Vec::new();
    for person in people() {
        records.extend(created(store, vec![person]).await);
    }
    let instant = |index: usize| {
        let body = json_of(&records[index]);
        body["created_at"].as_str().expect("an instant").parse::<jiff::Timestamp>().expect("an instant")
    };
    let tag = |tag: &str| Filter { tag: Some(tag.into()), ..Filter::default() };
    let email = |email: &str| Filter { email: Some(email.into()), ..Filter::default() };
    let words = |words: &[&str]| Filter {
        words: words.iter().map(ToString::to_string).collect(),
        ..Filter::default()
    };
    let status = |status| Filter { status: Some(status), ..Filter::default() };
    let (ada, grace, linus) = ("Ada Lovelace", "Grace Hopper", "Linus");
    for (filter, expected) in [
        (Filter::default(), vec![ada, grace, linus]),
        (status(Status::Active), vec![ada]),
        (status(Status::Invited), vec![grace]),
        (tag("math"), vec![ada, linus]),
        (tag("Math"), vec![ada]),
        (tag("mat"), vec![]),
        (email("GRACE@navy.EXAMPLE"), vec![grace]),
        (email("grace"), vec![]),
        (words(&["lo"]), vec![ada]),
        (words(&["LO", "pro"]), vec![ada]),
        (words(&["lo", "hop"]), vec![]),
        (words(&["example"]), vec![ada, grace, linus]),
        (words(&["ÆG", "caf"]), vec![grace]),
        (words(&["cafe"]), vec![]),
        (words(&["mat"]), vec![ada, linus]),
        (words(&["ovelace"]), vec![]),
        (words(&["\"hop* OR lo"]), vec![]),
        (words(&["'a' | b & !c:*"]), vec![]),
        (words(&["--"]), vec![]),
        (words(&["ada@ana"]), vec![ada]),
        (Filter { created_after: Some(instant(2)), ..Filter::default() }, vec![linus]),
        (Filter { created_before: Some(instant(2)), ..Filter::default() }, vec![ada, grace]),
        (Filter { status: Some(Status::Suspended), ..tag("math") }, vec![linus]),
        (tag("a\0b"), vec![]),
    ] {
        let query = Query { filter: filter.clone(), sort: Sort::default(), after: None, limit: 2 };
        assert_eq!(names(store, query).await, expected, "{filter:?}");
        let count = store.count(&filter).await.expect("the database answers");
        assert_eq!(count, expected.len() as u64, "{filter:?}");
    }
}

async fn a_sigma_is_found_however_it_is_written(store: &impl Store) {
    created(store, vec![user("a@b.c", "ΝΙΚΟΣ"), user("b@b.c", "Νικος Παππας")]).await;
    for (words, expected) in [
        (&["νικος"][..], 2),
        (&["ΝΙΚΟΣ"], 2),
        (&["νικοσ"], 2),
        (&["νικο"], 2),
        (&["ΝΙΚΟΣ", "ΠΑΠΠΑΣ"], 1),
        (&["παππας", "b", "νικος"], 1),
        (&["νικοσα"], 0),
    ] {
        let words = words.iter().map(ToString::to_string).collect();
        let filter = Filter { words, ..Filter::default() };
        let count = store.count(&filter).await.expect("the database answers");
        assert_eq!(count, expected, "{filter:?}");
    }
}

async fn an_update_moves_tags_and_words(store: &impl Store) {
    let record = created(store, vec![people()[0].clone()]).await.remove(0);
    let find = async |filter: Filter| store.count(&filter).await.expect("the database answers");
    let tag = |tag: &str| Filter { tag: Some(tag.into()), ..Filter::default() };
    let word = |word: &str| Filter { words: vec![word.into()], ..Filter::default() };
    assert_eq!((find(tag("math")).await, find(word("lovelace")).await), (1, 1));
    store.replace(record.id, None, people()[1].clone()).await.expect("the database answers");
    assert_eq!((find(tag("math")).await, find(word("lovelace")).await), (0, 0));
    assert_eq!((find(tag("navy")).await, find(word("hopper")).await), (1, 1));
    store.delete(&[record.id], None).await.expect("the database answers");
    assert_eq!((find(tag("navy")).await, find(word("hopper")).await), (0, 0));
}

async fn what_is_loaded_is_what_was_not_there(store: &impl Store) {
    let entry = |email: &str| Draft::begin(vec![user(email, "A")]).remove(0);
    let entries = vec![entry("a@b.c"), entry("b@b.c")];
    let load = async |entries: Vec<Entry>| store.load(entries).await.expect("the database answers");
    assert_eq!(load(entries.clone()).await, 2);
    assert_eq!(load(entries.clone()).await, 0);
    assert_eq!(load(vec![entry("B@b.c"), entry("c@b.c")]).await, 1);
    assert_eq!(get(store, entries[0].record.id).await.as_ref(), Some(&entries[0].record));
}

async fn keys_are_found_by_digest_until_revoked(store: &impl Store) {
    let new = |digest, scope, expires_at| NewKey {
        name: format!("key {digest}"),
        digest: [digest; 32],
        scope,
        rate: Some(10),
        burst: None,
        expires_at,
    };
    let end = jiff::Timestamp::from_second(2_000_000_000).expect("an instant");
    let add = async |key: NewKey| store.add_key(key).await.expect("the database answers");
    let (first, second) = (add(new(1, Scope::Read, None)).await, add(new(2, Scope::Write, Some(end))).await);
    assert_eq!((first.scope, second.scope, second.expires_at), (Scope::Read, Scope::Write, Some(end)));
    let ids: BTreeSet<i64> = [first.id, second.id].into();
    assert_eq!(ids.len(), 2);
    assert_eq!((first.digest, second.digest), ([1; 32], [2; 32]));
    let all = async || store.list_keys().await.expect("the database answers");
    assert_eq!(all().await, [first.clone(), second.clone()]);
    for (id, second, last) in
        [(first.id, 100, 100), (first.id, 160, 160), (first.id, 130, 160), (999, 100, 160)]
    {
        store.key_used(id, second).await.expect("the database answers");
        let used = all().await[0].last_use.get().expect("it was used");
        assert_eq!(used.as_second(), last, "{id} in {second}");
    }
    assert!(store.revoke_key(first.id).await.expect("the database answers"));
    assert!(!store.revoke_key(first.id).await.expect("the database answers"));
    assert_eq!(all().await, [second]);
    assert!(add(new(1, Scope::Read, None)).await.id > first.id, "a number means one key");
}
