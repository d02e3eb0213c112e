//! The work that an answer waits for. Other threads do it while the worker continues.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::archive::plan::{ArchivePlan, ArchiveRequest, PlanError};
use crate::auth::{PasswordAttempt, PasswordVerdict};
use crate::http::encoding::Coding;
use crate::site::Site;
use crate::site::root::{CodingLookup, Error, FileIdentity, Found, LookupMode};
use crate::site::secrets::Realm;

/// How often one request may wait, since a result may be forgotten before it is used.
pub const MAX_PENDING: u8 = 16;

/// What has to be done before there is an answer.
#[derive(Debug)]
pub enum PendingWork {
    /// The disk has to be asked what this path names, and for which of its codings.
    Lookup(Vec<u8>, CodingLookup),
    /// The same of several, up to the first that there is for what was asked.
    LookupFirst {
        /// The paths.
        paths: Vec<Vec<u8>>,
        /// What was asked for.
        asked: Vec<u8>,
    },
    /// A coding of a file has to be made.
    Encode {
        /// The file.
        fd: Arc<OwnedFd>,
        /// Its state.
        identity: FileIdentity,
        /// Which.
        coding: Coding,
    },
    /// It has to be found out what is in an archive.
    PlanArchive(Box<ArchiveRequest>),
    /// A password has to be tried.
    Password(Box<PasswordAttempt>),
}

/// What came of it.
#[derive(Debug)]
pub enum WorkOutcome {
    /// What a path names.
    Found(Vec<u8>, Result<Found, Error>),
    /// A coding is there, or will not be.
    Encoded,
    /// What is in an archive.
    Archive(Result<Box<ArchivePlan>, PlanError>),
    /// What became of a password.
    Password(Arc<Realm>, PasswordVerdict),
}

impl PendingWork {
    /// What comes of it at once, where the kernel has in memory what it takes. Else it is given back, and whether there were
    /// too few file descriptors.
    pub fn at_once(self, site: &Site) -> Result<WorkOutcome, (Self, bool)> {
        let (path, found) = match &self {
            Self::Lookup(path, codings) => (path.clone(), site.find(path, LookupMode::CachedOnly, *codings)),
            Self::LookupFirst { paths, asked } => {
                site.first(paths.iter().cloned(), asked, LookupMode::CachedOnly)
            }
            // A password takes long on purpose.
            _ => return Err((self, false)),
        };
        match found {
            Err(error @ (Error::Cold | Error::Exhausted)) => Err((self, error == Error::Exhausted)),
            found => Ok(WorkOutcome::Found(path, found)),
        }
    }
}
