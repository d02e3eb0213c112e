//! One process taking over from another: its listening sockets, and then its place, with no connection refused or lost.
//!
//! The new process asks the one that runs at a Unix socket, and is handed what that listens on (`SCM_RIGHTS`), with the
//! connections that wait there. It starts up beside it, on the same sockets, and lets nobody in yet. Once nothing is left
//! that could fail, it [completes](Takeover::complete) the takeover: its own socket is put in the place of the other's, and
//! the other is told to drain. Until then the old process serves as if nothing had been, and afterwards no socket is closed
//! that connections arrive at: closing one of several on a port would reset those that wait in it.
//!
//! What listens by [`Address`](crate::socket::Address) takes part by itself.

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
pub use registry::{
    Outcome, enabled, is_handed_over, offer, on_handed_over, outcome, take, take_all, tell, tell_later, told,
};
pub use reload::{Reload, ReloadError, wanted};
pub use wire::Error;

/// By what name the way to a process that drains goes over: its other end tells it that nobody serves any more, or that who
/// did has ended in good order.
const BEFORE: &str = "process before";

/// How many of them are told. Of more that drain at once, the oldest find out nothing but that they are told nothing.
const MAX_BEFORE: usize = 8;

/// Where a process asks the one before it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct HandoverArgs {
    /// Takes over from the process that runs with the same PATH, a Unix socket that is made there: this one gets its
    /// listening sockets, and that one drains, so that no connection is refused or lost. Where nobody answers, starts as
    /// without.
    #[arg(long, value_name = "PATH")]
    pub handover: Option<PathBuf>,
}

/// A takeover that has begun.
#[must_use = "it is to be completed once nothing can fail any more"]
#[derive(Debug, Default)]
pub struct Takeover {
    place: Option<(PathBuf, &'static str)>,
    old: Option<Socket>,
}

impl Takeover {
    /// Asks the process of the same `program` that runs for its sockets, where there is one. To be called before anything
    /// is listened on.
    ///
    /// # Errors
    /// When there is one, and it does not hand them over; or when the path is no place for a socket.
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
            // The service manager starts one itself, or is about to.
            return Err(Error::Gone);
        }
        registry::enable(items.unwrap_or_default());
        Ok(Self { place: Some((path.clone(), program)), old })
    }

    /// Whether there is a process that still serves.
    pub fn is_under_way(&self) -> bool {
        self.old.is_some()
    }

    /// Why no process may take over as things are, where one that is started once the other has ended may: who
    /// [asked for this one](Reload) sees to that. To be called before this one gives up.
    pub fn needs_a_start_anew(&self, reason: &str) {
        starter::tell(&format!("{}{reason}", starter::ANEW));
    }

    /// Takes the place of the process that ran until now, which drains from here on, and is there for the next to ask.
    /// `shutdown` is triggered once that has come. To be called when nothing can fail any more, and before anybody is let
    /// in: until this returns, nobody else is to have anything from this process that its end would take away.
    ///
    /// # Errors
    /// When the process that ran until now goes on serving.
    pub fn complete(self, shutdown: &Shutdown) -> Result<(), Error> {
        let Some((path, program)) = self.place else { return Ok(()) };
        let failed = |error| Error::Place { path: path.clone(), error };
        if let Some(old) = &self.old {
            wire::look(old)?;
        }
        // Before the other is told, so that there is nothing left to fail.
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
            starter::commit();
            wire::relieve(&old, &left)?;
            manager::begin();
            registry::has_taken_over(left);
            before.insert(0, old.into());
            before.truncate(MAX_BEFORE);
            before.iter().for_each(|one| offer(BEFORE, one));
            // They drain as long as they may, unless the one that serves is found to have died.
            shutdown.on_stop(move || {
                for one in &before {
                    let _ = wire::send(one, wire::GOODBYE, None);
                }
            });
        }
        // It waits for just that.
        let _ = relieved.send(place);
        Ok(())
    }
}

/// Tells whoever has [asked for this process](Reload) that it serves.
pub(crate) fn tell_starter() {
    starter::tell(starter::SERVING);
}

/// Waits for the process to come, or until this one is to stop anyway.
fn offer_place(runtime: &Runtime, place: Place, program: &str, shutdown: &Shutdown) {
    match runtime.block_on(place.offer(program, shutdown)) {
        End::HandedOver(next) => {
            tracing::info!("another process has taken over");
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

/// Whether a socket can be put there: what else is there would be lost.
fn is_place(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::FileTypeExt;
    let failed = |error| Error::Place { path: path.to_owned(), error };
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(Error::NotSocket(path.to_owned())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => offer::beside(path).map(drop).map_err(failed),
    }
}
