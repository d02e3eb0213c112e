//! Programs of others, fetched once into the target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// aioquic, the version of it, and so of all it brings.
const AIOQUIC: &str = "aioquic==1.7.2";

/// A Python that has aioquic.
pub fn python() -> PathBuf {
    let directory = kept(AIOQUIC, |directory| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory));
        run(Command::new(directory.join("bin/pip")).args(["install", "--quiet", AIOQUIC]));
    });
    directory.join("bin/python")
}

/// A directory named `name`, made by `make` if no earlier run has.
pub fn kept(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = directory.join("done");
    // Held until all of it is there, by whichever test or run comes first.
    let lock = File::create(directory.with_added_extension("lock")).expect("a writable target directory");
    lock.lock().expect("a lock");
    if !done.exists() {
        make(&directory);
        fs::write(done, "").expect("a writable target directory");
    }
    directory
}

/// Runs a command that has to succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}:\n{}{}", text(&output.stdout), text(&output.stderr));
}
