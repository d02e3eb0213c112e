use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::click_limits::USED_UP_KEPT;
use super::local::{LOCAL_TEXT_BYTES, MOST_SETS};
use super::*;
use crate::agent::Agent;
use crate::domains::NewDomain;
use crate::link::{LinkPatch, NewLink, RedirectStatus, Status};
use crate::store::{Click, ClickBatch, LEASED, Options, Reader, Route, Store};
use crate::when::Timestamp;

#[test]
fn a_long_target_stays_out_of_the_slots() {
    let fixture = Fixture::new(1 << 20);
    let target = format!("https://example.com/{}", "x".repeat(LOCAL_TEXT_BYTES));
    let link = NewLink { code: Some("long".into()), target: target.clone(), ..NewLink::default() };
    fixture.store.create(link, None).wait().unwrap();
    let mut local = LocalCache::new(Arc::clone(&fixture.cache));
    let reader = fixture.store.reader().unwrap();
    for source in [Source::Store, Source::Cache, Source::Cache] {
        let (entry, from) = local.find("long", &reader).unwrap();
        assert_eq!((entry.target(), from), (target.as_bytes(), source));
    }
    assert!(local.sets.iter().flat_map(|set| &set.slots).all(Option::is_none));
}

#[test]
fn a_worker_s_table_is_as_large_as_the_codes_in_use_need() {
    let fixture = Fixture::new(1 << 24);
    let (mut local, reader) = fixture.worker();
    let mut ask = |codes: std::ops::Range<u32>| {
        for code in codes {
            local.find(&code.to_string(), &reader).unwrap();
        }
        local.sets.len()
    };
    let few = ask(0..10);
    assert!(few <= MOST_SETS / 64, "{few} sets for ten codes");
    let more = ask(0..1_000);
    assert!((few + 1..MOST_SETS).contains(&more), "{more} sets for a thousand");
    assert_eq!(ask(0..10_000), MOST_SETS);
    assert_eq!(ask(0..50_000), MOST_SETS);
    let kept = local.sets.iter().flat_map(|set| &set.slots).flatten().count();
    assert!(kept > 3 * MOST_SETS, "{kept} slots are used");
}

/// A store that keeps a cache coherent, as a server does.
struct Fixture {
    cache: Arc<Cache>,
    store: Store,
    // Dropped after the store.
    _directory: TempDir,
}

impl Fixture {
    fn new(bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(bytes));
        let told = Arc::clone(&cache);
        let store = Store::open(Options {
            on_change: Box::new(move |change| told.changed(&change)),
            ..Options::new(&directory.path().join("links.db"))
        })
        .unwrap();
        Self { cache, store, _directory: directory }
    }

    fn worker(&self) -> (LocalCache, Reader) {
        (LocalCache::new(Arc::clone(&self.cache)), self.store.reader().unwrap())
    }

    fn add(&self, code: &str, max_clicks: Option<u64>) {
        let target = "https://example.com/0".to_owned();
        let new = NewLink { code: Some(code.to_owned()), target, max_clicks, ..NewLink::default() };
        self.store.create(new, None).wait().unwrap();
    }

    fn aim(&self, code: &str, n: u32) {
        let target = Some(format!("https://example.com/{n}"));
        let patch = LinkPatch { target, ..LinkPatch::default() };
        self.store.edit(code.to_owned(), patch).wait().unwrap();
    }
}

fn target((local, reader): &mut (LocalCache, Reader), code: &str) -> (String, Source) {
    let (entry, source) = local.find(code, reader).unwrap();
    assert_eq!(entry.key(), code.as_bytes());
    (String::from_utf8_lossy(entry.target()).into_owned(), source)
}

#[test]
fn an_edit_is_seen_by_the_next_visit_on_every_worker() {
    for bytes in [1 << 20, 0] {
        let fixture = Fixture::new(bytes);
        fixture.add("one", None);
        let mut workers = [fixture.worker(), fixture.worker(), fixture.worker()];
        for n in 1..20 {
            fixture.aim("one", n);
            for worker in &mut workers {
                assert_eq!(target(worker, "one").0, format!("https://example.com/{n}"));
            }
        }
        fixture.store.delete("one".to_owned()).wait().unwrap();
        for worker in &mut workers {
            let (entry, _) = worker.0.find("one", &worker.1).unwrap();
            assert_eq!(entry.judge(Timestamp::now()), Verdict::Missing);
        }
    }
}

#[test]
fn the_same_code_at_two_domains_is_two_answers() {
    for bytes in [1 << 20, 0] {
        let fixture = Fixture::new(bytes);
        fixture.add("one", None);
        let domains = ["a.example", "b.example"].map(|host| {
            let new = NewDomain { host: host.to_owned(), ..NewDomain::default() };
            let domain = fixture.store.create_domain(new).wait().unwrap();
            let target = format!("https://example.com/{host}");
            let code = Some("one".to_owned());
            let new = NewLink { domain: Some(host.to_owned()), code, target, ..NewLink::default() };
            fixture.store.create(new, None).wait().unwrap();
            domain.id
        });
        let mut workers = [fixture.worker(), fixture.worker()];
        let mut found = |expected: [&str; 3]| {
            for (local, reader) in &mut workers {
                // Twice: from the store, and from the cache.
                for _ in 0..2 {
                    for (domain, expected) in
                        [DomainId::DEFAULT, domains[0], domains[1]].into_iter().zip(expected)
                    {
                        let (entry, _) = local.find_at(domain, "one", reader).unwrap();
                        assert_eq!(entry.target(), expected.as_bytes(), "{domain:?}");
                    }
                }
            }
        };
        found(["https://example.com/0", "https://example.com/a.example", "https://example.com/b.example"]);
        fixture.store.delete(LinkKey { domain: domains[0], code: "one".to_owned() }).wait().unwrap();
        found(["https://example.com/0", "", "https://example.com/b.example"]);
        fixture.aim("one", 7);
        found(["https://example.com/7", "", "https://example.com/b.example"]);
        while !fixture.store.delete_domain("b.example".to_owned(), true).wait().unwrap() {}
        found(["https://example.com/7", "", ""]);
    }
}

#[test]
fn a_key_is_of_one_domain_and_one_code() {
    let longest = "x".repeat(code::MAX_BYTES);
    let all: Vec<_> = [0, 1, 2, 256, i64::MAX]
        .into_iter()
        .flat_map(|domain| ["a", "b", "aa", &*longest].map(|code| (DomainId(domain), code)))
        .map(|(domain, code)| with_key(domain, code, <[u8]>::to_vec))
        .collect();
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
    assert_eq!(with_key(DomainId::DEFAULT, "abc", <[u8]>::to_vec), b"abc");
    assert!(all.iter().all(|key| key.len() <= MAX_KEY_BYTES));
}

#[test]
fn a_text_that_is_too_long_for_a_code_changes_nothing() {
    let cache = Cache::new(1 << 20);
    let code = "x".repeat(code::MAX_BYTES + 1);
    cache.changed(&Change::Codes(&[LinkKey { domain: DomainId(7), code }]));
    assert!(cache.is_empty());
}

#[test]
fn an_answer_is_read_once_for_all_workers_until_it_changes() {
    let fixture = Fixture::new(1 << 20);
    fixture.add("one", None);
    let (mut first, mut second) = (fixture.worker(), fixture.worker());
    let source = |worker: &mut (LocalCache, Reader), code| target(worker, code).1;
    assert_eq!(source(&mut first, "one"), Source::Store);
    assert_eq!(source(&mut first, "one"), Source::Cache);
    assert_eq!(source(&mut second, "one"), Source::Cache);
    assert_eq!(source(&mut first, "unknown"), Source::Store);
    assert_eq!(source(&mut second, "unknown"), Source::Cache);
    fixture.add("unknown", None);
    assert_eq!(target(&mut second, "unknown"), ("https://example.com/0".to_owned(), Source::Store));
    assert_eq!(target(&mut first, "unknown"), ("https://example.com/0".to_owned(), Source::Cache));
    fixture.cache.changed(&Change::All);
    assert_eq!(source(&mut first, "one"), Source::Store);
}

#[test]
fn a_cache_that_is_off_reads_the_store_each_time() {
    let fixture = Fixture::new(0);
    fixture.add("one", None);
    let mut worker = fixture.worker();
    for _ in 0..3 {
        assert_eq!(target(&mut worker, "one").1, Source::Store);
    }
    assert!(fixture.cache.is_empty());
}

#[test]
fn what_is_held_stays_within_the_bytes() {
    let bytes = 64 << 10;
    let fixture = Fixture::new(bytes);
    let (mut local, reader) = fixture.worker();
    for n in 0..5_000 {
        local.find(&format!("unknown-{n}"), &reader).unwrap();
    }
    assert!(fixture.cache.bytes() <= bytes, "{}", fixture.cache.bytes());
    assert!(fixture.cache.len() > 50, "{}", fixture.cache.len());
}

#[test]
fn a_click_limit_holds_across_workers_reloads_and_evictions() {
    for bytes in [1 << 20, 0] {
        let fixture = Fixture::new(bytes);
        fixture.add("limited", Some(100));
        let spent = |fixture: &Fixture| {
            let (mut local, reader) = fixture.worker();
            let mut spent = 0;
            for n in 0..100 {
                if n % 10 == 0 {
                    fixture.cache.changed(&Change::All);
                    local.find("another", &reader).unwrap();
                }
                let (entry, _) = local.find("limited", &reader).unwrap();
                if entry.judge(Timestamp::now()) == Verdict::Follow && entry.spend() {
                    spent += 1;
                }
            }
            spent
        };
        let total: u32 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| spent(&fixture))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(total, 100, "cache of {bytes} bytes");
        let (mut local, reader) = fixture.worker();
        let (entry, _) = local.find("limited", &reader).unwrap();
        assert_eq!(entry.judge(Timestamp::now()), Verdict::UsedUp);
        assert!(!entry.spend());
    }
}

#[test]
fn clicks_while_there_is_no_limit_count_for_the_next_limit() {
    for bytes in [1 << 20, 0] {
        let fixture = Fixture::new(bytes);
        fixture.add("limited", Some(10));
        let limit = |max_clicks| {
            let patch = LinkPatch { max_clicks: Some(max_clicks), ..LinkPatch::default() };
            fixture.store.edit("limited".to_owned(), patch).wait().unwrap();
        };
        let (mut local, reader) = fixture.worker();
        let (entry, _) = local.find("limited", &reader).unwrap();
        assert_eq!([entry.spend(), entry.spend()], [true, true]);
        let click = Click { link: entry.link(), hour: 480_000, referrer: 0, agent: Agent::None, count: 20 };
        limit(None);
        let referrers = vec![String::new()];
        let batch = ClickBatch { clicks: vec![click], referrers, ..ClickBatch::default() };
        fixture.store.count(batch.into()).wait().unwrap();
        for (most, verdict) in [(5, Verdict::UsedUp), (21, Verdict::Follow)] {
            limit(Some(most));
            let (entry, _) = local.find("limited", &reader).unwrap();
            assert_eq!(entry.judge(Timestamp::now()), verdict, "{most} with a cache of {bytes} bytes");
        }
    }
}

#[test]
fn nothing_is_spent_of_a_grant_that_others_have_used_up() {
    let cache = Cache::new(1 << 20);
    let route = Route {
        id: 1,
        target: "https://example.com/".to_owned(),
        status: Status::Active,
        redirect: RedirectStatus::default(),
        forward_query: false,
        not_before: None,
        expires_at: None,
        max_clicks: Some(LEASED),
        clicks: LEASED,
        password_hash: None,
    };
    let entry = Entry::new(b"leased", 0, Some(route), &cache.limits);
    // Two visits may both see the last click as available; the second one then fails to spend it.
    assert!(!entry.spend());
    cache.grant(1, 2);
    assert_eq!([entry.spend(), entry.spend(), entry.spend()], [true, true, false]);
    assert_eq!(entry.judge(Timestamp::now()), Verdict::UsedUp);
}

#[test]
fn a_link_counts_as_used_up_for_a_second_unless_it_may_have_clicks_again() {
    let (cache, now) = (Cache::new(1 << 20), Instant::now());
    cache.use_up(1, None, now);
    assert!(!cache.is_used_up(1, now), "links without a counter are not remembered");
    let _counter = cache.limits.counter(1, LEASED);
    assert!(!cache.limits_changed(1, Some(5)));
    let limit = cache.recorded_limit(1);
    cache.use_up(1, limit, now);
    assert!(cache.is_used_up(1, now) && !cache.is_used_up(2, now));
    assert!(!cache.limits_changed(1, Some(5)), "it is read again");
    assert!(cache.is_used_up(1, now + USED_UP_KEPT - Duration::from_millis(1)));
    assert!(!cache.is_used_up(1, now + USED_UP_KEPT));
    cache.grant(1, 1);
    assert!(!cache.is_used_up(1, now), "clicks were granted");
    cache.use_up(1, limit, now);
    assert!(cache.limits_changed(1, Some(6)));
    assert!(!cache.is_used_up(1, now), "the limit has changed");
    cache.use_up(1, limit, now);
    assert!(!cache.is_used_up(1, now), "that was said of the old limit");
}

#[test]
fn grants_that_are_not_given_back_are_there_again_unless_the_limit_has_changed_since() {
    let cache = Cache::new(1 << 20);
    let counter = cache.limits.counter(1, LEASED);
    let left = || LEASED - counter.load(Ordering::Relaxed);
    assert!(!cache.limits_changed(1, Some(10)));
    cache.grant(1, 4);
    assert!(cache.take_grants(Duration::MAX).is_empty(), "they were granted just now");
    let taken = cache.take_grants(Duration::ZERO);
    assert_eq!((taken.len(), taken[0].clicks, left()), (1, 4, 0));
    cache.put_back(taken.clone());
    assert_eq!(left(), 4);
    assert_eq!(cache.take_grants(Duration::ZERO), taken);
    // The link may only be followed twice from now on.
    assert!(cache.limits_changed(1, Some(2)));
    cache.put_back(taken.clone());
    assert_eq!((left(), cache.take_grants(Duration::MAX)), (0, taken));
    cache.grant(1, 1);
    assert!(cache.limits_changed(1, Some(1)));
    assert_eq!((left(), cache.take_grants(Duration::MAX).len()), (0, 1));
}

#[test]
fn a_link_that_is_new_here_keeps_its_recorded_limit_and_gives_its_grants_up_when_that_changes() {
    let cache = Cache::new(1 << 20);
    // As when it is read: its limit is recorded before it has a counter. The first counter sweeps.
    assert!(!cache.limits_changed(1, Some(10)));
    let _counter = cache.limits.counter(1, LEASED);
    assert_eq!(cache.recorded_limit(1), Some(10));
    cache.grant(1, 4);
    assert!(cache.limits_changed(1, Some(2)));
    assert_eq!(cache.take_grants(Duration::MAX).len(), 1);
}

#[test]
fn one_visit_at_a_time_requests_clicks_of_a_link() {
    let cache = Cache::new(1 << 20);
    let _counters = [1, 2].map(|link| cache.limits.counter(link, LEASED));
    let turn = cache.turns(1).try_lock_owned().expect("nobody has it");
    assert!(cache.turns(1).try_lock_owned().is_err());
    assert!(cache.turns(2).try_lock_owned().is_ok(), "the turn of another link");
    drop(turn);
    assert!(cache.turns(1).try_lock_owned().is_ok());
}

#[test]
fn a_load_that_races_with_an_edit_never_hides_it() {
    let fixture = Fixture::new(1 << 20);
    fixture.add("one", None);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut worker = fixture.worker();
                while !over.load(Ordering::Relaxed) {
                    target(&mut worker, "one");
                }
            });
        }
        let mut worker = fixture.worker();
        let seen: Vec<_> = (1..=200)
            .map(|n| {
                fixture.aim("one", n);
                target(&mut worker, "one").0
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        let expected: Vec<_> = (1..=200).map(|n| format!("https://example.com/{n}")).collect();
        assert_eq!(seen, expected);
    });
}

#[test]
fn a_visit_is_judged_by_status_and_dates() {
    let at = |start: Option<i64>, end: Option<i64>| (start.map(Timestamp), end.map(Timestamp));
    for ((not_before, expires_at), status, hash, expected) in [
        (at(None, None), Status::Active, None, Verdict::Follow),
        (at(None, None), Status::Disabled, None, Verdict::Missing),
        (at(Some(101), None), Status::Active, None, Verdict::Missing),
        (at(Some(100), None), Status::Active, None, Verdict::Follow),
        (at(None, Some(101)), Status::Active, None, Verdict::Follow),
        (at(None, Some(100)), Status::Active, None, Verdict::Gone),
        (at(None, None), Status::Active, Some("hash"), Verdict::Ask),
        (at(None, Some(100)), Status::Active, Some("hash"), Verdict::Gone),
    ] {
        let route = Route {
            id: 1,
            target: "https://example.com/".to_owned(),
            status,
            redirect: RedirectStatus::Found,
            forward_query: false,
            not_before,
            expires_at,
            max_clicks: None,
            clicks: 0,
            password_hash: hash.map(str::to_owned),
        };
        let entry = Entry::new(b"one", 0, Some(route.clone()), &ClickLimits::default());
        assert_eq!(entry.judge(Timestamp(100)), expected, "{route:?}");
    }
}

#[test]
fn a_cache_of_a_million_links_keeps_nearly_all_of_its_hits_while_100_a_second_are_edited() {
    /// Visits per second on one of ten nodes that answer 10^10 a day, and edits per second on all nodes.
    const VISITS: f64 = 11_574.0;
    const EDITS: f64 = 100.0;
    const LINKS: u32 = 1_000_000;
    let mut state = 7_u64;
    // SplitMix64, for the same run each time.
    let mut random = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 40) as f64 / f64::from(1 << 24)
    };
    // Popularity falls by Zipf's law, with an exponent of 1.
    let all = f64::from(LINKS).ln_1p();
    let share = |rank: f64| (1.0 + 1.0 / rank).ln() / all;
    let route = || Route {
        id: 1,
        target: "https://t.example/".to_owned(),
        status: Status::Active,
        redirect: RedirectStatus::default(),
        forward_query: false,
        not_before: None,
        expires_at: None,
        max_clicks: None,
        clicks: 0,
        password_hash: None,
    };
    let cache = Cache::following(512 << 20);
    cache.heard_all_before(Instant::now(), Duration::from_secs(3_600));
    // The state after days: an entry is cached if its last visit came after the last edit of its own link or its
    // stripe.
    let falls = EDITS / FOLLOWING_STRIPES as f64 + EDITS / f64::from(LINKS);
    for link in 1..=LINKS {
        let visits = VISITS * share(f64::from(link));
        if random() < visits / (visits + falls) {
            let code = link.to_string();
            cache.keep(cache.reading(DomainId::DEFAULT, &code), DomainId::DEFAULT, &code, Some(route()));
        }
    }
    let (visits, mut hits) = (500_000, 0);
    let mut edits = 0.0;
    for _ in 0..visits {
        edits += EDITS / VISITS;
        if edits >= 1.0 {
            edits -= 1.0;
            let code = ((random() * f64::from(LINKS)) as u32 + 1).to_string();
            cache.changed(&Change::Codes(&[LinkKey { domain: DomainId::DEFAULT, code }]));
        }
        let code = ((random() * all).exp() as u32).clamp(1, LINKS).to_string();
        let hash = cache.hasher.hash_one(code.as_bytes());
        let stamp = cache.generations.stamp(hash);
        let (_, source) = cache.shared((code.as_bytes(), hash), stamp, || Ok(Some(route()))).unwrap();
        hits += u32::from(source == Source::Cache);
    }
    let rate = f64::from(hits) / f64::from(visits);
    println!("{rate:.3} of visits are hits");
    // With the 4,096 stripes of a cache for SQLite, the rate is 0.75.
    assert!(rate > 0.95, "only {rate:.3} of visits are hits");
}
