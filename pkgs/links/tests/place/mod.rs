//! A directory with links in it, and commands that run there.

mod api;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use api::Api;
use serde_json::Value;
use tempfile::TempDir;

/// The start of short URLs in these tests.
pub const PUBLIC_URL: &str = "https://go.example";

/// A command that doesn't see the environment of the tests.
pub fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate-links"));
    command.env_clear().env("HOME", home).current_dir(home);
    command
}

/// A line of a table, with single spaces between its columns.
pub fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a test on a database, and again over the API.
pub fn on_both(test: impl Fn(&Place)) {
    test(&Place::with_database());
    test(&Place::with_api());
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The output as JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "JSON is one line: {self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts a failure, reported in one line.
    pub fn failed(&self, code: i32, why: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "an error is one line: {self:?}");
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains(why), "not {why:?}: {self:?}");
    }
}

/// A directory with links in it.
pub struct Place {
    api: Option<Api>,
    directory: TempDir,
}

impl Place {
    /// A place where commands work on a database, which doesn't exist yet.
    pub fn with_database() -> Self {
        Self { api: None, directory: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A place where commands work over the API on a separate database.
    pub fn with_api() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { api: Some(Api::start(&directory.path().join("served.db"))), directory }
    }

    /// The API's URL for commands.
    pub fn api_url(&self) -> &str {
        self.api.as_ref().map_or("", |api| &api.url)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    }

    /// A command on the links here.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.directory.path());
        command.args(args).env("LINERATE_LINKS_PUBLIC_URL", PUBLIC_URL);
        match &self.api {
            Some(api) => command.env("LINERATE_LINKS_API", &api.url).env("LINERATE_LINKS_TOKEN", &api.token),
            None => command.env("LINERATE_LINKS_DATABASE", self.path("links.db")),
        };
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    pub fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        // A command that doesn't read its input may already be gone.
        child.stdin.take().expect("piped").write_all(stdin.as_bytes()).ok();
        let output = child.wait_with_output().expect("the command ends");
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// The output of a command that must succeed.
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}: {ran:?}");
        ran.stdout
    }

    /// The output of a command that must succeed, as JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--json"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}: {ran:?}");
        ran.json()
    }
}
