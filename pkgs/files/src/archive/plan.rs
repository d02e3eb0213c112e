//! What is in an archive: looked up whole before anything is sent, so that what is too large is refused, and what changes
//! on the way is found out.
//!
//! An archive has what its client could have one by one: no hidden names where those are not served, links to files as far
//! as they are followed, none to directories, nothing that rules lead elsewhere, and nothing that takes a password, a
//! signature or a referrer which the directory itself does not take.

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

/// The most bytes of all paths of an archive.
const MAX_PATH_BYTES: usize = 16 << 20;

/// What is to be in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveRequest {
    /// The directory, below the root, with its final slash.
    pub path: Vec<u8>,
    /// As what.
    pub format: ArchiveFormat,
    /// The most entries.
    pub max_entries: u32,
    /// The most bytes of files together.
    pub max_bytes: u64,
}

/// What is in one.
#[derive(Debug)]
pub struct ArchivePlan {
    /// What was asked for.
    pub request: ArchiveRequest,
    /// Directories before what is in them, each in the order of names.
    pub entries: Vec<PlannedEntry>,
    /// That it is one of those that may be at once.
    _permit: Permit,
}

/// One entry.
#[derive(Debug)]
pub struct PlannedEntry {
    /// Below the root; of a directory with its final slash.
    pub path: Vec<u8>,
    /// The file as it was; none of a directory.
    pub identity: Option<FileIdentity>,
}

/// Why there is no archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// It would have more than rules allow.
    #[error("the directory has more than its rule allows in an archive")]
    TooLarge,
    /// As many as may be are being made.
    #[error("too many archives at once")]
    Busy,
    /// Something below the directory cannot be looked at.
    #[error(transparent)]
    Failed(#[from] root::Error),
}

impl From<Errno> for PlanError {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

impl ArchivePlan {
    /// Looks it all up. It waits for the disk.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn make(site: &Arc<Site>, request: ArchiveRequest, permit: Permit) -> Result<Self, PlanError> {
        let mut plan = Self { request, entries: Vec::new(), _permit: permit };
        let own = site.access_to(&[&plan.request.path]);
        let (mut bytes, mut path_bytes) = (0_u64, 0_usize);
        let mut directories = vec![plan.request.path.clone()];
        while let Some(path) = directories.pop() {
            // Gone meanwhile, or not to be read: as a listing, which shows none of that.
            let directory = match site.root.directory(&path, LookupMode::MayBlock) {
                Ok(directory) => directory,
                Err(root::Error::Missing | root::Error::Denied) if path != plan.request.path => continue,
                Err(error) => return Err(error.into()),
            };
            plan.add(PlannedEntry { path: path.clone(), identity: None })?;
            let mut names = Vec::new();
            for found in Dir::read_from(&directory)? {
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

    /// What an entry is called: the directory's own name, and what is below it.
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

/// Whether who may have what is behind `own` could ask for this path, too.
fn is_open(site: &Site, path: &[u8], own: Option<&AccessControl>) -> bool {
    let is_let_in = match site.access_to(&[path]) {
        None => true,
        Some(access) => own.is_some_and(|own| own.covers(&access)),
    };
    is_let_in && (!site.routes() || site.route(path, None).is_direct(path))
}
