//! `up` with the real services, and what it says to try.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// The directory of this build's binaries, if the services are among them: cargo builds only this package's own for
/// its tests, and `make test` builds all.
fn binaries() -> Option<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_BIN_EXE_linerate")).parent()?.to_owned();
    let there = ["linerate-links", "linerate-files", "linerate-api"]
        .iter()
        .all(|name| directory.join(name).is_file());
    if !there {
        eprintln!("skipped: the services are not built beside linerate");
    }
    there.then_some(directory)
}

/// Starts `up` on a directory and waits for what it says once all are ready.
fn up(data: &std::path::Path) -> (Child, Value) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["--json", "up", "--data"])
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the binary");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("standard output")).read_line(&mut line).expect("a line");
    let said = serde_json::from_str(&line).unwrap_or_else(|error| {
        let mut errors = String::new();
        child.stderr.take().expect("standard error").read_to_string(&mut errors).expect("text");
        panic!("{error}: {line:?} {errors}")
    });
    (child, said)
}

/// Waits until it has ended, for a while.
fn ended(child: &mut Child) -> i32 {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("a status") {
            return status.code().expect("a code");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    panic!("it did not end");
}

/// The services that still run, of those that it started. Ports tell nothing: somebody else may have them by now.
fn running(said: &Value) -> Vec<&str> {
    let processes = said["processes"].as_object().expect("processes");
    assert_eq!(processes.keys().collect::<Vec<_>>(), ["api", "files", "links"]);
    let runs = |(name, pid): &(&String, &Value)| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim() == format!("linerate-{name}")
    };
    processes.iter().filter(runs).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn what_it_says_to_try_works_and_everything_ends_together() {
    if binaries().is_none() {
        return;
    }
    let data = tempfile::tempdir().expect("a directory");
    // Twice: what is there from the last time is used again.
    for _ in 0..2 {
        let (mut child, said) = up(data.path());
        let commands = said["commands"].as_array().expect("commands");
        let statuses: Vec<String> = commands
            .iter()
            .map(|command| {
                let command = command.as_str().expect("a command");
                let output =
                    Command::new("sh").args(["-c", &format!("{command} --silent --max-time 30")]).output();
                let text = String::from_utf8_lossy(&output.expect("curl").stdout).into_owned();
                text.split_whitespace().nth(1).unwrap_or_default().to_owned()
            })
            .collect();
        assert_eq!(statuses, ["307", "201", "200", "200"], "{commands:?}");
        assert_eq!(running(&said).len(), 3);
        kill_process(Pid::from_child(&child), Signal::INT).expect("a process");
        assert_eq!(ended(&mut child), 0);
        assert!(running(&said).is_empty(), "{:?} still run", running(&said));
    }
}

#[test]
fn the_end_of_one_is_the_end_of_all() {
    if binaries().is_none() {
        return;
    }
    let data = tempfile::tempdir().expect("a directory");
    let (mut child, said) = up(data.path());
    let files = said["processes"]["files"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
    kill_process(files.expect("a process"), Signal::KILL).expect("a process");
    assert_eq!(ended(&mut child), 1);
    let mut errors = String::new();
    child.stderr.take().expect("standard error").read_to_string(&mut errors).expect("text");
    assert!(errors.lines().any(|line| line.starts_with("error: files ended: signal: 9")), "{errors}");
    assert!(running(&said).is_empty(), "{:?} still run", running(&said));
}
