//! Tests `profile` on a process with known functions.

mod support;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use support::skipped;
use testkit::wait_for;

/// A program that computes. With an argument, it also waits in between.
const BUSY: &str = r#"
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline)) void linerate_spins(unsigned n) { for (unsigned i = 0; i < n; i++) sink += i; }
__attribute__((noinline)) void linerate_calls(unsigned n) { linerate_spins(n); linerate_spins(n); sink++; }
__attribute__((noinline)) void linerate_waits(void) { struct timespec t = {0, 5000000}; nanosleep(&t, 0); sink++; }
int main(int count, char **words) { for (;;) { linerate_calls(20000); if (count > 1) linerate_waits(); } }
"#;

/// A process that ends with the test.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compiles the program under a unique name; none if there is no compiler.
fn build(directory: &Path) -> Option<PathBuf> {
    let (source, program) =
        (directory.join("busy.c"), directory.join(format!("busy-{}", std::process::id())));
    std::fs::write(&source, BUSY).expect("written");
    let built = Command::new("cc")
        .args(["-O0", "-g", "-fno-omit-frame-pointer", "-o"])
        .args([&program, &source])
        .status();
    match built {
        Ok(status) if status.success() => Some(program),
        _ => {
            skipped("linerate profile", "cc is missing, which builds what is looked at");
            None
        }
    }
}

fn profile(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate")).arg("profile").args(words).output().expect("the binary")
}

/// The output of a successful command; none if this machine doesn't allow perf events.
fn seen(words: &[&str]) -> Option<Output> {
    let output = profile(words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("perf events are not for this user") || errors.contains("has no perf events") {
        skipped("linerate profile", &errors);
        return None;
    }
    assert!(output.status.success(), "{words:?}: {errors}");
    Some(output)
}

#[test]
fn what_runs_is_named_with_its_callers_in_the_picture_and_folded() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = build(directory.path()) else { return };
    let child = Busy(Command::new(&program).spawn().expect("started"));
    let pid = child.0.id().to_string();
    let svg = directory.path().join("a.svg");
    let drawn = svg.to_str().expect("a path");
    let Some(output) =
        seen(&["--pid", &pid, "--seconds", "2", "--frequency", "499", "--folded", "--output", drawn])
    else {
        return;
    };
    let folded = String::from_utf8(output.stdout).expect("text");
    let heaviest = folded
        .lines()
        .max_by_key(|line| line.rsplit(' ').next().and_then(|weight| weight.parse::<u64>().ok()))
        .unwrap_or_else(|| panic!("{folded:?}"));
    assert!(heaviest.contains("main;linerate_calls;linerate_spins"), "{folded}");
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    for name in ["main", "linerate_calls", "linerate_spins"] {
        assert!(picture.contains(&format!("<title>{name}, ")), "{name}: {picture}");
    }
    // By the name of its program, as for a service, and with the table.
    let name = program.file_name().and_then(|name| name.to_str()).expect("a name");
    let output = seen(&[name, "--seconds", "1", "--json"]).expect("as before");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["hottest"][0]["name"], "linerate_spins", "{json}");
    // As a part of the whole machine.
    // Others' stacks may be heavier, and the time for names over before this one's turn.
    let folded = wait_for("it is named as a part of the whole machine", || {
        let output = seen(&["--all", "--seconds", "1", "--folded"]).expect("as before");
        let folded = String::from_utf8_lossy(&output.stdout).into_owned();
        folded.contains("main;linerate_calls;linerate_spins").then_some(folded)
    });
    // Compared with the same file, nothing has changed. Compared with another file, its functions are new.
    let (one, other) = (directory.path().join("one"), directory.path().join("other"));
    std::fs::write(&one, &folded).expect("written");
    std::fs::write(&other, "sleeper;main;dozes 5\n").expect("written");
    let [one, other] = [&one, &other].map(|path| path.to_str().expect("a path"));
    let output = profile(&["--diff", other, one, "--output", drawn, "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        json["changes"][0],
        serde_json::json!({"name": "dozes", "before": 100.0, "now": 0.0}),
        "{json}"
    );
    assert!(std::fs::read_to_string(&svg).expect("a picture").contains("before 0.0%"));
}

#[test]
fn what_waits_is_named_with_how_long() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = build(directory.path()) else { return };
    let child = Busy(Command::new(&program).arg("waits").spawn().expect("started"));
    let pid = child.0.id().to_string();
    let begun = Instant::now();
    let Some(output) = seen(&["--pid", &pid, "--seconds", "2", "--waiting", "--folded", "--json"]) else {
        return;
    };
    let most = u64::try_from(begun.elapsed().as_micros()).expect("some seconds");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&json["unit"], &json["event"]), (&"microseconds".into(), &"context-switches".into()));
    let folded = json["folded"].as_str().expect("stacks");
    let slept = folded.lines().filter(|line| line.contains("sleep"));
    let slept: u64 = slept.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert!((200_000..=most).contains(&slept), "most of two seconds: {folded}");
    assert!(folded.lines().all(|line| !line.contains(";schedule_[k] ")), "{folded}");
}

#[test]
fn who_may_not_is_told_so_in_one_line() {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if !rustix::process::geteuid().is_root() || paranoid.trim().parse::<i32>().is_ok_and(|level| level < 1) {
        return skipped(
            "linerate profile without permission",
            "it takes root to be somebody else, and a kernel that cares",
        );
    }
    // Other users can only run the program if they may enter its directory.
    let directory = tempfile::tempdir_in("/tmp").expect("a directory");
    let program = directory.path().join("linerate");
    std::fs::copy(env!("CARGO_BIN_EXE_linerate"), &program).expect("copied");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("set");
    for words in [&["--all"][..], &["--all", "--waiting"]] {
        let mut command = Command::new(&program);
        let output =
            command.arg("profile").args(words).uid(65534).gid(65534).current_dir("/").output().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
        assert!(
            errors.starts_with("error: perf events are not for this user (kernel.perf_event_paranoid is "),
            "{errors}"
        );
        assert!(errors.contains("CAP_PERFMON") && output.stdout.is_empty(), "{errors}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let odd = directory.path().join("odd");
    std::fs::write(&odd, "a;b\n").expect("written");
    let odd = odd.to_str().expect("a path");
    for (words, says) in [
        (&[][..], "required"),
        (&["links", "--all"], "cannot be used with"),
        (&["no-such-service"], "does not run here"),
        (&["../../etc"], "does not run here"),
        (&["--pid", "0"], "0 is not in"),
        (&["--pid", "4194303"], "there is no process"),
        (&["--all", "--seconds", "601"], "601 is not in"),
        (&["--all", "--frequency", "100000"], "100000 is not in"),
        (&["--all", "--waiting", "--frequency", "9"], "cannot be used with"),
        (&["--diff", odd, odd], "line 1 is none of folded stacks"),
        (&["--diff", odd], "2 values required"),
        (&["--diff", "/none", odd], "/none: No such file"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
            .arg("profile")
            .args(words)
            .stdin(Stdio::null())
            .output()
            .expect("the binary");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains(says) && errors.starts_with("error: "), "{words:?}: {errors}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}
