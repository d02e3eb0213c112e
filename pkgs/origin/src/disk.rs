//! The cache directory: names, files, and what is found there at the start.
//!
//! Each version of an object has two files, named by the SHA-256 of bucket, key, ETag and size. `NAME.data` has its
//! bytes, and is sparse until they are complete. `NAME.meta` has a line with a digest, a line of JSON, and a byte per
//! block, which becomes `x` when the block is written. It is written under another name and renamed, so that it either
//! exists completely or not at all. The bytes for blocks are then written in place, with one call each, after the block
//! itself.
//!
//! If the process is killed, the kernel still has everything it wrote, so all of it counts. After a power cut it may
//! not: complete objects were synced before they were marked complete, but incomplete ones count only during the boot
//! in which they were written.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;
use rustix::fs::{
    AtFlags, FlockOperation, MemfdFlags, Mode, OFlags, ResolveFlags, StatxFlags, Timespec, Timestamps,
    fdatasync, flock, fstat, ftruncate, futimens, memfd_create, openat, openat2, renameat, statat, statx,
    unlinkat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwrite};

use crate::blocks::{self, Blocks};
use crate::metadata::Metadata;

/// The start of the first line of a `.meta`. Another layout has another number.
const MAGIC: &str = "linerate-origin 1";

/// Locked by the process that owns the directory.
const LOCK: &str = "lock";

/// The longest `.meta`, in bytes. 1 MiB of marks, one byte per block, is enough for an object of a tebibyte.
const MAX_META_BYTES: u64 = (1 << 20) + (64 << 10);

/// The type of tmpfs (linux/magic.h).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The smallest space that a file takes: a block of the file system. Each object has two files.
pub const FILE_BYTES: u64 = 4096;

/// Stands in place of a boot's id if the bytes were synced, so that the boot doesn't matter.
const SYNCED: &str = "synced";

/// The directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    lock: OwnedFd,
    boot: String,
}

/// The files of an object.
#[derive(Debug)]
pub struct Files {
    /// Its bytes.
    pub data: OwnedFd,
    /// Where blocks are marked; none if all of them are in the file.
    pub marks: Option<Marks>,
}

/// Where blocks are marked.
#[derive(Debug)]
pub struct Marks {
    fd: OwnedFd,
    /// The offset of the first block's byte.
    start: u64,
}

/// An object that was found at the start.
#[derive(Debug)]
pub struct Found {
    /// Its metadata.
    pub metadata: Metadata,
    /// Bytes on the disk.
    pub bytes: u64,
    /// When the origin last confirmed that it is current.
    pub checked: SystemTime,
}

/// The content of a `.meta`.
struct Meta {
    metadata: Metadata,
    blocks: Blocks,
    start: u64,
    counts: bool,
}

impl Directory {
    /// Opens the directory, and creates it if it is missing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(rustix::fs::CWD, path, flags, Mode::empty())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let lock = openat(&fd, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self { path: path.to_owned(), fd, lock, boot: boot() })
    }

    /// Whether this process owns the directory from now on. It doesn't until the previous process has ended.
    pub fn claim(&self) -> bool {
        flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Creates the files of an object, without any of its blocks.
    ///
    /// # Errors
    /// The kernel's. Then nothing is left behind.
    pub fn create(&self, name: &str, metadata: &Metadata) -> io::Result<Files> {
        let make = || -> io::Result<Files> {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
            // Removes an old file of this name, since another process may have it open.
            let _ = self.unlink(&data_of(name));
            let data = openat(&self.fd, data_of(name), flags, Mode::RUSR | Mode::WUSR)?;
            ftruncate(&data, metadata.size)?;
            let blocks = blocks::count(metadata.size).ok_or(Errno::FBIG)?;
            let marks = (blocks > 0).then(|| vec![b'.'; blocks as usize]);
            let state = if blocks == 0 { SYNCED } else { &self.boot };
            let written = self.write_meta(name, metadata, state, marks.as_deref().unwrap_or_default())?;
            Ok(Files { data, marks: marks.map(|_| written) })
        };
        make().inspect_err(|_| self.remove(name))
    }

    /// Records that all bytes of an object are in its file and have been synced.
    ///
    /// # Errors
    /// The kernel's. The bytes then still count until the machine loses power. `NotFound` if another file has the name:
    /// another process that used the directory may have evicted the object and fetched a part of it anew.
    pub fn finish(&self, name: &str, metadata: &Metadata, data: &OwnedFd) -> io::Result<()> {
        let named = statat(&self.fd, data_of(name), AtFlags::SYMLINK_NOFOLLOW)?;
        let open = fstat(data)?;
        if (named.st_dev, named.st_ino) != (open.st_dev, open.st_ino) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let blocks = blocks::count(metadata.size).unwrap_or(0);
        self.write_meta(name, metadata, SYNCED, &vec![b'x'; blocks as usize])?;
        Ok(())
    }

    fn write_meta(&self, name: &str, metadata: &Metadata, state: &str, marks: &[u8]) -> io::Result<Marks> {
        let json = serde_json::to_string(metadata)?;
        let mut text = format!("{MAGIC} {} {state}\n{json}\n", sum(state, &json)).into_bytes();
        let start = text.len() as u64;
        text.extend_from_slice(marks);
        let aside = format!("{name}.{}.new", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let write = || -> io::Result<OwnedFd> {
            let fd = openat(&self.fd, &aside, flags, Mode::RUSR | Mode::WUSR)?;
            write_all(&fd, &text, 0)?;
            renameat(&self.fd, &aside, &self.fd, meta_of(name))?;
            Ok(fd)
        };
        let fd = write().inspect_err(|_| {
            let _ = self.unlink(&aside);
        })?;
        Ok(Marks { fd, start })
    }

    /// Opens the files of an object in the catalogue. Without `wait`, it is an error of kind `WouldBlock` if the kernel
    /// doesn't have something in memory.
    ///
    /// # Errors
    /// The kernel's, or `InvalidData` if the files don't belong to this object.
    pub fn reopen(&self, name: &str, metadata: &Metadata, wait: bool) -> io::Result<(Files, Blocks)> {
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | if wait { ResolveFlags::empty() } else { ResolveFlags::CACHED };
        let open =
            |name: String, flags| openat2(&self.fd, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        let meta_fd = open(meta_of(name), OFlags::RDWR)?;
        let meta = self.parse(&read_all(&meta_fd, wait)?).ok_or(io::ErrorKind::InvalidData)?;
        if meta.metadata != *metadata || !meta.counts {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let is_whole = meta.blocks.is_whole();
        let data = open(data_of(name), if is_whole { OFlags::RDONLY } else { OFlags::RDWR })?;
        if fstat(&data)?.st_size as u64 != metadata.size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let marks = (!is_whole).then_some(Marks { fd: meta_fd, start: meta.start });
        Ok((Files { data, marks }, meta.blocks))
    }

    /// Makes a file without a name and content, but with the size of an object that isn't stored.
    ///
    /// # Errors
    /// The kernel's.
    pub fn anonymous(metadata: &Metadata) -> io::Result<OwnedFd> {
        let fd = memfd_create("origin", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, metadata.size)?;
        Ok(fd)
    }

    /// Removes the files of an object. Processes that have them open can still read them.
    pub fn remove(&self, name: &str) {
        // The bytes go last. If only they remain, the next start finds them without a `.meta`, and removes them.
        for file in [meta_of(name), data_of(name)] {
            if let Err(errno) = self.unlink(&file)
                && errno != Errno::NOENT
            {
                tracing::warn!(file = %self.path.join(file).display(), %errno, "a file of the cache stays");
            }
        }
    }

    fn unlink(&self, file: &str) -> Result<(), Errno> {
        unlinkat(&self.fd, file, AtFlags::empty())
    }

    /// Records that the origin has confirmed an object.
    pub fn touch(&self, name: &str) {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let opened = openat(&self.fd, meta_of(name), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        // If this fails, a later process takes the object for older than it is.
        let _ = opened.and_then(|fd| futimens(fd, &times));
    }

    /// The objects in the directory, the least recently confirmed first. If this is the only process, removes
    /// everything that isn't a valid object of this bucket.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn scan(&self, bucket: &str, alone: bool) -> io::Result<Vec<Found>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let file = entry.file_name();
            let Some((name, kind)) = split(&file) else { continue };
            let beside = |other: String| self.path.join(other).symlink_metadata().ok();
            let taken = match kind {
                Kind::Meta => self.found(name, &entry.path(), bucket, beside(data_of(name))),
                Kind::Data if beside(meta_of(name)).is_some() => continue,
                Kind::Data | Kind::New => None,
            };
            match taken {
                Some(object) => found.push(object),
                None if !alone => {}
                None if kind == Kind::New => drop(fs::remove_file(entry.path())),
                None => self.remove(name),
            }
        }
        found.sort_by_key(|object| object.checked);
        Ok(found)
    }

    fn found(&self, name: &str, path: &Path, bucket: &str, data: Option<fs::Metadata>) -> Option<Found> {
        let data = data.filter(fs::Metadata::is_file)?;
        let fd = OwnedFd::from(fs::File::open(path).ok()?);
        let checked = fstat(&fd).ok()?;
        let meta = self.parse(&read_all(&fd, true).ok()?)?;
        let fits = meta.counts && data.len() == meta.metadata.size && meta.metadata.name(bucket) == name;
        let seconds = u64::try_from(checked.st_mtime).unwrap_or(0);
        let checked = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        // The file system counts in units of 512 bytes.
        let bytes = (data.blocks() * 512).max(FILE_BYTES) + FILE_BYTES;
        fits.then_some(Found { metadata: meta.metadata, bytes, checked })
    }

    /// Removes the files of objects with unknown names, once this process owns the directory.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn sweep(&self, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
        let own = format!(".{}.new", std::process::id());
        for entry in fs::read_dir(&self.path)? {
            let file = entry?.file_name();
            match split(&file) {
                Some((_, Kind::New)) if !file.as_bytes().ends_with(own.as_bytes()) => {
                    let _ = fs::remove_file(self.path.join(&file));
                }
                Some((name, Kind::Meta | Kind::Data)) if !is_known(name) => self.remove(name),
                _ => {}
            }
        }
        Ok(())
    }

    fn parse(&self, bytes: &[u8]) -> Option<Meta> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let length = bytes[end + 1..].iter().position(|byte| *byte == b'\n')?;
        let first = std::str::from_utf8(&bytes[..end]).ok()?;
        let json = std::str::from_utf8(&bytes[end + 1..end + 1 + length]).ok()?;
        let (given, state) = first.strip_prefix(MAGIC)?.strip_prefix(' ')?.split_once(' ')?;
        if given != sum(state, json) {
            return None;
        }
        let metadata: Metadata = serde_json::from_str(json).ok()?;
        let start = end + 1 + length + 1;
        let marks = &bytes[start..];
        if marks.len() != blocks::count(metadata.size)? as usize {
            return None;
        }
        let blocks = Blocks::none(metadata.size);
        for (index, _) in (0..).zip(marks).filter(|(_, mark)| **mark == b'x') {
            blocks.add(index);
        }
        let counts = state == SYNCED || state == self.boot;
        Some(Meta { metadata, blocks, start: start as u64, counts })
    }
}

impl Files {
    /// Makes the bytes survive a power cut.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fdatasync(&self.data)?)
    }

    /// Writes a block, and then marks it as there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, index: u32, at: u64, bytes: &[u8]) -> io::Result<()> {
        write_all(&self.data, bytes, at)?;
        match &self.marks {
            Some(Marks { fd, start }) => write_all(fd, b"x", start + u64::from(index)),
            None => Ok(()),
        }
    }
}

/// An id that differs for each boot of the machine.
fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // systemd may hide the kernel's id from a service (`ProcSubset=pid`). If /run is in memory, each boot makes it
    // anew, so its creation time serves as the id.
    let made = || {
        let run = openat(rustix::fs::CWD, "/run", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let is_in_memory = rustix::fs::fstatfs(&run).ok()?.f_type as i64 == TMPFS_MAGIC;
        let state = statx(&run, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
        let is_told = state.stx_mask & StatxFlags::BTIME.bits() != 0;
        let made = (state.stx_btime.tv_sec, state.stx_btime.tv_nsec);
        (is_in_memory && is_told).then(|| format!("run-{}-{}", made.0, made.1))
    };
    let id = id.ok().map(|id| id.trim().to_owned()).or_else(made);
    // If neither is known, incomplete objects don't count for later processes.
    id.unwrap_or_else(|| service::request_id::RequestId::generate().to_string())
}

fn write_all(fd: &OwnedFd, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match pwrite(fd, &bytes[written..], at + written as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn read_all(fd: &OwnedFd, wait: bool) -> io::Result<Vec<u8>> {
    let length = u64::try_from(fstat(fd)?.st_size).unwrap_or(u64::MAX);
    if length > MAX_META_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let flags = if wait { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
    let mut bytes = vec![0; length as usize];
    let mut read = 0;
    while read < bytes.len() {
        match preadv2(fd, &mut [io::IoSliceMut::new(&mut bytes[read..])], read as u64, flags) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(Errno::INTR) => {}
            // If the kernel can't tell whether it would block, it may block.
            Err(Errno::OPNOTSUPP) if !wait => return Err(io::ErrorKind::WouldBlock.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// A digest that tells a `.meta` from arbitrary bytes on a disk.
fn sum(state: &str, json: &str) -> String {
    let digest = digest::digest(&digest::SHA256, format!("{state}\n{json}").as_bytes());
    HEXLOWER.encode(&digest.as_ref()[..16])
}

fn data_of(name: &str) -> String {
    format!("{name}.data")
}

fn meta_of(name: &str) -> String {
    format!("{name}.meta")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Meta,
    New,
}

/// The object's name in a file's name, and which of its files it is. None for files of others, which mustn't be
/// touched.
fn split(file: &OsStr) -> Option<(&str, Kind)> {
    let (name, rest) = file.to_str()?.split_once('.')?;
    let is_name = name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let kind = match rest {
        "data" => Kind::Data,
        "meta" => Kind::Meta,
        rest if rest.strip_suffix(".new")?.parse::<u32>().is_ok() => Kind::New,
        _ => return None,
    };
    is_name.then_some((name, kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    fn metadata(key: &str, size: u64) -> Metadata {
        Metadata {
            key: key.to_owned(),
            etag: "\"e\"".to_owned(),
            size,
            modified: 1,
            kind: None,
            fields: Vec::new(),
        }
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path)
            .expect("the directory")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a text"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn blocks_that_were_written_are_found_again() {
        let place = tempfile::tempdir().expect("a directory");
        let object = metadata("a", 3 * BLOCK_BYTES + 1);
        let name = object.name("b");
        {
            let directory = Directory::open(place.path()).expect("the directory");
            let files = directory.create(&name, &object).expect("room");
            files.write(1, BLOCK_BYTES, &vec![7; BLOCK_BYTES as usize]).expect("room");
        }
        let directory = Directory::open(place.path()).expect("the directory");
        let found = directory.scan("b", true).expect("the directory");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].metadata, object);
        assert!((BLOCK_BYTES..2 * BLOCK_BYTES).contains(&found[0].bytes), "{}", found[0].bytes);
        let (files, blocks) = directory.reopen(&name, &object, true).expect("the files");
        let there: Vec<u32> = (0..4).filter(|index| blocks.has(*index)).collect();
        assert_eq!(there, [1]);
        for index in [0, 2, 3] {
            let range = blocks::range(index, object.size);
            files.write(index, range.start, &vec![8; (range.end - range.start) as usize]).expect("room");
        }
        files.sync().expect("a disk");
        directory.finish(&name, &object, &files.data).expect("room");
        let (files, blocks) = directory.reopen(&name, &object, false).expect("it is in memory");
        assert!(blocks.is_whole() && files.marks.is_none());
    }

    #[test]
    fn a_file_is_not_whole_because_another_of_its_name_is() {
        let place = tempfile::tempdir().expect("a directory");
        let object = metadata("a", 5);
        let name = object.name("b");
        let directory = Directory::open(place.path()).expect("the directory");
        let files = directory.create(&name, &object).expect("room");
        // Another process evicts the object, and fetches it anew.
        directory.create(&name, &object).expect("room");
        files.write(0, 0, b"whole").expect("room");
        files.sync().expect("a disk");
        let finished = directory.finish(&name, &object, &files.data).map_err(|error| error.kind());
        assert_eq!(finished, Err(io::ErrorKind::NotFound));
        assert!(!directory.reopen(&name, &object, true).expect("the files").1.is_whole());
    }

    #[test]
    fn what_is_not_whole_counts_in_its_boot_alone() {
        let place = tempfile::tempdir().expect("a directory");
        let [part, whole] = ["part", "whole"].map(|key| metadata(key, 5));
        {
            let directory = Directory::open(place.path()).expect("the directory");
            directory.create(&part.name("b"), &part).expect("room");
            let files = directory.create(&whole.name("b"), &whole).expect("room");
            files.write(0, 0, b"whole").expect("room");
            files.sync().expect("a disk");
            directory.finish(&whole.name("b"), &whole, &files.data).expect("room");
        }
        let mut directory = Directory::open(place.path()).expect("the directory");
        directory.boot = "another".to_owned();
        let found = directory.scan("b", true).expect("the directory");
        assert_eq!(found.iter().map(|found| found.metadata.key.as_str()).collect::<Vec<_>>(), ["whole"]);
        assert_eq!(names(place.path()).len(), 3, "the other's files are gone: {:?}", names(place.path()));
    }

    #[test]
    fn what_is_torn_is_removed_and_what_is_not_ours_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(place.path()).expect("the directory");
        let objects: Vec<_> = (0..6).map(|number| metadata(&number.to_string(), 5)).collect();
        let path =
            |number: usize, end: &str| place.path().join(format!("{}.{end}", objects[number].name("b")));
        for object in &objects {
            directory.create(&object.name("b"), object).expect("room");
        }
        let text = fs::read(path(1, "meta")).expect("a file");
        fs::write(path(0, "meta"), &text[..text.len() - 1]).expect("room");
        fs::write(path(1, "data"), "longer than five").expect("room");
        fs::remove_file(path(2, "data")).expect("a file");
        fs::remove_file(path(3, "meta")).expect("a file");
        let mut changed = fs::read(path(4, "meta")).expect("a file");
        let at = changed.windows(8).position(|bytes| bytes == b"\"size\":5").expect("its size");
        changed[at + 7] = b'6';
        fs::write(path(4, "meta"), changed).expect("room");
        fs::write(path(5, "77.new"), "half").expect("room");
        let others = ["kept", "0.data", "x.meta"].map(str::to_owned);
        for name in &others {
            fs::write(place.path().join(name), "others'").expect("room");
        }
        let unknown = format!("{}.dat", objects[0].name("b"));
        fs::write(place.path().join(&unknown), "others'").expect("room");
        let before = names(place.path());
        assert_eq!(directory.scan("b", false).expect("the directory").len(), 1);
        assert_eq!(names(place.path()), before, "not alone, nothing is removed");
        assert_eq!(directory.scan("b", true).expect("the directory").len(), 1);
        let mut left = vec![unknown, LOCK.to_owned()];
        left.extend(others);
        left.extend(["data", "meta"].map(|end| format!("{}.{end}", objects[5].name("b"))));
        left.sort();
        assert_eq!(names(place.path()), left);
        directory.sweep(|_| false).expect("the directory");
        assert_eq!(names(place.path()).len(), left.len() - 2);
    }

    #[test]
    fn another_bucket_has_none_of_it() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = Directory::open(place.path()).expect("the directory");
        let object = metadata("a", 5);
        directory.create(&object.name("b"), &object).expect("room");
        assert_eq!(directory.scan("c", false).expect("the directory").len(), 0);
        assert!(directory.claim());
        let other = Directory::open(place.path()).expect("the directory");
        assert!(!other.claim(), "one process at a time");
        drop(directory);
        assert!(other.claim());
    }
}
