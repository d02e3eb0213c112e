//! The binary: sets the allocator and runs the command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Chosen because requests are parsed and answered in many short-lived buffers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    api::cli::main()
}
