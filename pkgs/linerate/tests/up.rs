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

/// The process that listens at an address of loopback.
fn listens(address: &str) -> bool {
    std::net::TcpStream::connect(address).is_ok()
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
                    Command::new("sh").args(["-c", &format!("{command} --silent --max-time 10")]).output();
                let text = String::from_utf8_lossy(&output.expect("curl").stdout).into_owned();
                text.split_whitespace().nth(1).unwrap_or_default().to_owned()
            })
            .collect();
        assert_eq!(statuses, ["307", "201", "200", "200"], "{commands:?}");
        kill_process(Pid::from_child(&child), Signal::INT).expect("a process");
        assert_eq!(ended(&mut child), 0);
        for service in ["links", "links_admin", "files", "api"] {
            assert!(!listens(said[service].as_str().expect("an address")), "{service} still runs");
        }
    }
}

#[test]
fn the_end_of_one_is_the_end_of_all() {
    if binaries().is_none() {
        return;
    }
    let data = tempfile::tempdir().expect("a directory");
    let (mut child, said) = up(data.path());
    // The kernel may leave some out of the list while others come and go (proc(5), `children`): asked until it is there.
    let end = Instant::now() + Duration::from_secs(10);
    let files = std::iter::repeat_with(|| children(child.id()))
        .take_while(|_| Instant::now() < end)
        .find_map(|all| all.into_iter().find(|(_, name)| name == "linerate-files"))
        .expect("a process");
    kill_process(Pid::from_raw(files.0).expect("a pid"), Signal::KILL).expect("a process");
    assert_eq!(ended(&mut child), 1);
    let mut errors = String::new();
    child.stderr.take().expect("standard error").read_to_string(&mut errors).expect("text");
    assert!(errors.lines().any(|line| line.starts_with("error: files ended: signal: 9")), "{errors}");
    assert!(!listens(said["links"].as_str().expect("an address")));
}

/// The processes that one has started, and what they are called.
fn children(parent: u32) -> Vec<(i32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).expect("threads");
    let pids = tasks.flat_map(|task| {
        let text =
            std::fs::read_to_string(task.expect("a thread").path().join("children")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    let name = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
    };
    pids.map(|pid| (pid.parse().expect("a number"), name(&pid))).collect()
}
