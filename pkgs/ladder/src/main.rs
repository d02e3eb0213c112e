//! The program. It uses the system's allocator, as in the articles.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ladder::cli::main()
}
