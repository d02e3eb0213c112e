//! Running uploads: their number, size, progress and expiry. All functions may wait for the disk.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::path::{PathError, WritePath};
use super::record::{self, Record, data};
use super::tree::{self, Tree, Usage};
use super::tus::Metadata;

/// How long a count of the files below the root stays valid.
const COUNTED: Duration = Duration::from_secs(30);

/// How many completed uploads are remembered, for clients that didn't receive the answer.
const REMEMBERED: usize = 256;

/// The limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest file, in bytes.
    pub file_bytes: u64,
    /// The most bytes of all files below the root together.
    pub bytes: u64,
    /// The most files and directories below the root.
    pub files: u64,
    /// The most running uploads.
    pub uploads: usize,
    /// How long an abandoned upload is kept.
    pub expire: Duration,
}

/// Why an upload isn't accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// Its path isn't allowed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The root doesn't allow it.
    #[error(transparent)]
    Tree(#[from] tree::Error),
    /// It is too large.
    #[error("a file has {0} bytes at most here")]
    Large(u64),
    /// All files together are too large.
    #[error("the files here may have {0} bytes together, which this would exceed")]
    Bytes(u64),
    /// There are too many files.
    #[error("there may be {0} files and directories here, and this would be one more")]
    Files(u64),
    /// There are too many uploads.
    #[error("{0} uploads are under way, and there may be no more: end one, or wait")]
    Busy(usize),
    /// There is no such upload.
    #[error("there is no such upload, or it was given up")]
    Unknown,
    /// The whole file doesn't match its checksum.
    #[error("what came has another SHA-256 than was said, and is thrown away: {0}")]
    Digest(String),
}

/// The lock on an upload's record. Only its holder may write to the upload.
type Slot = Arc<Turn<Record>>;

/// A held lock on an upload's record.
pub(super) type Held = OwnedMutexGuard<Record>;

/// All uploads.
#[derive(Debug)]
pub(super) struct Uploads {
    pub(super) tree: Tree,
    pub(super) limits: Limits,
    /// The uploads by ID. Their lengths, which never change, are also outside the locks.
    all: Mutex<HashMap<String, (u64, Slot)>>,
    /// The last count of the files below the root. Its lock admits one new upload at a time, so that two uploads can't
    /// both use the same free space.
    beginning: Mutex<Option<(Instant, Usage)>>,
}

/// An upload that is being written to. Bytes that aren't committed count as not received.
#[derive(Debug)]
pub(super) struct Writing {
    id: String,
    held: Held,
    file: File,
    hash: Sha256,
    /// How many bytes have been written.
    at: u64,
}

/// A completed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    /// Its path, escaped.
    pub(super) path: String,
    /// Its SHA-256, in hexadecimal digits.
    pub(super) sha256: String,
}

impl Uploads {
    /// The uploads of a root, including those that an earlier process left.
    ///
    /// # Errors
    /// When the root isn't writable.
    pub(super) fn open(root: &Path, limits: Limits) -> std::io::Result<Self> {
        let tree = Tree::open(root)?;
        let mut all = HashMap::new();
        for entry in Dir::read_from(tree.staging())? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Some((id, kind)) = name.rsplit_once('.') else { continue };
            let known = if kind == "json" { Record::load(tree.staging(), id) } else { None };
            match known {
                Some(mut record) => {
                    // The bytes are missing if they were moved into place but the process ended before it recorded
                    // that.
                    let bytes = fs::statat(tree.staging(), data(id), AtFlags::SYMLINK_NOFOLLOW);
                    record.done |= bytes.is_err();
                    all.insert(id.to_owned(), (record.length, Arc::new(Turn::new(record))));
                }
                None if kind == "data" && Record::load(tree.staging(), id).is_some() => {}
                None => drop(fs::unlinkat(tree.staging(), name, AtFlags::empty())),
            }
        }
        Ok(Self { tree, limits, all: Mutex::new(all), beginning: Mutex::new(None) })
    }

    /// Begins an upload, and returns its id.
    ///
    /// # Errors
    /// [`Error`].
    pub(super) fn begin(&self, metadata: &Metadata, length: u64, by: &str) -> Result<String, Error> {
        let Limits { file_bytes, bytes, files, uploads, .. } = self.limits;
        let path = WritePath::new(&metadata.path)?;
        if length > file_bytes {
            return Err(Error::Large(file_bytes));
        }
        if self.tree.has(&path)? && !metadata.replace {
            return Err(tree::Error::Exists.into());
        }
        self.sweep();
        let mut counted = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut under_way, mut promised) = (0, 0);
        for (length, slot) in self.all().values() {
            // A locked upload is being written to, so it is running, and its bytes aren't below the root yet.
            if !slot.try_lock().is_ok_and(|record| record.done) {
                under_way += 1;
                promised += *length;
            }
        }
        if under_way >= uploads {
            return Err(Error::Busy(uploads));
        }
        let used = self.usage_by(&mut counted)?;
        if used.bytes.saturating_add(promised).saturating_add(length) > bytes {
            return Err(Error::Bytes(bytes));
        }
        if used.files + under_way as u64 + 1 > files {
            return Err(Error::Files(files));
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| tree::Error::Failed(rustix::io::Errno::IO))?;
        let id = HEXLOWER.encode(&random);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(self.tree.staging(), data(&id), flags, Mode::RUSR | Mode::WUSR)
            .map_err(tree::Error::from)?;
        let record = Record {
            path: path.escaped(),
            length,
            sha256: metadata.sha256.clone(),
            replace: metadata.replace,
            by: by.to_owned(),
            expires: self.expires(),
            ..Record::default()
        };
        if let Err(error) = record.save(self.tree.staging(), &id) {
            self.forget(&id);
            return Err(error.into());
        }
        self.all().insert(id.clone(), (length, Arc::new(Turn::new(record))));
        Ok(id)
    }

    /// An upload by its ID. Its lock gives exclusive access.
    pub(super) fn get(&self, id: &str) -> Result<Slot, Error> {
        self.all().get(id).map(|(_, slot)| Arc::clone(slot)).ok_or(Error::Unknown)
    }

    /// The IDs and records of running uploads, except those that are being written to right now.
    pub(super) fn list(&self) -> Vec<(String, Record)> {
        let all = self.all();
        let known =
            all.iter().filter_map(|(id, (_, slot))| Some((id.clone(), slot.try_lock().ok()?.clone())));
        known.filter(|(_, record)| !record.done).collect()
    }

    /// Continues an upload.
    ///
    /// # Errors
    /// When its bytes can't be written.
    pub(super) fn resume(&self, id: &str, held: Held) -> Result<Writing, Error> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(self.tree.staging(), data(id), flags, Mode::empty());
        let file = File::from(file.map_err(tree::Error::from)?);
        let (hash, at) = (held.hash()?, held.offset);
        Ok(Writing { id: id.to_owned(), held, file, hash, at })
    }

    /// Completes an upload that has all of its bytes. Its file is then in place, or the error says why not.
    ///
    /// # Errors
    /// [`Error`]. After a problem with the target is fixed, the client can send the last piece again. An upload with
    /// wrong content is deleted.
    pub(super) fn publish(&self, mut writing: Writing) -> Result<(Published, Held), Error> {
        let sha256 = HEXLOWER.encode(&writing.hash.clone().finalize());
        if writing.held.sha256.as_ref().is_some_and(|expected| *expected != sha256) {
            self.all().remove(&writing.id);
            self.forget(&writing.id);
            return Err(Error::Digest(sha256));
        }
        // Remove bytes beyond the end, which an earlier try may have left.
        writing.file.set_len(writing.at).map_err(|error| record::io(&error))?;
        let path = WritePath::new(&writing.held.path)?;
        self.tree.publish(&data(&writing.id), &path, writing.held.replace)?;
        self.changed();
        writing.held.advance(writing.at, &writing.hash);
        writing.held.done = true;
        writing.held.expires = self.expires();
        // The file is in place. If that can't be recorded, the next process detects it.
        if let Err(error) = writing.held.save(self.tree.staging(), &writing.id) {
            tracing::warn!(%error, "what became of an upload is not written down");
        }
        Ok((Published { path: writing.held.path.clone(), sha256 }, writing.held))
    }

    /// Syncs everything written so far, so that it survives a crash of this process and a power cut.
    ///
    /// # Errors
    /// When the disk doesn't accept it.
    pub(super) fn commit(&self, writing: &mut Writing) -> Result<(), Error> {
        writing.file.sync_data().map_err(|error| record::io(&error))?;
        writing.held.advance(writing.at, &writing.hash);
        writing.held.expires = self.expires();
        Ok(writing.held.save(self.tree.staging(), &writing.id)?)
    }

    /// Cancels an upload.
    pub(super) fn end(&self, id: &str, held: Held) {
        self.all().remove(id);
        self.forget(id);
        drop(held);
    }

    /// Forgets expired uploads, and the oldest completed ones if there are too many.
    pub(super) fn sweep(&self) {
        let now = now();
        let mut all = self.all();
        let mut done = Vec::new();
        all.retain(|id, (_, slot)| {
            let Ok(record) = slot.try_lock() else { return true };
            if record.expires > now {
                if record.done {
                    done.push((record.expires, id.clone()));
                }
                return true;
            }
            self.forget(id);
            false
        });
        done.sort();
        let many = done.len().saturating_sub(REMEMBERED);
        for (_, id) in done.drain(..many) {
            all.remove(&id);
            self.forget(&id);
        }
    }

    /// The space and the number of files that are used below the root.
    ///
    /// # Errors
    /// When it can't be read.
    pub(super) fn usage(&self) -> Result<Usage, Error> {
        self.usage_by(&mut self.beginning.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Invalidates the last count.
    pub(super) fn changed(&self) {
        *self.beginning.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn usage_by(&self, counted: &mut Option<(Instant, Usage)>) -> Result<Usage, Error> {
        if let Some((at, usage)) = counted
            && at.elapsed() < COUNTED
        {
            return Ok(*usage);
        }
        let usage = self.tree.usage(self.limits.files)?;
        *counted = Some((Instant::now(), usage));
        Ok(usage)
    }

    /// Deletes an upload's files. The record goes first: at the next start, bytes without a record are deleted, while a
    /// record without bytes would count as a file that is in place.
    fn forget(&self, id: &str) {
        for name in [record::name(id), data(id)] {
            let _ = fs::unlinkat(self.tree.staging(), name, AtFlags::empty());
        }
    }

    fn expires(&self) -> u64 {
        now() + self.limits.expire.as_secs()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, (u64, Slot)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    /// Writes more bytes.
    ///
    /// # Errors
    /// When the disk doesn't accept it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, self.at).map_err(|error| record::io(&error))?;
        self.hash.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// How many bytes are still missing.
    pub(super) fn left(&self) -> u64 {
        self.held.length - self.at
    }

    /// Whether anything has been written since the last commit.
    pub(super) fn is_ahead(&self) -> bool {
        self.at > self.held.offset
    }

    /// Its locked record, to continue with it later.
    pub(super) fn into_held(self) -> Held {
        self.held
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_that_is_being_written_to_takes_no_more_room_than_its_length() {
        let root = tempfile::tempdir().expect("a directory");
        let expire = Duration::from_secs(60);
        let limits = Limits { file_bytes: 100, bytes: 100, files: 10, uploads: 3, expire };
        let uploads = Uploads::open(root.path(), limits).expect("a root");
        let begin = |path: &str, length| {
            uploads.begin(&Metadata { path: path.into(), ..Metadata::default() }, length, "ada")
        };
        let id = begin("/a", 10).expect("an upload");
        let held = uploads.get(&id).expect("an upload").try_lock_owned().expect("a lock");
        begin("/b", 1).expect("another upload");
        assert_eq!(begin("/c", 90), Err(Error::Bytes(100)));
        drop(held);
    }
}
