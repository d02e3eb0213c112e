//! A database from the release before domains, and `kill -9` while it is migrated.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::server::{BINARY, Place, alone, random};

const LINKS: u64 = 200_000;

/// The schema of that release (version 4), as that release created it.
const SCHEMA: &str = include_str!("schema-4.sql");

fn make(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    connection
        .execute_batch(&format!(
            "BEGIN;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {LINKS})
             INSERT INTO links SELECT i, 'c' || i, 'https://example.com/' || i, NULL, 'x', 0, 307, 0, NULL, NULL, NULL,
                NULL, i, i FROM n;
             INSERT INTO link_tags SELECT 'x', id FROM links;
             INSERT INTO totals SELECT id, id FROM links WHERE id % 10 = 0;
             COMMIT;"
        ))
        .unwrap();
}

/// The number of links, the number of their tags, the sum of clicks, and the number of unchanged links.
fn counts(path: &Path) -> [u64; 4] {
    let connection = Connection::open(path).unwrap();
    let sums = [
        "SELECT count(*) FROM links",
        "SELECT count(*) FROM link_tags JOIN links ON id = link",
        "SELECT sum(clicks) FROM totals JOIN links ON id = link",
        "SELECT count(*) FROM links WHERE target = 'https://example.com/' || id AND code = 'c' || id",
    ];
    sums.map(|sql| connection.query_row(sql, [], |row| row.get(0)).unwrap())
}

fn version(path: &Path) -> i64 {
    Connection::open(path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn a_database_of_before_survives_kill_9_while_it_is_migrated() {
    let _alone = alone();
    let place = Place::new();
    let database = &place.database;
    let copy = |name: &str| database.with_file_name(name);
    make(&copy("old.db"));
    let before = counts(&copy("old.db"));
    assert_eq!((before[0], before[1], before[3]), (LINKS, LINKS, LINKS));
    let migrate = || {
        let mut command = std::process::Command::new(BINARY);
        command.args(["get", "c1", "--json", "--database"]).arg(database);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // An older release may use it, or need it again.
    for arguments in [&["check"][..], &["backup", copy("backup.db").to_str().unwrap()]] {
        let mut reading = std::process::Command::new(BINARY);
        let read = reading.args(arguments).arg("--database").arg(copy("old.db")).output().unwrap();
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    }
    assert_eq!((version(&copy("old.db")), version(&copy("backup.db"))), (4, 4), "reading migrates nothing");
    assert_eq!(counts(&copy("backup.db")), before);
    std::fs::copy(copy("old.db"), database).unwrap();
    let begun = Instant::now();
    let whole = migrate().wait_with_output().unwrap();
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
    let mut took = begun.elapsed();
    assert_eq!((version(database), counts(database)), (5, before));

    let mut interrupted = 0;
    for round in 0..10 {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", database.display()));
        }
        std::fs::copy(copy("old.db"), database).unwrap();
        let mut child = migrate();
        let slept = Duration::from_micros(random(u64::try_from(took.as_micros()).unwrap().max(1)));
        std::thread::sleep(slept);
        let _ = child.kill();
        let _ = child.wait();
        if version(database) == 4 {
            interrupted += 1;
        } else {
            // It was over by then: the first one was slower.
            took = took.min(slept);
        }
        assert_eq!(counts(database), before, "round {round}");
        let next = migrate().wait_with_output().unwrap();
        assert!(next.status.success(), "round {round}: {}", String::from_utf8_lossy(&next.stderr));
        assert_eq!((version(database), counts(database)), (5, before), "round {round}");
        let check = place.command(&["check"]).unwrap();
        assert!(check.status.success(), "round {round}: {}", String::from_utf8_lossy(&check.stdout));
    }
    assert!(interrupted > 0, "none was killed before its end");
    // A server works as usual on the migrated database.
    let server = place.serve(&[]);
    let mut client = server.connect();
    assert_eq!(client.get("c7").unwrap().location(), "https://example.com/7");
    server.stop();
}
