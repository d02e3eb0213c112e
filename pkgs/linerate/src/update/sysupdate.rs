//! Runs systemd-sysupdate(8), which downloads versions, checks signatures and writes slots, and systemd-pull(8), which
//! downloads single files. Waits for them up to a timeout.

use std::io;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It doesn't start.
    #[error(transparent)]
    Start(#[from] io::Error),
    /// It took too long and was ended.
    #[error("it took longer than {} s", .0.as_secs())]
    TooLong(Duration),
}

/// Runs a query and returns its output.
pub fn ask(program: &Path, arguments: &[&str], patience: Duration) -> Result<Output, Failure> {
    run(Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()), patience)
}

/// Runs an action. Its messages and progress go to standard error.
pub fn order(program: &Path, arguments: &[&str], patience: Duration) -> Result<Output, Failure> {
    run(Command::new(program).args(arguments).stdout(Stdio::null()), patience)
}

/// Runs a program, and ends it after the timeout. systemd-sysupdate's own systemd-pull asked the kernel to be ended
/// together with its parent, and then removes incomplete files.
fn run(command: &mut Command, patience: Duration) -> Result<Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let output = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?.wait_with_output();
        Ok(tokio::time::timeout(patience, output).await.map_err(|_| Failure::TooLong(patience))??)
    })
}
