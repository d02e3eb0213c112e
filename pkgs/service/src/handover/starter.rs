//! The stream to the process that [asked for this one](super::Reload) and waits for the result.
//!
//! It is this process's standard input, which servers do not read. If the waiting process goes away before this one
//! has taken over, for instance because the service manager's timeout ended it, this process ends too, since nobody
//! would know of it.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Set for a process that a reload starts.
pub(super) const ASKED_FOR: &str = "LINERATE_ASKED_FOR";

/// Sent once it serves.
pub(super) const SERVING: &str = "serving";
/// Sent before the reason, if only a fresh start can help.
pub(super) const ANEW: &str = "anew ";

static STARTER: Mutex<Option<Starter>> = Mutex::new(None);

/// The waiting process, until it is told the result.
#[derive(Debug)]
struct Starter {
    stream: UnixStream,
    /// Whether this process continues without it.
    committed: bool,
}

fn starter() -> MutexGuard<'static, Option<Starter>> {
    STARTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the process that asked for this one. Returns whether there is one.
pub(super) fn find() -> io::Result<bool> {
    if env::var_os(ASKED_FOR).is_none() || starter().is_some() {
        return Ok(starter().is_some());
    }
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // The stream stays open until this process ends, so that its end is noticed.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut watched = stream.try_clone()?;
    *starter() = Some(Starter { stream, committed: false });
    thread::Builder::new().name("starter".into()).spawn(move || {
        // It sends nothing, so a return means that it has ended.
        let _ = watched.read(&mut [0]);
        if starter().as_ref().is_some_and(|starter| !starter.committed) {
            tracing::error!("who asked for this process waits no more: it ends");
            std::process::exit(1);
        }
    })?;
    Ok(true)
}

/// From here on this process serves, whether anybody waits or not.
pub(super) fn commit() {
    if let Some(starter) = &mut *starter() {
        starter.committed = true;
    }
}

/// Tells the result to the waiting process, if there is one, and closes the stream.
pub(super) fn tell(word: &str) {
    if let Some(mut starter) = starter().take() {
        // If it is gone, nobody needs the result.
        let _ = starter.stream.write_all(word.as_bytes());
        let _ = starter.stream.shutdown(std::net::Shutdown::Both);
    }
}
