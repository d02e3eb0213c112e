//! Reports tests and benches that can't run here.

use std::fs::OpenOptions;
use std::io::Write;

/// The variable that names the file where skips are collected, one per line, for the end of a run.
pub const VARIABLE: &str = "LINERATE_SKIPS";

/// Prints on stderr that `name` is skipped, and why: `skipped: NAME: REASON`. Appends the same line to the file in
/// `LINERATE_SKIPS`, if that is set.
///
/// # Panics
/// When that file can't be written: an unnoticed skip would look like a success.
pub fn skipped(name: &str, reason: &str) {
    let line = line(name, reason);
    // In a single write, since tests run concurrently.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot note a skip in {}: {error}", path.display()));
}

/// A single line, whatever the reason contains.
fn line(name: &str, reason: &str) -> String {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("skipped: {}: {}\n", words(name), words(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_one_line() {
        assert_eq!(line("a test", "no\nprogram  here"), "skipped: a test: no program here\n");
    }

    /// The test below, in a separate process with this variable set.
    #[test]
    #[ignore = "not a test: the process that the next one starts"]
    fn child() {
        skipped("one", "first");
        skipped("two", "second");
    }

    #[test]
    fn skips_are_gathered_in_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("skips");
        let output = std::process::Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--ignored", "--exact", "--nocapture", "skip::tests::child"])
            .env(VARIABLE, &file)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let expected = "skipped: one: first\nskipped: two: second\n";
        assert_eq!(std::fs::read_to_string(file).expect("written"), expected);
        assert!(said.contains(expected), "{said}");
    }
}
