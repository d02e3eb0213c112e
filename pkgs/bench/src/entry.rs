//! The start and end of each bench.

use std::error::Error;
use std::process::ExitCode;

use crate::report::Report;

/// Runs a bench, briefly with `--quick`, and reports errors with their reason. With `--strict`, a missed target is a
/// failure.
pub fn run<E: Error>(bench: impl FnOnce(bool) -> Result<Report, E>) -> ExitCode {
    run_parts(&[], |quick, _| bench(quick))
}

/// Runs the `parts` of a bench that the command line names, or all if it names none. A name with a dash belongs to a
/// group, which the word before the dash names.
pub fn run_parts<E: Error>(
    parts: &[&'static str],
    bench: impl FnOnce(bool, &[&'static str]) -> Result<Report, E>,
) -> ExitCode {
    let mut quick = false;
    let mut strict = false;
    let mut wanted = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            // `cargo bench` always passes this.
            "--bench" => {}
            "--quick" => quick = true,
            "--strict" => strict = true,
            name => {
                let named = parts.iter().filter(|part| is_named(part, name));
                let before = wanted.len();
                wanted.extend(named);
                if wanted.len() == before {
                    let known = [&["--quick", "--strict"], parts].concat().join(", ");
                    eprintln!("error: {argument:?} is no argument of this bench, which takes: {known}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    let wanted = if wanted.is_empty() { parts } else { &wanted };
    match bench(quick, wanted) {
        Ok(report) if strict => verdict(&report),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Prints an error with its causes, and returns the exit code for it.
pub fn failed(error: &dyn Error) -> ExitCode {
    eprintln!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  caused by: {cause}");
        source = cause.source();
    }
    ExitCode::FAILURE
}

/// Whether an argument selects this part: by its name, or by its group's.
fn is_named(part: &str, name: &str) -> bool {
    part.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Failure if a target was missed.
fn verdict(report: &Report) -> ExitCode {
    let missed: Vec<&str> = report.missed().map(|target| target.figure.name.as_str()).collect();
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {} of {} targets missed: {}", missed.len(), report.targets.len(), missed.join("; "));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::is_named;

    #[test]
    fn a_group_is_named_by_the_word_before_the_dash() {
        for (part, name, named) in [
            ("cold-16KB", "cold-16KB", true),
            ("cold-16KB", "cold", true),
            ("cold-16KB", "cold-", false),
            ("cold-16KB", "col", false),
            ("tls", "tls", true),
            ("tls", "", false),
        ] {
            assert_eq!(is_named(part, name), named, "{part} {name}");
        }
    }
}
