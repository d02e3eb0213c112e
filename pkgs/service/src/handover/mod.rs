//! One process takes over from another: first its listening sockets, then its place. No connection is refused or lost.
//!
//! The new process asks the old one at a Unix socket, and receives its listening sockets (`SCM_RIGHTS`) with the
//! connections that wait in them. It starts on the same sockets, but accepts nothing yet. Once nothing can fail any
//! more, it [completes](Takeover::complete) the takeover: it puts its own socket at the old one's path, and tells the
//! old process to drain. Until then the old process serves as before. After that, no socket at which connections arrive
//! is closed: closing one of several on a port would reset the connections that wait in it.
//!
//! Every socket that listens by [`Address`](crate::socket::Address) takes part without further code.

mod about;
mod offer;
mod registry;
mod reload;
mod starter;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::{fs, io, thread};

use socket2::Socket;
use tokio::runtime::Runtime;

use crate::manager;
use crate::shutdown::Shutdown;
use offer::{End, Place};
pub(crate) use registry::is_left;
pub use registry::{
    Outcome, enabled, is_handed_over, offer, on_handed_over, outcome, take, take_all, tell, tell_later, told,
};
pub use reload::{Reload, ReloadError, wanted};
pub use wire::Error;

/// The name under which a stream to a draining process is handed over. Its other end learns that the serving process
/// has died, or has ended properly.
const BEFORE: &str = "process before";

/// The most draining processes whose streams are kept. If more drain at once, the streams of the oldest are closed, as
/// if the serving process had died.
const MAX_BEFORE: usize = 8;

/// Whether and where a process takes over from the one before it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct HandoverArgs {
    /// Takes over from the process that runs with the same PATH, a Unix socket that this process then replaces. This
    /// process gets the other's listening sockets and the other drains, so no connection is refused or lost. If nobody
    /// answers, starts as without the flag.
    #[arg(long, value_name = "PATH")]
    pub handover: Option<PathBuf>,
}

/// A takeover that has started.
#[must_use = "it is to be completed once nothing can fail any more"]
#[derive(Debug, Default)]
pub struct Takeover {
    place: Option<(PathBuf, &'static str)>,
    old: Option<Socket>,
}

impl Takeover {
    /// Asks the running process of the same `program` for its sockets, if there is one. Call this before listening on
    /// anything.
    ///
    /// # Errors
    /// When there is one but it does not hand over its sockets, or when no socket can be at the path.
    pub fn begin(args: &HandoverArgs, program: &'static str) -> Result<Self, Error> {
        let Some(path) = &args.handover else { return Ok(Self::default()) };
        is_place(path)?;
        let asked_for = starter::find().map_err(|error| Error::Place { path: path.clone(), error })?;
        let asked = wire::ask(path, wire::HELLO, program)?;
        let (old, items) = asked.unzip();
        if old.is_some() {
            tracing::info!(path = %path.display(), "a process that runs hands over its sockets");
            manager::wait();
        } else if asked_for {
            // The service manager starts a new process, or is about to.
            return Err(Error::Gone);
        }
        registry::enable(items.unwrap_or_default());
        Ok(Self { place: Some((path.clone(), program)), old })
    }

    /// Whether another process still serves.
    pub fn is_under_way(&self) -> bool {
        self.old.is_some()
    }

    /// Takes the place of the process that served until now. From here on that process drains, and this one answers the
    /// next process that asks. `shutdown` is triggered once the next process has taken over. Call this when nothing can
    /// fail any more and before accepting connections: this process may still end until this returns, so no client may
    /// depend on it.
    ///
    /// # Errors
    /// When the old process continues to serve, as it does if `shutdown` has been triggered already.
    pub fn complete(self, shutdown: &Shutdown) -> Result<(), Error> {
        let Some((path, program)) = self.place else { return Ok(()) };
        let failed = |error| Error::Place { path: path.clone(), error };
        // If this process was told to stop, it serves nobody, and the old one must go on.
        let is_wanted = || if shutdown.is_triggered() { Err(Error::Stopped) } else { Ok(()) };
        if let Some(old) = &self.old {
            is_wanted()?;
            wire::look(old)?;
        }
        // Started before the old process is told, so that nothing can fail afterwards.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (relieved, told) = channel();
        let offering = {
            let shutdown = shutdown.clone();
            move || {
                let Ok(place) = told.recv() else { return };
                offer_place(&runtime, place, program, &shutdown);
            }
        };
        thread::Builder::new().name("handover".into()).spawn(offering).map_err(failed)?;
        let place = Place::take(&path).map_err(failed)?;
        let mut before = take(BEFORE);
        let left = registry::close_the_rest();
        if let Some(old) = self.old {
            is_wanted()?;
            starter::commit();
            wire::relieve(&old, &left)?;
            manager::begin();
            registry::has_taken_over(left);
            before.insert(0, old.into());
            before.truncate(MAX_BEFORE);
            before.iter().for_each(|one| offer(BEFORE, one));
            // The processes before may drain to their end, unless this one dies.
            shutdown.on_stop(move || {
                for one in &before {
                    let _ = wire::send(one, wire::GOODBYE, None);
                }
            });
        }
        // The thread waits for this message alone.
        let _ = relieved.send(place);
        Ok(())
    }
}

/// Tells the process that [asked for this one](Reload) why no process can take over now, and that a fresh start can work
/// after the old process has ended. Call this before this process gives up. Does nothing in a process that no reload
/// started.
pub fn needs_a_start_anew(reason: &str) {
    starter::tell(&format!("{}{reason}", starter::ANEW));
}

/// Tells the process that [asked for this one](Reload) that this one serves.
pub(crate) fn tell_starter() {
    starter::tell(starter::SERVING);
}

/// Waits until another process takes over, or until this one stops anyway.
fn offer_place(runtime: &Runtime, place: Place, program: &str, shutdown: &Shutdown) {
    match runtime.block_on(place.offer(program, shutdown)) {
        End::HandedOver(next) => {
            shutdown.follow();
            if !runtime.block_on(next.ends_in_good_order()) {
                shutdown.is_followed_by_nobody();
            }
        }
        End::Stopped => registry::close(),
        End::Failed(error) => {
            registry::close();
            tracing::error!(%error, "no other process can take over from this one");
        }
    }
}

/// Whether a socket can be put at the path. Anything else there would be lost.
fn is_place(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::FileTypeExt;
    let failed = |error| Error::Place { path: path.to_owned(), error };
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(Error::NotSocket(path.to_owned())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => offer::beside(path).map(drop).map_err(failed),
    }
}
