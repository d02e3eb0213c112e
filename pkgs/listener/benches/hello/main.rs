//! What a hello costs.
#![forbid(unsafe_code)]

mod peers;

use std::process::ExitCode;

// For the peers, which shall have what the listener's example has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = peers::serve_if_asked() {
        return code;
    }
    let _ = peers::start;
    ExitCode::FAILURE
}
