//! Runs systemd-sysupdate(8), which downloads, checks signatures and writes, and waits for it for a limited time.

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

/// Its answer to a query.
pub fn ask(program: &Path, arguments: &[&str], patience: Duration) -> Result<Output, Failure> {
    run(Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()), patience)
}

/// Makes it do something. Its messages and progress are passed on to standard error.
pub fn order(program: &Path, arguments: &[&str], patience: Duration) -> Result<Output, Failure> {
    run(Command::new(program).args(arguments).stdout(Stdio::null()), patience)
}

/// It downloads with another program, which asks the kernel to end it together with its parent: systemd-pull then
/// removes what it has begun.
fn run(command: &mut Command, patience: Duration) -> Result<Output, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let output = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?.wait_with_output();
        Ok(tokio::time::timeout(patience, output).await.map_err(|_| Failure::TooLong(patience))??)
    })
}
