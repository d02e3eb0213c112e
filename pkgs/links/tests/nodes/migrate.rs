//! A database is copied to one of the other kind, with everything in it, while visits continue. Takes about 5 seconds.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use bench::postgres::{Durability, Postgres};
use serde_json::{Value, json};
use testkit::until;

use crate::ask;
use crate::server::{BINARY, Place, alone};

/// The tables, and whether the test database has more than one row in each.
const TABLES: [(&str, bool); 9] = [
    ("domains", true),
    ("links", true),
    ("totals", true),
    ("clicks", true),
    ("folded_days", false),
    ("click_hours", true),
    ("click_countries", true),
    ("idempotency", false),
    ("tokens", true),
];

/// A database file with rows in every table. There is a row without each value that may be absent, and ids have gaps.
fn filled() -> Place {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut api = server.api();
    for domain in [
        json!({ "host": "go.example", "root_target": "https://r.example/", "not_found_html": "<p>ä 'x'\n\t\\N" }),
        json!({ "host": "plain.example" }),
    ] {
        assert_eq!(api.ask_domains("POST", "", &domain.to_string()).expect("an answer").status, 201);
    }
    for link in [
        json!({ "code": "gone-between", "target": "https://t.example/" }),
        json!({ "code": "plain", "target": "https://t.example/plain" }),
        json!({ "code": "at-one", "target": "https://t.example/", "domain": "go.example", "tags": ["y", "x", "ü"],
            "title": "A 'title', 🔗", "password": "secret", "max_clicks": 9, "expires_at": "2100-01-01T00:00:00Z",
            "not_before": "2020-01-01T00:00:00Z", "redirect": 308, "forward_query": true, "status": "disabled" }),
        json!({ "code": "newest", "target": "https://t.example/" }),
    ] {
        assert_eq!(api.add(&link).expect("an answer"), 201, "{link}");
    }
    let mut client = crate::http::Client::connect(server.admin).expect("it listens");
    let fields = format!(
        "Authorization: Bearer {}\r\nContent-Type: application/json\r\nIdempotency-Key: \"one\"\r\n",
        server.token
    );
    let body = r#"{"code":"once","target":"https://t.example/once"}"#;
    assert_eq!(client.request("POST", "/api/v1/links", &fields, body).expect("an answer").status, 201);
    assert_eq!(api.delete("gone-between").expect("an answer"), 204);
    assert_eq!(api.create("last", "https://t.example/").expect("an answer"), 201);
    assert_eq!(api.delete("last").expect("an answer"), 204);
    server.stop();
    let key = place.command(&["key", "add", "ci", "--scope", "read", "--domain", "go.example"]);
    assert!(key.expect("it runs").status.success());
    let clicks = "INSERT INTO totals VALUES (2, 9223372036854775807), (3, 5);
        INSERT INTO folded_days VALUES (2, 19000, 19100);
        INSERT INTO click_hours VALUES (0, 480000, 3, 1), (2, 480000, 3, 1);
        INSERT INTO click_countries VALUES (2, -2147483648, 'DE', 3), (2, 20000, '', 1);
        INSERT INTO clicks VALUES (0, 20000, '', 0, 3, 1), (2, -2147483648, '(other)', 1, 9, 0),
            (2, 20000, 'a.example', 2, 7, 1700000000), (2, 20000, 'B.example', 2, 1, 1700000000);
        UPDATE tokens SET last_used_at = 1700000000";
    database(&place.database).execute_batch(clicks).expect("it is as it was made");
    place
}

fn database(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).expect("there is a database")
}

/// A migration's exit code, output and error messages.
fn migrate(from: &str, to: &str, flags: &[&str]) -> (Option<i32>, String, String) {
    told(
        Command::new(BINARY)
            .args(flags)
            .args(["migrate", "--database", from, "--to", to])
            .output()
            .expect("it runs"),
    )
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// How many rows PostgreSQL has in all tables.
fn rows(postgres: &Postgres, name: &str) -> String {
    let counts = TABLES.map(|(table, _)| format!("(SELECT count(*) FROM {table})"));
    postgres.execute(name, &format!("SELECT {}", counts.join(" + "))).expect("it answers")
}

#[test]
fn everything_is_the_same_there_and_back_and_only_an_empty_database_is_filled() {
    let _alone = alone();
    let (postgres, _) = crate::start(Durability::None);
    let (url, other) = (postgres.url("postgres"), postgres.url("again"));
    postgres.create_database("again").expect("it is new");
    let place = filled();
    let file = place.database.to_string_lossy().into_owned();
    let back = place.database.with_file_name("back.db").to_string_lossy().into_owned();
    let (code, there, error) = migrate(&file, &url, &["--json"]);
    assert_eq!((code, &*error), (Some(0), ""), "{there}");
    let migrated: Value = serde_json::from_str(&there).expect("JSON");
    assert_eq!(migrated["written_since"], json!([]), "{there}");
    let counted: HashMap<&str, u64> = (migrated["tables"].as_array().expect("tables").iter())
        .map(|table| (table["table"].as_str().expect("a name"), table["rows"].as_u64().expect("a count")))
        .collect();
    for (table, has_more) in TABLES {
        let rows = counted[table];
        assert!(rows > u64::from(has_more), "{table} has {rows} rows, which shows nothing");
    }
    assert_eq!(migrate(&url, &back, &["--json"]), (Some(0), there.clone(), String::new()));
    assert_eq!(migrate(&back, &other, &["--json"]), (Some(0), there, String::new()));
    let used = "SELECT min(last_used_at) FROM tokens";
    for database in ["postgres", "again"] {
        assert_eq!(postgres.execute(database, used).expect("it answers").trim(), "1700000000", "{database}");
    }
    // Numbers continue after the last assigned one, even if it belonged to a deleted row.
    for (database, place) in [("postgres", Place::at(&url)), ("again", Place::at(&other))] {
        for (number, code) in [(7, "new"), (8, "newer")] {
            let added = place.command(&["add", "https://t.example/", "--code", code, "--tag", "x"]);
            assert!(added.expect("it runs").status.success());
            let sql = format!("SELECT id FROM links WHERE code = '{code}'");
            assert_eq!(postgres.execute(database, &sql).expect("it answers").trim(), number.to_string());
        }
        let (_, listed, _) = told(place.command(&["list", "--tag", "x"]).expect("it runs"));
        assert!(listed.contains("at-one") && listed.contains("newer"), "{listed}");
    }
    let (_, listed, _) = told(Place::at(&back).command(&["list", "--tag", "ü"]).expect("it runs"));
    assert!(listed.contains("at-one"), "{listed}");
    // A refusal is a single line, and changes nothing.
    let before = (rows(&postgres, "postgres"), std::fs::read(&back).expect("it is there"));
    let none = place.database.with_file_name("none.db").to_string_lossy().into_owned();
    let nul = place.database.with_file_name("nul.db").to_string_lossy().into_owned();
    std::fs::copy(&file, &nul).expect("nobody writes it");
    database(Path::new(&nul))
        .execute_batch("UPDATE domains SET not_found_html = 'a' || char(0) || 'b'")
        .expect("it is as it was made");
    postgres.create_database("third").expect("it is new");
    let third = postgres.url("third");
    for (from, to, said) in [
        (&*file, &*url, "it is not empty"),
        (&url, &back, "it is not empty"),
        (&file, &file, "it is not empty"),
        (&none, &other, "there is no database at"),
        (&file, "mysql://x/y", "mysql:// names neither"),
        (&nul, &third, "not_found_html: a row of domains has a NUL"),
    ] {
        let (code, output, error) = migrate(from, to, &[]);
        assert_eq!((code, &*output, error.lines().count()), (Some(2), "", 1), "{from} {to}: {error}");
        assert!(error.contains(said), "{from} {to}: {error}");
    }
    assert_eq!((rows(&postgres, "postgres"), std::fs::read(&back).expect("it is there")), before);
    assert_eq!(rows(&postgres, "third").trim(), "0");
    assert!(!Path::new(&none).exists());
}

/// Stops a migration after it has copied the links, until dropped.
pub struct Held<'a> {
    postgres: &'a Postgres,
    holder: Child,
}

impl<'a> Held<'a> {
    pub fn new(postgres: &'a Postgres, holding: &str) -> Self {
        let mut psql = Command::new("psql");
        psql.arg(postgres.url("postgres")).args([
            "-qAtX",
            "-c",
            &format!("{holding}; SELECT pg_sleep(3600)"),
        ]);
        let holder = psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("psql runs");
        let held = Self { postgres, holder };
        until("it is held", || held.count("wait_event = 'PgSleep'") == 1);
        held
    }

    /// How many sessions match.
    fn count(&self, so: &str) -> u64 {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE {so}");
        self.postgres.execute("postgres", &sql).expect("it answers").trim().parse().expect("a number")
    }

    /// Waits until somebody waits for the lock.
    pub fn waited_for(&self) {
        until("it is waited for", || self.count("wait_event_type = 'Lock'") == 1);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        let _ = self.postgres.execute("postgres", sql);
        let _ = self.holder.wait();
    }
}

/// A running migration.
fn start(from: &str, to: &str) -> Child {
    let mut command = Command::new(BINARY);
    command.args(["migrate", "--database", from, "--to", to]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

#[test]
fn visits_go_on_meanwhile_what_is_written_is_told_and_what_is_killed_leaves_nothing() {
    let _alone = alone();
    let (postgres, there) = crate::start(Durability::None);
    let url = postgres.url("postgres");
    let place = filled();
    let file = place.database.to_string_lossy().into_owned();
    let back = place.database.with_file_name("back.db").to_string_lossy().into_owned();
    assert!(there.command(&["list"]).expect("it runs").status.success(), "the schema is made");
    let hold = "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS \
        $$BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END$$; \
        CREATE TRIGGER hold BEFORE INSERT ON totals FOR EACH STATEMENT EXECUTE FUNCTION hold()";
    postgres.execute("postgres", hold).expect("it is new");
    let locked = "SELECT pg_advisory_lock(1)";

    // The migration into PostgreSQL is killed halfway.
    let held = Held::new(&postgres, locked);
    let mut killed = start(&file, &url);
    held.waited_for();
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    drop(held);
    until("its session is gone", || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'linerate-links%'";
        postgres.execute("postgres", sql).expect("it answers").trim() == "0"
    });
    assert_eq!(rows(&postgres, "postgres").trim(), "0");

    // The migration is not killed. Meanwhile the server with the file answers, and accepts a link.
    let server = place.serve(&[]);
    let held = Held::new(&postgres, locked);
    let migrating = start(&file, &url);
    held.waited_for();
    let mut visitor = server.connect();
    for _ in 0..100 {
        assert_eq!(ask(&mut visitor, "plain").0, 307);
    }
    assert_eq!(server.api().create("meanwhile", "https://t.example/").expect("an answer"), 201);
    drop(held);
    let (code, output, error) = told(migrating.wait_with_output().expect("it ends"));
    assert_eq!((code, error.lines().count()), (Some(0), 1), "{error}");
    assert!(error.starts_with("note: ") && error.contains("links"), "{error}");
    assert!(!error.contains("tokens"), "a key was only used: {error}");
    assert!(output.contains("links: 4 rows, SHA-256 "), "{output}");
    assert!(!there.command(&["get", "meanwhile"]).expect("it runs").status.success());
    assert!(there.command(&["get", "plain"]).expect("it runs").status.success());
    server.stop();

    // The migration into a file is killed halfway.
    let held = Held::new(&postgres, "BEGIN; LOCK TABLE clicks");
    let mut killed = start(&url, &back);
    held.waited_for();
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    drop(held);
    let counts = TABLES.map(|(table, _)| format!("(SELECT count(*) FROM {table})"));
    let sql = format!("SELECT {}", counts.join(" + "));
    let left: i64 = database(Path::new(&back)).query_row(&sql, [], |row| row.get(0)).expect("a schema");
    assert_eq!(left, 0);
    // The remains of a killed migration do not disturb the next one.
    let migrated = migrate(&url, &back, &[]);
    assert_eq!((migrated.0, &*migrated.2), (Some(0), ""));
    assert_eq!(migrated.1, output);
}
