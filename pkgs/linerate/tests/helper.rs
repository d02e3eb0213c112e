//! Tests the console's helper with other users and incorrect clients.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use linerate::helper::{Answer, Request, Verb, ask};
use serde_json::Value;
use support::skipped;
use testkit::Server;

/// A helper for one test, on a recorded machine or this one.
struct Helper {
    server: Server,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Helper {
    fn start(recorded: bool, user: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        if recorded {
            command.arg("--machine").arg(machine());
        }
        let server = Server::by(command)
            .args(["console-helper", "--user", &user.to_string(), "--listen"])
            .arg(format!("unix:{}", socket.display()))
            .start();
        assert!(server.line("helper").is_some(), "{}", server.said());
        Self { server, socket, _directory: directory }
    }

    fn ask(&self, verb: Verb) -> Answer {
        ask(&self.socket, &Request { verb, by: "a test".into() }).expect("an answer")
    }

    /// The answer to these bytes.
    fn say(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.socket).expect("connected");
        // The helper may have closed the connection already.
        let _ = stream.write_all(bytes);
        answer(&mut stream)
    }

    /// Its log, once it has ended.
    fn end(self) -> Vec<Value> {
        self.server.kill();
        let log = self.server.log();
        log.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }
}

fn answer(stream: &mut UnixStream) -> String {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn machine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/c6i.4xlarge-8.txt")
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn queues_are_placed_and_put_back_for_the_consoles_user_and_all_of_it_is_logged() {
    let helper = Helper::start(true, own());
    let answer = helper.ask(Verb::Apply { interface: "ens5".into() });
    assert_eq!(answer.error, None);
    let output: Value = serde_json::from_str(&answer.output).expect("JSON");
    assert_eq!(output["interfaces"][0]["interface"], "ens5", "{output}");
    assert!(
        output["interfaces"][0]["changed"].as_array().is_some_and(|changed| !changed.is_empty()),
        "{output}"
    );
    // Nothing is saved for a recorded machine, so there is nothing to restore.
    assert_eq!(helper.ask(Verb::Undo { interface: "ens5".into() }).error, None);
    let answer = helper.ask(Verb::Apply { interface: "eth9".into() });
    assert!(answer.error.as_ref().is_some_and(|why| why.contains("eth9")), "{answer:?}");
    let seen: Vec<_> = helper
        .end()
        .iter()
        .map(|line| {
            assert_eq!(
                (&line["kind"], &line["uid"], &line["by"]),
                (&"audit".into(), &own().into(), &"a test".into())
            );
            format!("{} {} {}", line["action"], line["target"], line["error"].is_null())
        })
        .collect();
    assert_eq!(
        seen,
        ["\"nic.apply\" \"ens5\" true", "\"nic.undo\" \"ens5\" true", "\"nic.apply\" \"eth9\" false"]
    );
}

#[test]
fn it_looks_at_processes_of_this_machine() {
    let helper = Helper::start(false, own());
    let answer = helper.ask(Verb::Profile { service: None, seconds: 1, waiting: false });
    match answer.error {
        Some(why) if why.starts_with("perf events are not") || why.contains("has no perf events") => {
            skipped("linerate console-helper profile", &why);
        }
        error => {
            assert_eq!(error, None);
            let output: Value = serde_json::from_str(&answer.output).expect("JSON");
            assert!(output["folded"].is_string() && output["what"] == "the machine", "{output}");
        }
    }
    let answer =
        helper.ask(Verb::Profile { service: Some("no-such-service".into()), seconds: 1, waiting: true });
    assert!(answer.error.is_some_and(|why| why.starts_with("no-such-service does not run here")));
}

#[test]
fn strangers_get_not_a_word_and_are_logged() {
    let helper = Helper::start(true, own().wrapping_add(4711));
    let good = b"{\"verb\":{\"undo\":{\"interface\":\"ens5\"}},\"by\":\"x\"}\n";
    for bytes in [&good[..], b"", b"odd"] {
        assert_eq!(helper.say(bytes), "");
    }
    let error =
        ask(&helper.socket, &Request { verb: Verb::Undo { interface: "ens5".into() }, by: String::new() });
    assert!(error.is_err());
    let log = helper.end();
    assert_eq!(log.len(), 4, "{log:?}");
    assert!(
        log.iter().all(|line| line["error"] == "not a user who may ask" && line["action"].is_null()),
        "{log:?}"
    );
}

#[test]
fn odd_bytes_are_refused_and_do_no_harm() {
    let helper = Helper::start(true, own());
    let long = [b'a'; 5000];
    let deep = format!("{}\n", "[".repeat(4000));
    for bytes in [
        b"\n".as_slice(),
        b"\0\xff\xfe\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"{\"verb\":{\"run\":{\"command\":\"id\"}},\"by\":\"x\"}\n",
        b"{\"verb\":{\"undo\":{\"interface\":\"a/b\"}},\"by\":\"x\"}\n",
        b"{\"verb\":{\"undo\":{\"interface\":\"-h\"}},\"by\":\"x\"}\n",
        b"{\"verb\":{\"profile\":{\"service\":\"a;id\",\"seconds\":1}},\"by\":\"x\"}\n",
        deep.as_bytes(),
        &long,
    ] {
        let said = helper.say(bytes);
        let said: Answer = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert!(said.error.is_some() && said.output.is_empty(), "{said:?}");
    }
    // The kernel accepts such a name. No shell is involved.
    let answer = helper.ask(Verb::Undo { interface: "$(id)".into() });
    assert!(answer.output.contains("\"interface\":\"$(id)\""), "{answer:?}");
    assert_eq!(helper.ask(Verb::Undo { interface: "ens5".into() }).error, None, "it goes on");
}

#[test]
fn who_stalls_is_sent_away_and_too_many_at_once_are_told_so() {
    let helper = Helper::start(true, own());
    let begun = Instant::now();
    let mut stalled: Vec<UnixStream> =
        (0..8).map(|_| UnixStream::connect(&helper.socket).expect("connected")).collect();
    // Connections are accepted in order, so these eight have all slots.
    let said = helper.say(b"");
    assert!(said.contains("too many requests at once"), "{said}");
    stalled[0].write_all(b"{\"verb\":").expect("a drip");
    for stream in &mut stalled {
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("set");
        let said = answer(stream);
        assert!(said.contains("the request has not come"), "{said}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(4), "they had their time");
    assert_eq!(helper.ask(Verb::Undo { interface: "ens5".into() }).error, None, "it goes on");
}

#[test]
fn what_it_cannot_be_started_with_is_said_in_one_line() {
    for (words, says) in [
        (&["--user", "0", "--listen", "127.0.0.1:0"][..], "Unix socket alone"),
        (&["--user", "no such user"], "/etc/passwd has no user no such user"),
        (&["--listen", "unix:/tmp/none"], "--user <USER>"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_linerate")).arg("console-helper").args(words).output();
        let output = output.expect("the binary");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains(says), "{words:?}: {errors}");
    }
}
