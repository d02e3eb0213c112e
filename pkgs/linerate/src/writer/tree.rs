//! The root, and the hidden directory in it where uploads are written.
//!
//! Each directory is opened with a single call that can't leave the root and follows no symbolic links (openat2(2)).
//! Operations on a name in it follow none either. A request fails if somebody swaps in a link meanwhile.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags,
};
use rustix::io::Errno;
use serde::Serialize;

use super::path::WritePath;

/// Where uploads are written, inside the root. Names that start with a dot aren't served, and requests can't name them
/// here either.
const STAGING: &str = ".linerate-uploads";

/// How deep directories are searched when adding up their sizes. Requests nest them half as deep.
const MOST_DEEP: usize = 64;

/// How directories are opened to be read.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The mode of uploaded files: everybody may read them, and nobody may execute them.
const FILE: Mode = Mode::from_raw_mode(0o644);
const DIRECTORY: Mode = Mode::from_raw_mode(0o755);

/// Why nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// Nothing has this name.
    #[error("there is no such file or directory")]
    Missing,
    /// Something already has this name.
    #[error("there is something by this name already")]
    Exists,
    /// The directory isn't empty.
    #[error("the directory is not empty")]
    NotEmpty,
    /// One of the two is a directory and the other isn't.
    #[error("one is a directory and the other is not")]
    Kind,
    /// It has directories in it that would be nested too deep.
    #[error("what is in the directory would be nested too deep")]
    Deep,
    /// There is a symbolic link or another file system on the path.
    #[error("a symbolic link or another file system is on the way")]
    Link,
    /// The writer has no permission.
    #[error("the writer may not write there")]
    Denied,
    /// The disk is full.
    #[error("there is no room left on the disk")]
    Full,
    /// Anything else.
    #[error("the disk failed: {0}")]
    Failed(Errno),
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::EXIST => Self::Exists,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::NOTDIR | Errno::ISDIR | Errno::INVAL => Self::Kind,
            Errno::LOOP | Errno::XDEV => Self::Link,
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::BUSY => Self::Denied,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::Full,
            errno => Self::Failed(errno),
        }
    }
}

/// The space used below the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    /// The lengths of all files, in bytes.
    pub(super) bytes: u64,
    /// The number of files, directories and everything else.
    pub(super) files: u64,
}

/// The root.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    staging: OwnedFd,
    /// Admits one rename at a time, so that two of them together don't nest directories too deep.
    renaming: Mutex<()>,
}

impl Tree {
    /// Opens the root, and locks its hidden directory for this process.
    ///
    /// # Errors
    /// When the root or the hidden directory isn't writable, or another process has locked it.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat(CWD, root, flags, Mode::empty())?;
        match fs::mkdirat(&root, STAGING, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let staging = fs::openat(&root, STAGING, flags | OFlags::NOFOLLOW, Mode::empty())?;
        let owner = fs::fstat(&staging)?.st_uid;
        if owner != rustix::process::geteuid().as_raw() {
            let why = format!("{STAGING} belongs to user {owner}, and not to the writer");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        fs::fchmod(&staging, Mode::RWXU)?;
        match fs::flock(&staging, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(io::Error::other("another writer has this root")),
            locked => Ok(locked.map(|()| Self { root, staging, renaming: Mutex::default() })?),
        }
    }

    /// Where uploads are written.
    pub(super) fn staging(&self) -> &OwnedFd {
        &self.staging
    }

    /// The directory that contains a path.
    fn above(&self, path: &WritePath) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        loop {
            match fs::openat2(&self.root, path.parent(), flags, Mode::empty(), resolve) {
                // After a concurrent rename, the kernel asks for another try (openat2(2)).
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return Ok(opened?),
            }
        }
    }

    /// Whether something with this name exists, in a directory that must exist.
    pub(super) fn has(&self, path: &WritePath) -> Result<bool, Error> {
        match fs::statat(self.above(path)?, path.name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a directory.
    pub(super) fn make_directory(&self, path: &WritePath) -> Result<(), Error> {
        let above = self.above(path)?;
        fs::mkdirat(&above, path.name(), DIRECTORY)?;
        Ok(fs::fsync(above)?)
    }

    /// Deletes a file, a symbolic link, or an empty directory.
    pub(super) fn delete(&self, path: &WritePath) -> Result<(), Error> {
        let above = self.above(path)?;
        let stat = fs::statat(&above, path.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        fs::unlinkat(&above, path.name(), flags)?;
        Ok(fs::fsync(above)?)
    }

    /// Renames a file or directory. Replaces an existing one only with `replace`. What is in a directory may be nested
    /// as deep as paths in requests: what is too deep for them can't be deleted, and in the end isn't counted.
    pub(super) fn rename(&self, from: &WritePath, to: &WritePath, replace: bool) -> Result<(), Error> {
        let _turn = self.renaming.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, new) = (self.above(from)?, self.above(to)?);
        if to.room() < from.room() && is_deeper(&old, from.name(), to.room())? {
            return Err(Error::Deep);
        }
        fs::renameat_with(&old, from.name(), &new, to.name(), over(replace))?;
        fs::fsync(new)?;
        Ok(fs::fsync(old)?)
    }

    /// Moves a complete upload into place. Everybody may read it, and nobody may execute it.
    pub(super) fn publish(&self, staged: &str, to: &WritePath, replace: bool) -> Result<(), Error> {
        let above = self.above(to)?;
        let file = fs::openat(
            &self.staging,
            staged,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        fs::fchmod(&file, FILE)?;
        fs::fsync(&file)?;
        fs::renameat_with(&self.staging, staged, &above, to.name(), over(replace))?;
        Ok(fs::fsync(above)?)
    }

    /// Adds up the sizes of all files, and stops after `most` of them.
    pub(super) fn usage(&self, most: u64) -> Result<Usage, Error> {
        let mut usage = Usage::default();
        walk(fs::openat(&self.root, ".", LISTED, Mode::empty())?, |place, name, depth| {
            if depth == 1 && name.to_bytes() == STAGING.as_bytes() {
                return Ok(Step::Over);
            }
            let stat = match fs::statat(place, name, AtFlags::SYMLINK_NOFOLLOW) {
                // It was deleted in the meantime.
                Err(Errno::NOENT) => return Ok(Step::Over),
                stat => stat?,
            };
            usage.files += 1;
            if usage.files > most {
                return Ok(Step::Out);
            }
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => usage.bytes += u64::try_from(stat.st_size).unwrap_or(0),
                FileType::Directory if depth < MOST_DEEP => return Ok(Step::Into),
                _ => {}
            }
            Ok(Step::Over)
        })?;
        Ok(usage)
    }
}

/// Whether a path below a directory has more than `most` names. What isn't a readable directory counts as empty.
fn is_deeper(above: &OwnedFd, name: &[u8], most: usize) -> Result<bool, Error> {
    let Ok(directory) = fs::openat(above, name, LISTED, Mode::empty()) else { return Ok(false) };
    let mut deeper = false;
    walk(directory, |_, _, depth| {
        deeper = depth > most;
        Ok(if deeper { Step::Out } else { Step::Into })
    })?;
    Ok(deeper)
}

/// Where a walk goes from an entry.
enum Step {
    /// Into it, if it is a directory that can be read; otherwise it counts as empty.
    Into,
    /// Past it.
    Over,
    /// Nowhere: the walk ends.
    Out,
}

/// Visits all entries below a directory: the directory that has it, its name, and how many names its path has.
fn walk(
    root: OwnedFd,
    mut visit: impl FnMut(BorrowedFd<'_>, &CStr, usize) -> Result<Step, Error>,
) -> Result<(), Error> {
    let mut open = vec![Dir::new(root)?];
    while let Some(directory) = open.last_mut() {
        let Some(entry) = directory.next() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let depth = open.len();
        let Some(directory) = open.last() else { break };
        let place = directory.fd()?;
        match visit(place, name, depth)? {
            Step::Into => {
                if let Ok(below) = fs::openat(place, name, LISTED, Mode::empty()) {
                    open.push(Dir::new(below)?);
                }
            }
            Step::Over => {}
            Step::Out => break,
        }
    }
    Ok(())
}

fn over(replace: bool) -> RenameFlags {
    if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_nests_nothing_deeper_than_paths_may_lead() {
        let root = tempfile::tempdir().expect("a directory");
        let tree = Tree::open(root.path()).expect("a root");
        let path = |escaped: &str| WritePath::new(escaped).expect("a path");
        let down = |names: usize| "/d".repeat(names);
        for (name, names) in [("a", 20), ("b", 12)] {
            std::fs::create_dir_all(root.path().join(format!("{name}{}", down(names)))).expect("a directory");
        }
        std::fs::write(root.path().join("file"), "").expect("a file");
        let rename = |from: &str, to: String| tree.rename(&path(from), &path(&to), false);
        // Of 33 names, and of 32.
        assert_eq!(rename("/a", format!("/b{}/a", down(11))), Err(Error::Deep));
        assert_eq!(rename("/a", format!("/b{}/a", down(10))), Ok(()));
        assert_eq!(rename("/b", "/c/b".to_owned()), Err(Error::Missing));
        assert_eq!(tree.make_directory(&path("/c")), Ok(()));
        assert_eq!(rename("/b", "/c/b".to_owned()), Err(Error::Deep));
        assert_eq!(rename("/b", "/e".to_owned()), Ok(()));
        assert_eq!(rename("/file", format!("/e{}/a{}/file", down(10), down(19))), Ok(()));
    }
}
