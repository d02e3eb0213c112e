//! Which databases are used, which are left alone, and how a command finds the served one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::Value;

use crate::place::{BINARY, Place, problem, user, value};

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Checks that every command refuses the file at a path, gives the reason on one line, and leaves the file unchanged.
fn refused(path: &Path, why: &str, code: i32) {
    let content = |path: &Path| fs::read(path).unwrap_or_default();
    let before = content(path);
    let place = Place::on(format!("sqlite:{}", path.display()));
    for arguments in
        [&["migrate"][..], &["key", "add", "x"], &["key", "list"], &["seed", "--count", "1"], &SERVE]
    {
        let output = place.command(arguments);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.contains(why) && said.contains(&path.display().to_string()), "{arguments:?}: {said}");
        assert!(!said.contains("rror code") && !said.contains("(code"), "{arguments:?}: {said}");
    }
    assert_eq!(content(path), before);
    if path.is_file() {
        let beside = fs::read_dir(path.parent().expect("a directory")).expect("a directory").count();
        assert_eq!(beside, 1, "nothing is beside it");
    }
}

#[test]
fn what_is_another_programs_is_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("other.db");
    let make = |sql: &str| {
        Connection::open(&path).and_then(|database| database.execute_batch(sql)).expect("it is made");
    };
    make("CREATE TABLE links (code TEXT); INSERT INTO links VALUES ('x'); PRAGMA journal_mode = WAL");
    refused(&path, "the database of another program", 2);
    // Other programs keep their migrations like this, with sqlx.
    make("CREATE TABLE _sqlx_migrations (version INTEGER); CREATE TABLE keys (id INTEGER)");
    refused(&path, "the database of another program", 2);
    make("PRAGMA application_id = 1");
    refused(&path, "the database of another program", 2);
    fs::write(&path, "email,name\n").expect("a file");
    refused(&path, "it is no SQLite database", 2);
    refused(directory.path(), "it is a directory", 2);
}

#[test]
fn a_name_that_looks_like_a_uri_is_the_name_of_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let made =
        Connection::open(path("x.db")).and_then(|database| database.execute_batch("CREATE TABLE x (y)"));
    made.expect("it is another program's");
    let before = fs::read(path("x.db")).expect("it is there");
    let output = Command::new(BINARY)
        .args(["migrate", "--database-url", "sqlite:file:x.db"])
        .current_dir(&directory)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(path("x.db")).expect("it is there"), before);
    assert!(fs::read(path("file:x.db")).expect("it is there").starts_with(b"SQLite format 3"));
}

#[test]
fn a_database_of_a_newer_release_is_left_to_it() {
    let place = Place::new();
    assert!(place.command(&["migrate"]).status.success());
    place.execute("INSERT INTO _sqlx_migrations VALUES (9999, 'later', CURRENT_TIMESTAMP, 1, x'00', 1)");
    let output = place.command(&["migrate"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("a newer release of linerate-api (schema 9999"), "{}", said(&output));
}

#[test]
fn a_database_of_a_release_that_migrated_by_sqlx_goes_on_as_it_is() {
    let place = Place::new();
    place.execute(include_str!("before.sql"));
    let rows = |sql: &str| -> Vec<String> {
        let database = Connection::open(place.path("users.db")).expect("it opens");
        let mut statement = database.prepare(sql).expect("the tables are there");
        let rows = statement.query_map([], |row| row.get(0)).expect("it is read");
        rows.collect::<Result<_, _>>().expect("texts")
    };
    let schema = || {
        rows("SELECT type || name || coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite_stat%'")
    };
    let notes =
        || rows("SELECT version || installed_on || hex(checksum) || execution_time FROM _sqlx_migrations");
    let before = (schema(), notes());
    assert_eq!(before.1.len(), 1);
    assert!(place.command(&["migrate"]).status.success());
    let keys = place.command(&["key", "list", "--json"]);
    let keys: Value = serde_json::from_slice(&keys.stdout).expect("JSON");
    assert_eq!(keys["keys"][0]["name"], "ci");
    let server = place.serve(&[]);
    for (query, emails) in [
        ("sort=name", &["ada@example.org", "grace@example.org"][..]),
        ("q=love&tag=one", &["ada@example.org"]),
        ("status=suspended&tag=two", &["grace@example.org"]),
    ] {
        let page = value(&server.get(&format!("/v1/users?{query}")));
        let users = page["users"].as_array().expect("users");
        let found: Vec<&str> = users.iter().filter_map(|user| user["email"].as_str()).collect();
        assert_eq!(found, emails, "{query}");
        let user = value(&server.get(&format!("/v1/users/{}", users[0]["id"].as_str().expect("an id"))));
        assert_eq!(user, users[0]);
    }
    server.create("new@example.org");
    assert_eq!(value(&server.get("/v1/users:count"))["count"], 3);
    drop(server);
    // Later additions are in separate tables, where that release does not look.
    let (schema, added) = (schema(), before.0.len());
    assert_eq!((&schema[..added], notes()), (&before.0[..], before.1));
    assert!(
        matches!(&schema[added..], [uses] if uses.starts_with("tablekey_uses")),
        "{:?}",
        &schema[added..]
    );
}

#[test]
fn a_database_is_marked_and_private_and_one_from_before_there_were_marks_is_taken() {
    let place = Place::new();
    let path = place.path("users.db");
    let mark = || -> i32 {
        let database = Connection::open(&path).expect("it opens");
        database.pragma_query_value(None, "application_id", |row| row.get(0)).expect("it is read")
    };
    place.serve(&[]).create("a@example.org");
    assert_eq!(mark(), i32::from_be_bytes(*b"lrAp"));
    let server = place.serve(&[]);
    let files: Vec<_> = fs::read_dir(path.parent().expect("a directory")).expect("a directory").collect();
    let files = files.into_iter().map(|file| file.expect("a file"));
    let modes: Vec<_> = files
        .filter(|file| file.file_name().to_string_lossy().starts_with("users.db"))
        .map(|file| file.metadata().expect("it is there").permissions().mode() & 0o777)
        .collect();
    assert!(modes.len() >= 2 && modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
    drop(server);
    place.execute("PRAGMA application_id = 0");
    assert_eq!(value(&place.serve(&[]).get("/v1/users:count"))["count"], 1);
    assert_eq!(mark(), i32::from_be_bytes(*b"lrAp"));
}

#[test]
fn a_database_that_is_open_to_everybody_is_private_once_it_is_served() {
    let place = Place::new();
    let path = place.path("users.db");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert!(place.command(&["migrate"]).status.success());
    for (from, to) in [(0o644, 0o600), (0o640, 0o640)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(from)).expect("it is ours");
        let server = place.serve(&[]);
        for end in ["", "-wal", "-shm"] {
            assert_eq!(mode(&place.path(&format!("users.db{end}"))) & !to, 0, "users.db{end} of {from:o}");
        }
        assert_eq!(mode(&path), to);
        let log = server.log();
        let told = log.lines().filter(|line| line.contains("everybody on this machine could use")).count();
        assert_eq!(told, usize::from(from != to), "{log}");
        server.create(&format!("a{from}@example.org"));
    }
}

#[test]
fn a_database_that_somebody_else_holds_is_named() {
    let place = Place::new();
    assert!(place.command(&["migrate"]).status.success());
    let holder = Connection::open(place.path("users.db")).expect("it opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let output = place.command(&["key", "add", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("users.db") && said(&output).contains("busy"), "{}", said(&output));
}

#[test]
fn keys_go_where_serve_looks_for_them() {
    let place = Place::new();
    let url = format!("sqlite:{}", place.path("served.db").display());
    let config = place.path("api.toml");
    fs::write(&config, format!("database-url = \"{url}\"\nmax-batch = 7\n")).expect("a file");
    let config = config.display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(arguments).env_remove("LINERATE_API_DATABASE_URL");
        command.env("XDG_DATA_HOME", place.path("data")).output().expect("it runs")
    };
    let public = ["serve", "--listen", "0.0.0.0:0"];
    for flags in [&["--database-url", &url][..], &["--config", &config]] {
        let output = run(&[&public[..], flags].concat());
        let told = said(&output);
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        assert!(told.contains(&format!("key add NAME --scope write --database-url {url}'")), "{told}");
    }
    let data = place.path("data");
    for arguments in [
        &["key", "add", "one", "--database-url", &url][..],
        &["key", "--database-url", &url, "add", "two"],
        &["key", "add", "three", "--config", &config],
        &["key", "--config", &config, "add", "four"],
    ] {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }
    let keys = |flags: &[&str]| -> Vec<String> {
        let output = run(&[&["key", "list", "--json"], flags].concat());
        let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let keys = list["keys"].as_array().expect("a list").iter();
        keys.map(|key| key["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(keys(&["--config", &config]), ["one", "two", "three", "four"]);
    assert_eq!(keys(&[]), Vec::<String>::new());
    assert!(data.join("linerate/api.db").exists());
    assert_eq!(run(&["key", "rm", "99", "--config", &config]).status.code(), Some(2));
    assert_eq!(run(&["key", "list", "--config", "/nonexistent"]).status.code(), Some(2));
}

#[test]
fn the_command_that_is_advised_makes_a_key_for_the_server_wherever_it_runs() {
    let place = Place::new();
    // Under systemd, the default is in the directory of the service's state.
    let state = place.path("the state");
    fs::create_dir(&state).expect("a directory");
    let serve = || {
        let mut command = Command::new(BINARY);
        command.env_remove("LINERATE_API_DATABASE_URL").env("STATE_DIRECTORY", &state);
        command
    };
    let refused = serve().args(["serve", "--listen", "0.0.0.0:0"]).output().expect("it runs");
    let told = said(&refused);
    let (_, rest) = told.split_once("make one with '").expect("advice");
    let (advised, _) = rest.split_once("', or say").expect("its end");
    let program = Path::new(BINARY).parent().expect("a directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let made = Command::new("sh")
        .args(["-c", advised])
        .env("PATH", path)
        .env("XDG_DATA_HOME", place.path("data"))
        .env_remove("LINERATE_API_DATABASE_URL")
        .env_remove("STATE_DIRECTORY")
        .output()
        .expect("a shell");
    assert!(made.status.success(), "{advised}: {}", said(&made));
    // It starts now, or this panics.
    let flags = ["serve", "--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--workers", "1"];
    drop(testkit::Server::by(serve()).args(flags).start());
    assert!(!place.path("data").exists());
}

#[test]
fn a_full_disk_of_postgresql_is_told() {
    let place = Place::on_postgresql();
    let server = place.serve(&[]);
    place.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON users FOR EACH ROW EXECUTE FUNCTION full_disk()",
    );
    for field in ["", "Idempotency-Key: a\r\n"] {
        problem(&server.send("POST", "/v1/users", field, &user("a@example.org")), 507);
    }
    place.execute("DROP TRIGGER full_disk ON users");
    server.create("a@example.org");
}

#[test]
fn a_time_that_the_database_cannot_use_is_refused() {
    let place = Place::new();
    for (flag, values) in [
        ("--staleness", &["0", "9", "60001", "3000000000"][..]),
        ("--database-timeout", &["0", "3000000000"]),
        ("--acquire-timeout", &["3000000000"]),
        ("--body-timeout", &["0", "3000000000"]),
    ] {
        for &given in values {
            let (code, told) = place.refused(&["--listen", "127.0.0.1:0", flag, given]);
            assert!(code == Some(2) && told.contains(flag), "{flag} {given}: {told}");
        }
    }
}
