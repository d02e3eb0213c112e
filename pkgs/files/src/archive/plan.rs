//! The content of an archive. All of it is looked up before anything is sent, so that a directory that is too large is
//! refused, and later changes are noticed.
//!
//! An archive contains what its client could get file by file. It has hidden names only if they are served, and files
//! behind symbolic links only if the links are followed. It leaves out links to directories, everything that rules
//! redirect, and everything that requires a password, a signature or a referrer which the directory itself does not
//! require.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, StatxFlags, statx};
use rustix::io::Errno;

use super::name;
use super::permit::Permit;
use crate::site::Site;
use crate::site::access::AccessControl;
use crate::site::root::{self, FileIdentity, LookupMode};
use crate::site::rules::archive::ArchiveFormat;
use crate::threads::health;

/// The most bytes of all paths in an archive.
const MAX_PATH_BYTES: usize = 16 << 20;

/// A request for an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveRequest {
    /// The directory below the root, with its final slash.
    pub path: Vec<u8>,
    /// The format.
    pub format: ArchiveFormat,
    /// The most entries.
    pub max_entries: u32,
    /// The most bytes of all files together.
    pub max_bytes: u64,
}

/// The content of an archive.
#[derive(Debug)]
pub struct ArchivePlan {
    /// The request.
    pub request: ArchiveRequest,
    /// Directories before their content, sorted by name.
    pub entries: Vec<PlannedEntry>,
    /// One of the permits for archives.
    _permit: Permit,
}

/// One entry.
#[derive(Debug)]
pub struct PlannedEntry {
    /// The path below the root; a directory's ends with a slash.
    pub path: Vec<u8>,
    /// The file's state; none for a directory.
    pub identity: Option<FileIdentity>,
}

/// Why there is no archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It would exceed the limits of the rules.
    #[error("the directory has more than its rule allows in an archive")]
    TooLarge,
    /// Too many archives are being made.
    #[error("too many archives at once")]
    Busy,
    /// Something below the directory cannot be read.
    #[error(transparent)]
    Failed(#[from] root::Error),
}

impl From<Errno> for PlanError {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

impl ArchivePlan {
    /// Looks up everything. Waits for the disk.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn make(site: &Arc<Site>, request: ArchiveRequest, permit: Permit) -> Result<Self, PlanError> {
        let mut plan = Self { request, entries: Vec::new(), _permit: permit };
        let own = site.access_to(&[&plan.request.path]);
        let (mut bytes, mut path_bytes) = (0_u64, 0_usize);
        let mut directories = vec![plan.request.path.clone()];
        while let Some(path) = directories.pop() {
            // Deleted meanwhile, or unreadable: left out, as in a listing.
            let directory = match site.root.directory(&path, LookupMode::MayBlock) {
                Ok(directory) => directory,
                Err(root::Error::Missing | root::Error::Denied) if path != plan.request.path => continue,
                Err(error) => return Err(error.into()),
            };
            plan.add(PlannedEntry { path: path.clone(), identity: None })?;
            let mut names = Vec::new();
            for found in Dir::read_from(&directory)? {
                health::progressed();
                let found = found?;
                let name = found.file_name();
                let is_hidden = !site.hidden && name.to_bytes().starts_with(b".");
                if is_hidden || name == c"." || name == c".." {
                    continue;
                }
                if names.len() + plan.entries.len() >= plan.request.max_entries as usize {
                    return Err(PlanError::TooLarge);
                }
                names.push(name.to_owned());
            }
            names.sort_unstable();
            let mut below = Vec::new();
            for name in names {
                health::progressed();
                let mut entry = [&path[..], name.to_bytes()].concat();
                path_bytes += entry.len() + 1;
                if path_bytes > MAX_PATH_BYTES {
                    return Err(PlanError::TooLarge);
                }
                match kind_of(&directory, &name) {
                    Some(FileType::Directory) => {
                        entry.push(b'/');
                        if is_open(site, &entry, own.as_deref()) {
                            below.push(entry);
                        }
                    }
                    Some(FileType::RegularFile | FileType::Symlink) => {
                        if !is_open(site, &entry, own.as_deref()) {
                            continue;
                        }
                        match site.root.file(&entry, LookupMode::MayBlock) {
                            Ok(opened) => {
                                bytes = bytes.saturating_add(opened.identity.size);
                                if bytes > plan.request.max_bytes {
                                    return Err(PlanError::TooLarge);
                                }
                                plan.add(PlannedEntry { path: entry, identity: Some(opened.identity) })?;
                            }
                            Err(root::Error::Missing | root::Error::Denied) => {}
                            Err(error) => return Err(error.into()),
                        }
                    }
                    _ => {}
                }
            }
            // The last is taken first.
            directories.extend(below.into_iter().rev());
        }
        Ok(plan)
    }

    fn add(&mut self, entry: PlannedEntry) -> Result<(), PlanError> {
        if self.entries.len() >= self.request.max_entries as usize {
            return Err(PlanError::TooLarge);
        }
        self.entries.push(entry);
        Ok(())
    }

    /// An entry's name: the directory's own name, followed by the path below it.
    pub fn name_of(&self, entry: &PlannedEntry) -> String {
        let below = &entry.path[self.request.path.len()..];
        let parts = below.split(|byte| *byte == b'/').map(name::escape);
        std::iter::once(name::of_directory(&self.request.path)).chain(parts).collect::<Vec<_>>().join("/")
    }
}

fn kind_of(directory: impl AsFd, name: &CStr) -> Option<FileType> {
    let stat = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE).ok()?;
    Some(FileType::from_raw_mode(u32::from(stat.stx_mode)))
}

/// Whether a client that may access what `own` protects may also access this path.
fn is_open(site: &Site, path: &[u8], own: Option<&AccessControl>) -> bool {
    let is_let_in = match site.access_to(&[path]) {
        None => true,
        Some(access) => own.is_some_and(|own| own.covers(&access)),
    };
    is_let_in && (!site.routes() || site.route(path, None).is_direct(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::permit::Permits;
    use crate::listing::writer::tests::{place_of, site};
    use crate::threads::health::tests::is_progress;

    #[test]
    fn each_name_is_progress() {
        let place = place_of(["a"].into_iter(), |_| String::new());
        let site = Arc::new(site(place.path()));
        let (format, max_entries, max_bytes) = (ArchiveFormat::Zip, 10, 10);
        let request = ArchiveRequest { path: Vec::new(), format, max_entries, max_bytes };
        let permit = Permits::default().take().expect("a permit");
        let mut plan = None;
        assert!(is_progress(|| plan = ArchivePlan::make(&site, request, permit).ok()));
        assert_eq!(plan.expect("a plan").entries.len(), 2);
    }
}
