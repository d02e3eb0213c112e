//! What each bench begins and ends with.

use std::error::Error;
use std::process::ExitCode;

/// Runs a bench, briefly where `--quick` is asked for, and says what went wrong and why.
pub fn run<E: Error>(bench: impl FnOnce(bool) -> Result<(), E>) -> ExitCode {
    run_parts(&[], |quick, _| bench(quick))
}

/// Runs those of a bench's `parts` that the command line names, all where it names none.
pub fn run_parts<E: Error>(
    parts: &[&'static str],
    bench: impl FnOnce(bool, &[&'static str]) -> Result<(), E>,
) -> ExitCode {
    let mut quick = false;
    let mut wanted = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            // What `cargo bench` always passes.
            "--bench" => {}
            "--quick" => quick = true,
            name => {
                let Some(part) = parts.iter().find(|part| **part == name) else {
                    let known = [&["--quick"], parts].concat().join(", ");
                    eprintln!("error: {argument:?} is no argument of this bench, which takes: {known}");
                    return ExitCode::FAILURE;
                };
                wanted.push(*part);
            }
        }
    }
    let wanted = if wanted.is_empty() { parts } else { &wanted };
    let Err(error) = bench(quick, wanted) else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  caused by: {cause}");
        source = cause.source();
    }
    ExitCode::FAILURE
}
