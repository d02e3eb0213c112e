//! The binary: a way out. The allocator is the system's, as in the articles.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ladder::cli::main()
}
