//! The binary: sets the allocator and runs the command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Returns the memory that a burst of connections took.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    files::cli::main()
}
