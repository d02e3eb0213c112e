//! Several domains: they share no links, and an older database only has the default domain.

use super::*;
use crate::domains::{
    Domain, DomainId, DomainPatch, InDomains, InvalidHost, LinkKey, MAX_DOMAINS, NewDomain,
};
use crate::store::rules::domains::MAX_LINKS_DELETED as MAX_LINKS;

impl Fixture {
    fn add_domain(&self, host: &str) -> Domain {
        self.store.create_domain(domain(host)).wait().unwrap()
    }
}

fn domain(host: &str) -> NewDomain {
    NewDomain { host: host.to_owned(), ..NewDomain::default() }
}

/// A link at a domain. Its target contains the domain.
fn at(host: &str, code: &str) -> NewLink {
    let target = format!("https://example.com/{host}/{code}");
    NewLink { domain: Some(host.to_owned()), target, ..link(code) }
}

fn key(domain: &Domain, code: &str) -> LinkKey {
    LinkKey { domain: domain.id, code: code.to_owned() }
}

#[test]
fn a_code_is_another_link_at_each_domain() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.add_domain("a.example"), fixture.add_domain("B.example."));
    assert_eq!(b.host, "b.example");
    let plain = fixture.add("one");
    let links = ["a.example", "b.example"]
        .map(|host| fixture.store.create(at(host, "one"), None).wait().unwrap().link);
    assert_eq!((links[0].domain.as_deref(), plain.domain.as_deref()), (Some("a.example"), None));
    let again = fixture.store.create(at("A.EXAMPLE", "one"), None).wait();
    assert!(matches!(again, Err(Error::Taken(_))), "{again:?}");
    let reader = fixture.reader();
    assert_eq!(reader.get("one").unwrap(), plain);
    for (domain, link) in [&a, &b].into_iter().zip(&links) {
        assert_eq!(&reader.get(key(domain, "one")).unwrap(), link);
        assert_eq!(reader.route_at(domain.id, "one").unwrap().unwrap().target, link.target);
    }
    let patch = LinkPatch { title: Some(Some("new".to_owned())), ..LinkPatch::default() };
    fixture.store.edit(key(&a, "one"), patch).wait().unwrap();
    assert_eq!(reader.get(key(&a, "one")).unwrap().title.as_deref(), Some("new"));
    assert_eq!(reader.get(key(&b, "one")).unwrap().title, None);
    fixture.store.delete(key(&a, "one")).wait().unwrap();
    assert!(matches!(reader.get(key(&a, "one")), Err(Error::NotFound(_))));
    assert_eq!((reader.get("one").unwrap(), reader.get(key(&b, "one")).unwrap()), (plain, links[1].clone()));
    let unknown = fixture.store.create(at("c.example", "one"), None).wait();
    assert!(matches!(unknown, Err(Error::Field { field: "domain", .. })), "{unknown:?}");
    assert!(fixture.store.create(at("default", "two"), None).wait().unwrap().link.domain.is_none());
}

#[test]
fn a_random_code_is_drawn_for_its_domain() {
    let fixture = Fixture::with(CodePolicy { length: 1, alphabet: "ab".to_owned(), reserved: Vec::new() });
    fixture.add_domain("a.example");
    for code in ["a", "b"] {
        fixture.add(code);
    }
    let new = NewLink { domain: Some("a.example".to_owned()), ..anywhere() };
    let drawn = fixture.store.create(new, None).wait().unwrap().link;
    assert_eq!(drawn.code.len(), 1, "{drawn:?}");
}

#[test]
fn a_domain_keeps_the_rules_or_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let targets = TargetPolicy { own_hosts: vec!["go.example:443".to_owned()], ..TargetPolicy::default() };
    let store = Store::open(Options { targets, ..Options::new(&directory.path().join("links.db")) }).unwrap();
    let fixture = Fixture { store, directory };
    fixture.add_domain("a.example");
    let create = |new: NewDomain| fixture.store.create_domain(new).wait();
    assert!(matches!(create(domain("A.example")), Err(Error::DomainTaken(host)) if host == "a.example"));
    assert!(matches!(create(domain("192.0.2.1")), Err(Error::Host(InvalidHost::Address))));
    assert!(matches!(create(domain("GO.example")), Err(Error::Host(InvalidHost::Own))));
    let target = |target: &str| Some(target.to_owned());
    for (new, field) in [
        (NewDomain { root_target: target("ftp://x.example/"), ..domain("b.example") }, "root_target"),
        (
            NewDomain { default_target: target("https://b.example/x"), ..domain("b.example") },
            "default_target",
        ),
        (
            NewDomain { default_target: target("https://a.example/x"), ..domain("b.example") },
            "default_target",
        ),
        (
            NewDomain { not_found_html: Some("x".repeat(64 * 1024 + 1)), ..domain("b.example") },
            "not_found_html",
        ),
        (
            NewDomain {
                default_target: target("https://x.example/"),
                not_found_html: Some("x".to_owned()),
                ..domain("b.example")
            },
            "not_found_html",
        ),
    ] {
        let refused = create(new);
        assert!(
            matches!(&refused, Err(Error::Field { field: at, .. }) if *at == field),
            "{field}: {refused:?}"
        );
    }
    let page = DomainPatch { not_found_html: Some(Some("x".to_owned())), ..DomainPatch::default() };
    let edited = fixture.store.edit_domain("A.example".to_owned(), page).wait().unwrap();
    assert_eq!(edited.not_found_html.as_deref(), Some("x"));
    let both = DomainPatch { default_target: Some(target("https://x.example/")), ..DomainPatch::default() };
    assert!(matches!(
        fixture.store.edit_domain("a.example".to_owned(), both).wait(),
        Err(Error::Field { .. })
    ));
    assert_eq!(*fixture.store.domains().sorted()[0], edited);
    for host in ["b.example", "default", ""] {
        let nowhere = fixture.store.edit_domain(host.to_owned(), DomainPatch::default()).wait();
        assert!(matches!(nowhere, Err(Error::NoDomain(_))), "{host}: {nowhere:?}");
        let nowhere = fixture.store.delete_domain(host.to_owned(), true).wait();
        assert!(matches!(nowhere, Err(Error::NoDomain(_))), "{host}: {nowhere:?}");
    }
    for n in 1..MAX_DOMAINS {
        fixture.add_domain(&format!("d{n}.example"));
    }
    assert!(matches!(create(domain("more.example")), Err(Error::Field { field: "host", .. })));
}

#[test]
fn a_target_at_a_domain_would_loop() {
    let fixture = Fixture::new();
    let to = |target: &str| NewLink { target: target.to_owned(), ..NewLink::default() };
    fixture.store.create(to("https://a.example/x"), None).wait().unwrap();
    fixture.add_domain("a.example");
    for target in ["https://a.example/x", "http://A.example.:8080/"] {
        let refused = fixture.store.create(to(target), None).wait();
        assert!(matches!(refused, Err(Error::Target(InvalidTarget::Loop))), "{target}: {refused:?}");
    }
    fixture.store.create(to("https://b.a.example/x"), None).wait().unwrap();
}

#[test]
fn a_domain_with_links_is_deleted_by_force_alone_and_a_part_at_a_time() {
    let fixture = Fixture::new();
    let a = fixture.add_domain("a.example");
    let kept = fixture.add("one");
    let links = (0..=MAX_LINKS).map(|n| at("a.example", &format!("c{n}"))).collect();
    let made = fixture.store.create_many(&InDomains::All, links).wait().unwrap();
    let first = made[0].as_ref().unwrap().id;
    fixture.count(ClickBatch {
        referrers: vec![String::new()],
        clicks: vec![click(first, 0, 0, Agent::None, 3)],
        ..ClickBatch::default()
    });
    let delete = |force| fixture.store.delete_domain("A.example".to_owned(), force).wait();
    assert!(matches!(delete(false), Err(Error::DomainInUse(_))));
    assert!(!delete(true).unwrap(), "not yet");
    assert_eq!(fixture.reader().len().unwrap(), 2);
    assert!(fixture.store.domains().find(b"a.example").is_some());
    assert!(delete(true).unwrap());
    assert!(fixture.store.domains().is_empty());
    let reader = fixture.reader();
    assert_eq!((reader.len().unwrap(), reader.get("one").unwrap()), (1, kept));
    assert_eq!(reader.check().unwrap(), [""; 0]);
    assert_eq!(reader.stats(None, 0..=0).unwrap().clicks, 3, "the sum of all keeps them");
    assert!(matches!(delete(true), Err(Error::NoDomain(_))));
    let anew = fixture.add_domain("a.example");
    assert_ne!(anew.id, a.id, "an id is never used again");
    assert!(delete(false).unwrap(), "one without links needs no force");
}

#[test]
fn who_may_write_at_a_domain_may_not_at_the_next_one_of_its_name() {
    let fixture = Fixture::new();
    let before = InDomains::Only(vec![fixture.add_domain("a.example").id]);
    let create = |within: &InDomains, code| {
        fixture.store.create_within(within, at("a.example", code), None).wait().map(|created| created.link)
    };
    create(&before, "one").unwrap();
    for is_there in [false, true] {
        if is_there {
            fixture.add_domain("a.example");
        } else {
            assert!(fixture.store.delete_domain("a.example".to_owned(), true).wait().unwrap());
        }
        let refused = create(&before, "two");
        assert!(matches!(&refused, Err(Error::OtherDomain(name)) if name == "a.example"), "{refused:?}");
        let refused = fixture.store.create_within(&before, link("two"), None).wait();
        assert!(matches!(&refused, Err(Error::OtherDomain(name)) if name == "default"), "{refused:?}");
        let refused = fixture.store.create_many(&before, vec![at("a.example", "two")]).wait().unwrap();
        assert!(matches!(refused[..], [Err(Error::OtherDomain(_))]), "{refused:?}");
        let rows = vec![Record { link: at("a.example", "two"), ..Record::default() }];
        let tally = fixture.store.import(rows, OnConflict::Replace, &before, &Arc::default()).wait().unwrap();
        let why = "the key is not for the domain \"a.example\"".to_owned();
        assert_eq!((tally.failed, tally.errors), (1, vec![(0, why)]));
    }
    assert!(fixture.reader().is_empty().unwrap());
    create(&InDomains::All, "two").unwrap();
}

#[test]
fn what_another_process_does_to_domains_is_seen() {
    let fixture = Fixture::new();
    let other = Store::open(Options::new(&fixture.path())).unwrap();
    let seen = |expected: bool| {
        let since = Instant::now();
        while fixture.store.domains().find(b"a.example").is_some() != expected {
            assert!(since.elapsed() < Duration::from_secs(120), "it is not seen");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    other.create_domain(domain("a.example")).wait().unwrap();
    seen(true);
    other.delete_domain("a.example".to_owned(), false).wait().unwrap();
    // Whether or not the deletion is already visible, no link is created at a deleted domain.
    let late = fixture.store.create(at("a.example", "one"), None).wait();
    assert!(matches!(late, Err(Error::NoDomain(_) | Error::Field { field: "domain", .. })), "{late:?}");
    seen(false);
    assert!(fixture.reader().is_empty().unwrap());
}

#[test]
fn lists_exports_and_sums_are_of_the_domains_asked_for() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.add_domain("a.example"), fixture.add_domain("b.example"));
    let protected = NewLink { password: Some("secret".to_owned()), ..at("a.example", "two") };
    for new in [link("one"), at("b.example", "one"), at("a.example", "one"), link("two"), protected] {
        let link = fixture.store.create(new, None).wait().unwrap().link;
        fixture.count(ClickBatch {
            referrers: vec![String::new()],
            clicks: vec![click(link.id, 5, 0, Agent::None, 1 << (2 * link.domain_id.0))],
            ..ClickBatch::default()
        });
    }
    let reader = fixture.reader();
    let only = |domains: &[&Domain]| InDomains::Only(domains.iter().map(|domain| domain.id).collect());
    let default = InDomains::Only(vec![DomainId::DEFAULT]);
    let nothing = InDomains::Only(Vec::new());
    let both = InDomains::Only(vec![DomainId::DEFAULT, b.id]);
    for (domains, expected, locked, clicks) in [
        (InDomains::All, "one two a.example/one a.example/two b.example/one", 1, 2 + 2 * 4 + 16),
        (default, "one two", 0, 2),
        (only(&[&a]), "a.example/one a.example/two", 1, 8),
        (only(&[&b]), "b.example/one", 0, 16),
        (only(&[&a, &b]), "a.example/one a.example/two b.example/one", 1, 24),
        (both, "one two b.example/one", 0, 18),
        (nothing, "", 0, 0),
    ] {
        let name = |domain: &Option<String>, code: &str| match domain {
            Some(domain) => format!("{domain}/{code}"),
            None => code.to_owned(),
        };
        for limit in [1, 2, 10] {
            for descending in [false, true] {
                let mut query = ListQuery {
                    domains: domains.clone(),
                    sort: Sort::Code,
                    descending,
                    limit,
                    ..ListQuery::default()
                };
                let mut found = Vec::new();
                loop {
                    let page = reader.list(&query).unwrap();
                    found.extend(page.links.iter().map(|link| name(&link.domain, &link.code)));
                    query.cursor = page.next;
                    if query.cursor.is_none() {
                        break;
                    }
                }
                if descending {
                    found.reverse();
                }
                assert_eq!(found.join(" "), expected, "{domains:?} by {limit}");
            }
        }
        let mut exported = Vec::new();
        let mut visit = |record: Record| {
            exported.push(name(&record.link.domain, &record.link.code.unwrap()));
            true
        };
        reader.export(&domains, false, &mut visit).unwrap();
        let mut expected: Vec<_> = expected.split_whitespace().collect();
        expected.sort_unstable();
        exported.sort_unstable();
        assert_eq!(exported, expected, "{domains:?}");
        assert_eq!(reader.locked(&domains).unwrap(), locked, "{domains:?}");
        let stats = reader.stats(domains.clone(), 0..=9).unwrap();
        assert_eq!(stats.clicks, clicks, "{domains:?}");
    }
    let mut next = Some(FoldCursor::default());
    while let Some(from) = next {
        next = fixture.store.fold_days(9, from).wait().unwrap();
    }
    let of_a = |days| reader.stats(only(&[&a]), days).unwrap();
    let folded = of_a(0..=9);
    assert_eq!((folded.clicks, folded.older.map(|older| older.clicks)), (8, Some(8)));
    assert_eq!(of_a(6..=9).clicks, 0, "not all of what was folded is among these days");
}

#[test]
fn what_is_exported_of_several_domains_is_imported_as_it_was() {
    let fixture = Fixture::new();
    fixture.add_domain("a.example");
    for new in [link("one"), at("a.example", "one")] {
        fixture.store.create(new, None).wait().unwrap();
    }
    let export = |fixture: &Fixture| {
        let mut records = Vec::new();
        let mut visit = |record| {
            records.push(record);
            true
        };
        fixture.reader().export(&InDomains::All, true, &mut visit).unwrap();
        records
    };
    let records = export(&fixture);
    let other = Fixture::new();
    let tally = other
        .store
        .import(records.clone(), OnConflict::Fail, &InDomains::All, &Arc::default())
        .wait()
        .unwrap();
    assert_eq!((tally.created, tally.failed), (1, 1), "{tally:?}");
    assert!(tally.errors[0].1.contains("a.example"), "{tally:?}");
    other.add_domain("a.example");
    let tally = other
        .store
        .import(records.clone(), OnConflict::Replace, &InDomains::All, &Arc::default())
        .wait()
        .unwrap();
    assert_eq!((tally.created, tally.replaced), (1, 1), "{tally:?}");
    assert_eq!(export(&other), records);
}

#[test]
fn a_token_stays_with_its_domains_also_where_they_are_gone() {
    let fixture = Fixture::new();
    let a = fixture.add_domain("a.example");
    let token = |scope, domains| NewToken { name: "t".to_owned(), scope, domains, expires_at: None };
    let domains = Some(vec![a.id, DomainId::DEFAULT]);
    let (info, secret) = fixture.store.create_token(token(Scope::Write, domains)).wait().unwrap();
    let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    assert_eq!(info.domains, names(&["a.example", "default"]));
    let (_, none) = fixture.store.create_token(token(Scope::Read, Some(Vec::new()))).wait().unwrap();
    let granted = |secret: &str| fixture.reader().authorize(secret).unwrap().unwrap().domains;
    assert_eq!(granted(&none), InDomains::Only(Vec::new()), "none is not all");
    for _ in 0..2 {
        assert_eq!(granted(&secret), InDomains::Only(vec![a.id, DomainId::DEFAULT]));
        let _ = fixture.store.delete_domain("a.example".to_owned(), false).wait();
        fixture.add_domain(&format!("b{}.example", fixture.store.domains().sorted().len()));
    }
    assert_eq!(fixture.reader().tokens().unwrap()[0].domains, names(&["default"]));
}

/// A database from the release before domains, with links whose ids go up to `links`.
fn before_domains(path: &Path, links: i64) {
    let connection = Connection::open(path).unwrap();
    for step in &schema::MIGRATIONS[..4] {
        connection.execute_batch(step).unwrap();
    }
    connection.pragma_update(None, "user_version", 4).unwrap();
    connection.pragma_update(None, "application_id", 0x6c6e_6b73).unwrap();
    connection
        .execute_batch(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {links})
             INSERT INTO links SELECT i, 'c' || i, 'https://example.com/' || i, iif(i % 3, NULL, 'T' || i),
                iif(i % 2, 'x y', ''), i % 5 = 0, 307, i % 7 = 0, iif(i = 4, '$argon2id$x', NULL), NULL,
                4000000000 + i, iif(i % 11, NULL, i), 1000 + i, 2000 - i FROM n;
             INSERT INTO link_tags SELECT tag, id FROM links, (SELECT 'x' AS tag UNION SELECT 'y') WHERE tags <> '';
             INSERT INTO totals SELECT id, 2 * id FROM links WHERE id % 2;
             INSERT INTO clicks SELECT id, 5, 'news.example', 4, 2 * id, 0 FROM links WHERE id % 2;
             INSERT INTO clicks SELECT 0, 5, 'news.example', 4, sum(clicks), 0 FROM totals;
             INSERT INTO folded_days VALUES (1, 1, 2);
             INSERT INTO idempotency VALUES ('k', x'00', 1, 1);
             INSERT INTO tokens (name, scope, selector, hash, created_at) VALUES ('t', 1, 's', x'00', 1);
             DELETE FROM link_tags WHERE link = {links};
             DELETE FROM links WHERE id = {links};"
        ))
        .unwrap();
}

/// All rows of a query, as text.
fn rows(path: &Path, sql: &str) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        (0..columns)
            .map(|column| Ok(format!("{:?}", row.get_ref(column)?)))
            .collect::<rusqlite::Result<Vec<_>>>()
    };
    statement.query_map([], row).unwrap().map(|row| row.unwrap().join(" ")).collect()
}

#[test]
fn a_database_of_before_keeps_all_it_has_at_the_default_domain() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("links.db");
    before_domains(&path, 500);
    let tables = [
        "SELECT id, code, target, title, tags, status, redirect, forward_query, password_hash, not_before, \
         expires_at, max_clicks, created_at, updated_at FROM links ORDER BY id",
        "SELECT * FROM link_tags ORDER BY 1, 2",
        "SELECT * FROM totals ORDER BY 1",
        "SELECT * FROM clicks ORDER BY 1, 2, 3, 4",
        "SELECT * FROM folded_days",
        "SELECT * FROM idempotency",
        "SELECT id, name, scope, selector, hash, created_at FROM tokens",
        "SELECT name, seq FROM sqlite_sequence WHERE name <> 'domains' ORDER BY name",
    ];
    let before: Vec<_> = tables.iter().map(|sql| rows(&path, sql)).collect();
    assert_eq!((before[0].len(), before[1].len()), (499, 499 / 2 * 2 + 2));
    let store = Store::open(Options::new(&path)).unwrap();
    let after: Vec<_> = tables.iter().map(|sql| rows(&path, sql)).collect();
    assert_eq!(after, before);
    assert_eq!(rows(&path, "SELECT DISTINCT domain FROM links"), ["Integer(0)"]);
    assert_eq!(rows(&path, "SELECT domains FROM tokens"), ["Null"]);
    let reader = store.reader().unwrap();
    assert_eq!(reader.check().unwrap(), [""; 0]);
    assert_eq!(reader.get("c3").unwrap().domain, None);
    let new = store.create(link("new"), None).wait().unwrap().link;
    assert_eq!(new.id, 501, "the id of the newest link, deleted before, is not used again");
    assert!(matches!(store.create(link("c3"), None).wait(), Err(Error::Taken(_))));
    store.delete("c3").wait().unwrap();
    assert_eq!(
        rows(&path, "SELECT * FROM link_tags WHERE link = 3"),
        [""; 0],
        "tags go with their link as before"
    );
}

#[test]
fn a_migration_that_breaks_off_leaves_all_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("links.db");
    before_domains(&path, 50);
    // The last step of the migration can't be done.
    Connection::open(&path).unwrap().execute_batch("ALTER TABLE tokens ADD COLUMN domains TEXT").unwrap();
    let sql = "SELECT name, sql FROM sqlite_schema ORDER BY name";
    let before =
        (rows(&path, sql), rows(&path, "SELECT * FROM links"), rows(&path, "SELECT * FROM link_tags"));
    assert!(Store::open(Options::new(&path)).is_err());
    let after =
        (rows(&path, sql), rows(&path, "SELECT * FROM links"), rows(&path, "SELECT * FROM link_tags"));
    assert_eq!(after, before);
    assert_eq!(rows(&path, "PRAGMA user_version"), ["Integer(4)"]);
}
