//! The binary: an allocator and a way out.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// Much faster than glibc's on the many small blocks of a request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    links::cli::main()
}
