//! The process that [asked for this one](super::Reload), which waits to hear what has become of it.
//!
//! It is there at the standard input, which no server reads from. Where it goes away before this process has taken over, as
//! when the service manager has waited long enough for it, this one ends: nobody would know of it.

use std::env;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Set for a process that is asked for.
pub(super) const ASKED_FOR: &str = "LINERATE_ASKED_FOR";

/// Said once it serves.
pub(super) const SERVING: &str = "serving";
/// Said before a reason for which only a start anew will do.
pub(super) const ANEW: &str = "anew ";

static STARTER: Mutex<Option<Starter>> = Mutex::new(None);

/// Who waits, until that is told.
#[derive(Debug)]
struct Starter {
    stream: UnixStream,
    /// Whether this process goes on without it.
    committed: bool,
}

fn starter() -> MutexGuard<'static, Option<Starter>> {
    STARTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds who has asked for this process; whether anybody has.
pub(super) fn find() -> io::Result<bool> {
    if env::var_os(ASKED_FOR).is_none() || starter().is_some() {
        return Ok(starter().is_some());
    }
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Closed with this process' end alone, it says that there was one.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut watched = stream.try_clone()?;
    *starter() = Some(Starter { stream, committed: false });
    thread::Builder::new().name("starter".into()).spawn(move || {
        // It says nothing: this is its end.
        let _ = watched.read(&mut [0]);
        if starter().as_ref().is_some_and(|starter| !starter.committed) {
            tracing::error!("who asked for this process waits no more: it ends");
            std::process::exit(1);
        }
    })?;
    Ok(true)
}

/// From here on this process serves, whoever waits for it.
pub(super) fn commit() {
    if let Some(starter) = &mut *starter() {
        starter.committed = true;
    }
}

/// Tells whoever has asked for this process, where anybody has, and forgets him.
pub(super) fn tell(word: &str) {
    if let Some(mut starter) = starter().take() {
        // Where he is gone, nobody needs to know.
        let _ = starter.stream.write_all(word.as_bytes());
        let _ = starter.stream.shutdown(std::net::Shutdown::Both);
    }
}
