//! Third-party programs, fetched once into the target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python with aioquic.
pub fn aioquic() -> PathBuf {
    python("aioquic", include_str!("aioquic.txt")).join("python")
}

/// The directory with the programs of a Python that has what a requirements file names.
pub fn python(name: &str, requirements: &str) -> PathBuf {
    let directory = kept(name, requirements, |directory| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory));
        let file = directory.join("requirements.txt");
        fs::write(&file, requirements).expect("a writable target directory");
        run(Command::new(directory.join("bin/pip")).args(["install", "--quiet", "--requirement"]).arg(file));
    });
    directory.join("bin")
}

/// A directory named `name`, made by `make` unless an earlier run has made it with the same `versions`.
pub fn kept(name: &str, versions: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = directory.join("done");
    // Locked until all of it is there, by whichever test or run comes first.
    let lock = File::create(directory.with_added_extension("lock")).expect("a writable target directory");
    lock.lock().expect("a lock");
    if !fs::read_to_string(&done).is_ok_and(|of| of == versions) {
        make(&directory);
        fs::write(done, versions).expect("a writable target directory");
    }
    directory
}

/// Runs a command that has to succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}:\n{}{}", text(&output.stdout), text(&output.stderr));
}
