//! Messages to systemd. It accepts them only from a unit's main process (`NotifyAccess=main`), and logs those of other
//! processes. So a process that [takes over](crate::handover) sends nothing until it is the main process, and the
//! process before it sends nothing afterwards.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use sd_notify::NotifyState;

/// Whether systemd accepts this process's messages.
static TURN: Mutex<Turn> = Mutex::new(Turn::Now);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Not yet: this process has to take over first.
    Later,
    /// Yes. Also the state of a process that has taken over from none.
    Now,
    /// No longer.
    Over,
}

fn turn() -> MutexGuard<'static, Turn> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends these states, with these descriptors. Does nothing without systemd, or if systemd does not accept this
/// process's messages.
///
/// # Errors
/// Those of the socket.
pub(crate) fn notify(states: &[NotifyState<'_>], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    // The lock is held while sending, so that no message follows the one that names another main process.
    match *turn() {
        Turn::Now if fds.is_empty() => sd_notify::notify(states),
        Turn::Now => sd_notify::notify_with_fds(states, fds),
        Turn::Later | Turn::Over => Ok(()),
    }
}

/// Whether systemd accepts this process's messages.
pub(crate) fn hears() -> bool {
    *turn() == Turn::Now
}

/// Sends nothing from here on, until this process has taken over.
pub(crate) fn wait() {
    *turn() = Turn::Later;
}

/// Records that this process has taken over.
pub(crate) fn begin() {
    *turn() = Turn::Now;
}

/// Tells systemd that `process` is the main one from here on, if it is known and belongs to the same unit. Nothing is
/// sent afterwards.
///
/// # Errors
/// Those of the socket. This process then stays the main one.
pub(crate) fn follow(process: Option<Pid>) -> io::Result<()> {
    let mut turn = turn();
    if *turn == Turn::Now
        && let Some(process) = process.and_then(|process| u32::try_from(process.as_raw_nonzero().get()).ok())
        && !is_elsewhere(process)
    {
        sd_notify::notify(&[NotifyState::MainPid(process)])?;
    }
    *turn = Turn::Over;
    Ok(())
}

/// Whether a process is known to belong to another unit, such as one started by hand. systemd would refuse it.
fn is_elsewhere(process: u32) -> bool {
    let groups = |of: &str| std::fs::read(format!("/proc/{of}/cgroup"));
    // A user namespace can hide it (`PrivateUsers=` with `ProtectProc=`).
    matches!((groups("self"), groups(&process.to_string())), (Ok(own), Ok(other)) if own != other)
}
