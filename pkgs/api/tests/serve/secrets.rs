//! No message contains the secrets of a database's URL, however malformed the URL is and wherever it is given.

use std::fs;
use std::process::{Command, Output};

use rustix::process::Signal;
use testkit::until;

use crate::place::{BINARY, Place};

/// Unusable URLs, all with the same password. In some, a character within the password ends it for a parser.
const MALFORMED: [&str; 22] = [
    "postgres://ada:hunter2@db:x/users",
    "postgres://ada:hunter2@db:99999/users",
    "postgres://ada:hunter2@db:5432:5432/users",
    "postgres//ada:hunter2@db/users",
    "postgres:/ada:hunter2@db/users",
    "postgres:ada:hunter2@db/users",
    "postgres:///ada:hunter2@db/users",
    "postgre://ada:hunter2@db/users",
    "POSTGRES://ada:hunter2@db/users",
    " postgres://ada:hunter2@db/users",
    "ada:hunter2@db/users",
    "postgres://ada:hun@ter2@db/users",
    "postgres://ada:hun/ter2@db/users",
    "postgres://ada:1/hunter2@db/users",
    "postgres://ada:hun?ter2@db/users",
    "postgres://ada:hun#ter2@db/users",
    "postgres://ada:hun ter2\n@db/users",
    "postgres://ada:hunter2%@db/users",
    "postgres://ada:hunter2%ff@db/users",
    "postgres://db/users?passwort=hunter2",
    "postgres://db/users?password=hunter2&sslmode=hunter2",
    "host=db user=ada password='hunter2",
];

/// Checks that a command fails with one line that contains no part of the password.
fn silent(what: &str, output: &Output, code: Option<i32>) {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(output.status.code(), code, "{what}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{what}: {said}");
    for piece in ["hunter2", "hun", "ter2"] {
        assert!(!said.contains(piece), "{what}: {said}");
    }
}

/// The binary in a place, with no settings but the test's.
fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env_remove("LINERATE_API_DATABASE_URL").env("HOME", place.path("home"));
    command
}

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

#[test]
fn a_malformed_url_is_not_repeated() {
    let place = Place::new();
    let (config, credentials) = (place.path("api.toml"), place.path("credentials"));
    let config_path = config.display().to_string();
    fs::create_dir(&credentials).expect("a directory");
    for url in MALFORMED {
        for arguments in [&SERVE[..], &["migrate"], &["key", "list"], &["key", "add", "x"]] {
            let what = format!("{arguments:?} {url:?}");
            let flag = command(&place, &[arguments, &["--database-url", url]].concat()).output();
            silent(&what, &flag.expect("it runs"), Some(2));
            let variable = command(&place, arguments).env("LINERATE_API_DATABASE_URL", url).output();
            let variable = variable.expect("it runs");
            silent(&what, &variable, Some(2));
            assert!(
                String::from_utf8_lossy(&variable.stderr).contains("LINERATE_API_DATABASE_URL"),
                "{what}"
            );
            fs::write(&config, format!("database-url = {}\n", toml_text(url))).expect("a file");
            let file = command(&place, &[arguments, &["--config", &config_path]].concat()).output();
            let file = file.expect("it runs");
            silent(&what, &file, Some(2));
            assert!(String::from_utf8_lossy(&file.stderr).contains("api.toml: database-url"), "{what}");
            fs::write(credentials.join("LINERATE_API_DATABASE_URL"), format!("{url}\n")).expect("a file");
            let credential = command(&place, arguments).env("CREDENTIALS_DIRECTORY", &credentials).output();
            silent(&what, &credential.expect("it runs"), Some(2));
        }
        // The URL is in the wrong place.
        for arguments in [&["serve", url][..], &["migrate", url], &["--database-url", url, "migrate"], &[url]]
        {
            silent(
                &format!("{arguments:?}"),
                &command(&place, arguments).output().expect("it runs"),
                Some(2),
            );
        }
    }
    for text in
        ["database-url = \"postgres://ada:hunter2@db/users", "database-url = postgres://ada:hunter2@db"]
    {
        fs::write(&config, text).expect("a file");
        let output = command(&place, &[&SERVE[..], &["--config", &config_path]].concat()).output();
        silent(text, &output.expect("it runs"), Some(2));
    }
}

/// A text as TOML.
fn toml_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\n', "\\n"))
}

#[test]
fn a_url_that_leads_nowhere_is_told_without_its_password() {
    let place = Place::new();
    for url in
        ["postgres://ada:hunter2@127.0.0.1:1/users", "postgres://ada@127.0.0.1:1/users?password=hunter2"]
    {
        for arguments in [&SERVE[..], &["migrate"], &["key", "list"]] {
            let output = command(&place, arguments).env("LINERATE_API_DATABASE_URL", url).output();
            let output = output.expect("it runs");
            silent(&format!("{arguments:?} {url}"), &output, Some(1));
            assert!(String::from_utf8_lossy(&output.stderr).contains("postgres://127.0.0.1:1/users"));
        }
    }
}

#[test]
fn a_malformed_url_is_not_repeated_when_settings_are_read_again() {
    let place = Place::new();
    let config = place.path("api.toml");
    let database = format!("sqlite:{}", place.path("served.db").display());
    fs::write(&config, format!("database-url = \"{database}\"\n")).expect("a file");
    let mut command = Command::new("env");
    command.args(["--unset=LINERATE_API_DATABASE_URL", BINARY]);
    let server = place.serve_by(command, &["--config", &config.display().to_string()]);
    for (count, url) in (1..).zip(MALFORMED) {
        fs::write(&config, format!("database-url = {}\n", toml_text(url))).expect("a file");
        server.signal(Signal::HUP);
        until("it is refused", || server.log().matches("settings stay as they are").count() == count);
    }
    let said = server.log();
    assert!(!["hun", "ter2"].iter().any(|piece| said.contains(piece)), "{said}");
    assert_eq!(server.get("/v1/users").status, 200);
}
