//! systemd-sysupdate(8), which fetches, checks signatures and writes: asked, and waited for so long and no longer.

use std::io;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It does not start.
    #[error(transparent)]
    Start(#[from] io::Error),
    /// It took too long, and has been ended.
    #[error("it took longer than {} s", .0.as_secs())]
    TooLong(Duration),
}

/// What it answers.
pub fn ask(program: &Path, arguments: &[&str], patience: Duration) -> Result<Output, Failure> {
    run(Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()), patience)
}

/// Has it do something. What it says of it, and how far it is, is passed on to standard error.
pub fn order(program: &Path, arguments: &[&str], patience: Duration) -> Result<Output, Failure> {
    run(Command::new(program).args(arguments).stdout(Stdio::null()), patience)
}

/// It fetches by another program, which asks the kernel to be ended with it: systemd-pull then removes what it has begun.
fn run(command: &mut Command, patience: Duration) -> Result<Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let output = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?.wait_with_output();
        Ok(tokio::time::timeout(patience, output).await.map_err(|_| Failure::TooLong(patience))??)
    })
}
