//! What an answer has to wait for: done by threads of their own, while the worker goes on with others.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use service::panics;

use crate::front::Front;
use crate::guard::{Tried, Try};
use crate::http::encoding::Coding;
use crate::site::Site;
use crate::site::gate::Realm;
use crate::site::root::{Error, Found, Identity, Patience};

/// The most that one request waits for, one after the other: what is found may be forgotten again before it is used.
pub const MAX_WAITS: u8 = 16;

/// What has to be done before there is an answer.
#[derive(Debug)]
pub enum Wait {
    /// The disk has to be asked what this path names.
    Find(Vec<u8>),
    /// The same of several, up to the first that there is for what was asked.
    First {
        /// The paths.
        paths: Vec<Vec<u8>>,
        /// What was asked for.
        asked: Vec<u8>,
    },
    /// A coding of a file has to be made.
    Code {
        /// The file.
        fd: Arc<OwnedFd>,
        /// Its state.
        identity: Identity,
        /// Which.
        coding: Coding,
    },
    /// A password has to be tried.
    Try(Box<Try>),
}

/// What came of it.
#[derive(Debug)]
pub enum Waited {
    /// What a path names.
    Found(Vec<u8>, Result<Found, Error>),
    /// A coding is there, or will not be.
    Coded,
    /// What became of a password.
    Tried(Arc<Realm>, Tried),
}

impl Wait {
    /// What comes of it at once, where the kernel has in memory what it takes. Else it is given back, and whether there were
    /// too few file descriptors.
    pub fn at_once(self, site: &Site) -> Result<Waited, (Self, bool)> {
        let (path, found) = match &self {
            Self::Find(path) => (path.clone(), site.root.find(path, Patience::None)),
            Self::First { paths, asked } => site.first(paths.iter().cloned(), asked, Patience::None),
            // A password takes long on purpose.
            _ => return Err((self, false)),
        };
        match found {
            Err(error @ (Error::Cold | Error::Exhausted)) => Err((self, error == Error::Exhausted)),
            found => Ok(Waited::Found(path, found)),
        }
    }

    /// Has it done about `site`. `done` is called on the thread that did it, or at once.
    pub fn begin(self, front: &Front, site: Arc<Site>, done: impl FnOnce(Waited) + Send + 'static) {
        match self {
            Self::Find(path) => {
                front.disk.find(site, path, move |path, found| done(Waited::Found(path, found)));
            }
            Self::First { paths, asked } => front.disk.run(move |_| {
                let first = panics::catch(|| site.first(paths, &asked, Patience::Disk));
                let (path, found) = first.unwrap_or_else(|panic| {
                    panic.log("lookup", &String::from_utf8_lossy(&asked));
                    (asked.clone(), Err(Error::Failed(Errno::IO)))
                });
                done(Waited::Found(path, found));
            }),
            Self::Code { fd, identity, coding } => {
                front.variants.make(fd, identity, coding, move || done(Waited::Coded));
            }
            Self::Try(this) => {
                let realm = Arc::clone(&this.realm);
                front.guard.begin(*this, move |verdict| done(Waited::Tried(realm, verdict)));
            }
        }
    }
}
