//! The binary: sets the allocator and runs the command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Much faster than glibc's allocator for the many small blocks of a request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    links::cli::main()
}
