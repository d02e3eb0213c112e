//! What is said to systemd. It hears one process of a unit, the main one (`NotifyAccess=main`), and logs what another says:
//! so a process that [takes over](crate::handover) is silent until it is that, and one that was taken over from is from then
//! on.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use sd_notify::NotifyState;

/// Whether this process is the one that systemd hears.
static TURN: Mutex<Turn> = Mutex::new(Turn::Now);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It will be, once it has taken over.
    Later,
    /// It is; so is any process that has taken over from nobody.
    Now,
    /// It was.
    Over,
}

fn turn() -> MutexGuard<'static, Turn> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says this, with these descriptors; nothing where there is no systemd, or where this process is not the one it hears.
///
/// # Errors
/// Those of the socket.
pub(crate) fn notify(states: &[NotifyState<'_>], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    // Held meanwhile, so that nothing is said behind what says that another process is the main one.
    match *turn() {
        Turn::Now if fds.is_empty() => sd_notify::notify(states),
        Turn::Now => sd_notify::notify_with_fds(states, fds),
        Turn::Later | Turn::Over => Ok(()),
    }
}

/// Whether what this process says is heard.
pub(crate) fn hears() -> bool {
    *turn() == Turn::Now
}

/// Another process is heard until this one has taken over.
pub(crate) fn wait() {
    *turn() = Turn::Later;
}

/// This process has taken over.
pub(crate) fn begin() {
    *turn() = Turn::Now;
}

/// Tells that another process is the main one from here on, where that is known and of the same unit; nothing is said
/// behind that.
///
/// # Errors
/// Those of the socket: this process is still the main one then.
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

/// Whether a process is known to be of another unit, as one that was started by hand is, which systemd would refuse.
fn is_elsewhere(process: u32) -> bool {
    let groups = |of: &str| std::fs::read(format!("/proc/{of}/cgroup"));
    // A user namespace of its own hides it (`PrivateUsers=` with `ProtectProc=`).
    matches!((groups("self"), groups(&process.to_string())), (Ok(own), Ok(other)) if own != other)
}
