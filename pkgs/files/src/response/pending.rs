//! The work that an answer waits for. Other threads do it while the worker continues.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::archive::plan::{ArchivePlan, ArchiveRequest, PlanError};
use crate::auth::{PasswordAttempt, PasswordVerdict};
use crate::http::encoding::Coding;
use crate::site::Site;
use crate::site::lookup::Lookup;
use crate::site::root::{Error, FileIdentity, Found, LookupMode};
use crate::site::secrets::Realm;

/// How often one request may wait, since a result may be forgotten before it is used.
pub const MAX_PENDING: u8 = 16;

/// What has to be done before there is an answer.
#[derive(Debug)]
pub enum PendingWork {
    /// Ask the disk or the origin what a path names.
    Lookup(Lookup),
    /// Make an encoding of a file.
    Encode {
        /// The file.
        fd: Arc<OwnedFd>,
        /// Its state.
        identity: FileIdentity,
        /// The encoding.
        coding: Coding,
    },
    /// Find out the content of an archive.
    PlanArchive(Box<ArchiveRequest>),
    /// Check a password.
    Password(Box<PasswordAttempt>),
}

/// The result of such work.
#[derive(Debug)]
pub enum WorkOutcome {
    /// What a path names.
    Found(Vec<u8>, Result<Found, Error>),
    /// There is an encoding, or there won't be one.
    Encoded,
    /// The content of an archive.
    Archive(Result<Box<ArchivePlan>, PlanError>),
    /// The verdict on a password.
    Password(Arc<Realm>, PasswordVerdict),
}

/// What a request keeps while it waits for something else as well. Without it, the request would ask for it again and
/// again.
#[derive(Debug, Default)]
pub struct Resumed {
    /// The verdict on its password, and the realm.
    pub checked: Option<(Arc<Realm>, PasswordVerdict)>,
    /// Whether a file is sent as it is while there is no encoding of it yet.
    pub unencoded: bool,
}

impl PendingWork {
    /// Does it at once if the kernel has everything it needs in memory. Otherwise gives it back, and says whether there
    /// were too few file descriptors.
    pub fn at_once(self, site: &Site) -> Result<WorkOutcome, (Self, bool)> {
        match self {
            Self::Lookup(lookup) => match lookup.find(site, LookupMode::CachedOnly) {
                (_, Err(error @ (Error::Cold | Error::Exhausted))) => {
                    Err((Self::Lookup(lookup), error == Error::Exhausted))
                }
                (path, found) => Ok(WorkOutcome::Found(path.unwrap_or_else(|| lookup.into_asked()), found)),
            },
            // The rest takes long; passwords do on purpose.
            other => Err((other, false)),
        }
    }
}
