//! The binary: an allocator and a way out.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Gives back what a burst of connections took.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    files::cli::main()
}
