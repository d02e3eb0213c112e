//! What each bench begins and ends with.

use std::error::Error;
use std::process::ExitCode;

/// Runs a bench, briefly where `--quick` is asked for, and says what went wrong and why.
pub fn run<E: Error>(bench: impl FnOnce(bool) -> Result<(), E>) -> ExitCode {
    let mut quick = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            // What `cargo bench` always passes.
            "--bench" => {}
            "--quick" => quick = true,
            _ => {
                eprintln!("error: {argument:?} is no argument of this bench; --quick is");
                return ExitCode::FAILURE;
            }
        }
    }
    let Err(error) = bench(quick) else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  caused by: {cause}");
        source = cause.source();
    }
    ExitCode::FAILURE
}
