//! The served directory, and look-ups below it.
//!
//! Only the kernel looks up names, with a single call that can't leave the root (openat2(2), `RESOLVE_BENEATH`), so
//! there is no check before an open that a rename could bypass.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use clap::ValueEnum;
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use super::origin_file::OriginFile;
use crate::http::encoding::Coding;

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Symlinks {
    /// None.
    Never,
    /// Those that stay below the root.
    Beneath,
    /// All except those of /proc. Whoever can write below the root can then publish any file that the server can read.
    Anywhere,
}

/// The file that is served for a directory, if it has one.
pub const INDEX: &str = "index.html";

/// Whether a decoded path names a directory: the root, or a path that ends with a slash.
pub fn names_directory(path: &[u8]) -> bool {
    path.is_empty() || path.ends_with(b"/")
}

/// Where Nix keeps the results of builds. The time of all their files is the first second of 1970.
const NIX_STORE: &[u8] = b"/nix/store/";

/// How many characters of a name there are a hash of what it was built from.
const NIX_HASH: usize = 32;

/// A rename during a lookup may make the kernel ask for another try (openat2(2), EAGAIN).
const TRIES: usize = 8;

/// The root.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    symlinks: Symlinks,
    precompressed: bool,
}

/// What a path names.
#[derive(Debug)]
pub enum Found {
    /// A regular file, and the encodings next to it, in the order of [`Coding::ALL`].
    File(Box<[Option<OpenedFile>; 1 + Coding::ALL.len()]>),
    /// A directory that was named without its final slash.
    Directory,
    /// A directory without an index.
    Listing(OwnedFd),
}

/// An open regular file.
#[derive(Debug)]
pub struct OpenedFile {
    /// The file.
    pub fd: OwnedFd,
    /// Its state when it was opened.
    pub identity: FileIdentity,
    /// Its object; none if it is a file in a directory.
    pub origin: Option<OriginFile>,
}

/// A file and its state: whatever changes its bytes changes this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    /// In bytes.
    pub size: u64,
    /// When its bytes last changed: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// When anything about it last changed.
    changed: (i64, u32),
}

/// Why a path can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such file, or it isn't served.
    #[error("there is no such file")]
    Missing,
    /// The server may not read it.
    #[error("the file may not be read")]
    Denied,
    /// The answer isn't in memory: ask again from a thread that may wait.
    #[error("the disk has to be asked")]
    Cold,
    /// The process or the system is out of file descriptors or memory.
    #[error("out of file descriptors or memory")]
    Exhausted,
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Failed(Errno),
    /// The origin can't be reached, or its answer can't be used.
    #[error("the origin failed")]
    OriginFailed,
    /// The origin took too long.
    #[error("the origin took too long")]
    OriginSlow,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        match errno {
            // EXDEV means that a link leads out, and ELOOP that a link isn't followed.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::NXIO
            | Errno::NODEV
            | Errno::ILSEQ => Self::Missing,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::AGAIN => Self::Cold,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted,
            errno => Self::Failed(errno),
        }
    }
}

/// Whether a lookup may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupMode {
    /// No: anything that isn't in memory is [`Error::Cold`].
    CachedOnly,
    /// Yes.
    MayBlock,
}

/// What is known about a file's directory before the file is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryHint {
    /// Nothing: its encodings may be next to it.
    Unknown,
    /// It has no encodings.
    NoCodings,
    /// Nor anything but regular files and directories, which can be opened without a side effect. Something else may be
    /// there since a few milliseconds, or since another directory has taken its place, for as long as look-ups are
    /// believed.
    OnlyFiles,
}

/// What a path names.
enum Opened {
    File(OpenedFile),
    Other(FileType),
}

impl FileIdentity {
    /// The state of an open file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(fd: impl AsFd) -> Result<(Self, FileType), Errno> {
        // A completed read of the ring interrupts whatever system call its worker waits in. On most file systems, this
        // call never waits. It copies half as much as statx(2), which also looks up its empty path before Linux 6.11.
        let stat = retry_on_intr(|| fs::fstat(&fd))?;
        let identity = Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
        };
        Ok((identity, FileType::from_raw_mode(stat.st_mode)))
    }

    /// Whether the time of its last change says anything. Image builders and the Nix store give all files the same
    /// time, 0 or 1.
    pub fn is_dated(&self) -> bool {
        self.modified.0 > 1
    }

    /// Identifies the file, whatever its state.
    pub fn place(&self) -> impl std::hash::Hash + use<> {
        (self.device, self.inode)
    }

    /// Whether nothing at all has changed about an open file since it was found. Keeping its bytes requires this much:
    /// the time of their change can be set back, but that is a change too.
    pub fn is_unchanged(&self, fd: impl AsFd) -> bool {
        Self::of(fd).is_ok_and(|(now, _)| *self == now)
    }

    /// Whether the bytes are still those of `self`. A rename or another link doesn't change them, so the time of the
    /// last change doesn't count.
    pub fn has_same_bytes(&self, now: &Self) -> bool {
        (self.device, self.inode, self.size, self.modified) == (now.device, now.inode, now.size, now.modified)
    }
}

impl OpenedFile {
    /// What tells its bytes from others of the same number under the same name, as text for an entity tag.
    pub fn version(&self) -> String {
        if self.identity.is_dated() {
            return format!("{:x}", nanoseconds(self.identity.modified));
        }
        // In images, the other times may be fixed too.
        let path = fs::readlinkat(CWD, format!("/proc/self/fd/{}", self.fd.as_raw_fd()), Vec::<u8>::new());
        let built = path.as_ref().ok().and_then(|path| built(path.as_bytes()));
        let own = || format!("{:x}-{:x}", nanoseconds(self.identity.changed), self.identity.inode);
        built.unwrap_or_else(own)
    }
}

fn nanoseconds((seconds, nanoseconds): (i64, u32)) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// What a path below the Nix store says of the file's content: the hash of what it was built from, and a checksum of the
/// rest, the same on all machines (FNV-1a).
fn built(path: &[u8]) -> Option<String> {
    let (hash, rest) = path.strip_prefix(NIX_STORE)?.split_at_checked(NIX_HASH)?;
    let hash =
        str::from_utf8(hash).ok().filter(|hash| hash.bytes().all(|byte| byte.is_ascii_alphanumeric()))?;
    let sum = rest
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    Some(format!("{hash}-{sum:x}"))
}

impl Root {
    /// Opens the root. With `precompressed`, files `x.br`, `x.zst` and `x.gz` that aren't older are encodings of `x`.
    ///
    /// # Errors
    /// When it isn't a directory, or may not be searched.
    pub fn open(path: &Path, symlinks: Symlinks, precompressed: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { directory, symlinks, precompressed })
    }

    /// Opens what a decoded path names, without a leading slash, and with a final one if it should be a directory.
    ///
    /// # Errors
    /// [`Error`].
    pub fn find(&self, path: &[u8], mode: LookupMode, hint: DirectoryHint) -> Result<Found, Error> {
        if !path.is_empty() && !path.ends_with(b"/") {
            return match self.open_file(path, mode, hint)? {
                Opened::File(file) => self.with_codings(file, path, mode, hint),
                Opened::Other(FileType::Directory) => Ok(Found::Directory),
                Opened::Other(_) => Err(Error::Missing),
            };
        }
        let mut index = path.to_vec();
        index.extend_from_slice(INDEX.as_bytes());
        match self.open_file(&index, mode, hint) {
            Ok(Opened::File(file)) => return self.with_codings(file, &index, mode, hint),
            Ok(Opened::Other(_)) | Err(Error::Missing) => {}
            Err(error) => return Err(error),
        }
        self.directory(path, mode).map(Found::Listing)
    }

    /// Opens a directory for reading; empty is the root.
    ///
    /// # Errors
    /// [`Error`].
    pub fn directory(&self, path: &[u8], mode: LookupMode) -> Result<OwnedFd, Error> {
        let path = if path.is_empty() { b"." } else { path };
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, mode)
    }

    /// Opens the directory that contains `path` only as a location, to watch it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn place_of(&self, path: &[u8]) -> Result<OwnedFd, Error> {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let directory = if end == 0 { b"." } else { &path[..end] };
        self.open_at(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, LookupMode::CachedOnly)
    }

    /// Opens only a regular file, without its encodings.
    ///
    /// # Errors
    /// [`Error`].
    pub fn regular(&self, path: &[u8], mode: LookupMode) -> Result<OpenedFile, Error> {
        match self.open_unchecked(path, mode)? {
            Opened::File(file) => Ok(file),
            Opened::Other(_) => Err(Error::Missing),
        }
    }

    /// The same for a path that may name anything: it is only opened if it is a regular file, since opening a FIFO
    /// might unblock a writer.
    ///
    /// # Errors
    /// [`Error`].
    pub fn file(&self, path: &[u8], mode: LookupMode) -> Result<OpenedFile, Error> {
        match self.look(path, mode)? {
            FileType::RegularFile => self.regular(path, mode),
            _ => Err(Error::Missing),
        }
    }

    /// Opens what a path names if that is a regular file: opening a FIFO would unblock its writer, and opening a device
    /// may do anything. Otherwise says what it is.
    fn open_file(&self, path: &[u8], mode: LookupMode, hint: DirectoryHint) -> Result<Opened, Error> {
        if hint == DirectoryHint::OnlyFiles {
            match self.open_unchecked(path, mode) {
                // What it is has to be asked about a directory that may be searched but not read.
                Err(Error::Denied) => {}
                opened => return opened,
            }
        }
        match self.look(path, mode)? {
            FileType::RegularFile => self.open_unchecked(path, mode),
            other => Ok(Opened::Other(other)),
        }
    }

    /// Opens whatever a path names, which has to be known to be harmless, and keeps it open if it is a regular file.
    fn open_unchecked(&self, path: &[u8], mode: LookupMode) -> Result<Opened, Error> {
        // If the name has become a FIFO since it was checked, this doesn't wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = self.open_at(path, flags, mode)?;
        Ok(match FileIdentity::of(&fd)? {
            (identity, FileType::RegularFile) => Opened::File(OpenedFile { fd, identity, origin: None }),
            (_, other) => Opened::Other(other),
        })
    }

    fn with_codings(
        &self,
        plain: OpenedFile,
        path: &[u8],
        mode: LookupMode,
        hint: DirectoryHint,
    ) -> Result<Found, Error> {
        let modified = plain.identity.modified;
        let mut files = Box::new([Some(plain), None, None, None]);
        if self.precompressed && hint == DirectoryHint::Unknown {
            for (place, coding) in files[1..].iter_mut().zip(Coding::ALL) {
                let mut beside = path.to_vec();
                beside.extend_from_slice(coding.suffix().as_bytes());
                match self.file(&beside, mode) {
                    // An older encoding belongs to an earlier version of the file.
                    Ok(coded) => *place = Some(coded).filter(|coded| coded.identity.modified >= modified),
                    // Also one that may not be read while it is written, or that is gone since it was found.
                    Err(Error::Missing | Error::Denied) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Found::File(files))
    }

    /// The type of what a path names, without opening it.
    fn look(&self, path: &[u8], mode: LookupMode) -> Result<FileType, Error> {
        // Usually it is a regular file, which a single call can tell. Directories on the way may lead out of the root, so
        // nothing else that it says is believed, and opening the file is left to openat2.
        if mode == LookupMode::MayBlock {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let stat = fs::statx(&self.directory, path, flags, StatxFlags::TYPE);
            let is_regular =
                |stat: fs::Statx| FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
            if stat.is_ok_and(is_regular) {
                return Ok(FileType::RegularFile);
            }
        }
        let place = self.open_at(path, OFlags::PATH | OFlags::CLOEXEC, mode)?;
        Ok(FileIdentity::of(place)?.1)
    }

    fn open_at(&self, path: &[u8], flags: OFlags, mode: LookupMode) -> Result<OwnedFd, Error> {
        let mut resolve = ResolveFlags::NO_MAGICLINKS;
        match self.symlinks {
            Symlinks::Never => resolve |= ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Beneath => resolve |= ResolveFlags::BENEATH,
            Symlinks::Anywhere => {}
        }
        if mode == LookupMode::CachedOnly {
            resolve |= ResolveFlags::CACHED;
        }
        let mut result = Err(Error::Cold);
        for _ in 0..TRIES {
            result = fs::openat2(&self.directory, path, flags, Mode::empty(), resolve).map_err(Error::from);
            if mode == LookupMode::CachedOnly || !matches!(result, Err(Error::Cold)) {
                break;
            }
        }
        match result {
            Err(Error::Cold) if mode == LookupMode::MayBlock => Err(Error::Failed(Errno::AGAIN)),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};
    use std::os::unix::fs::symlink;

    use super::*;

    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path();
        create_dir(path.join("root")).expect("a directory");
        create_dir(path.join("root/sub")).expect("a directory");
        write(path.join("secret"), "secret").expect("a file");
        write(path.join("root/a"), "a").expect("a file");
        write(path.join("root/sub/index.html"), "index").expect("a file");
        symlink("a", path.join("root/inside")).expect("a link");
        symlink("../secret", path.join("root/outside")).expect("a link");
        symlink(path.join("root/a"), path.join("root/absolute")).expect("a link");
        symlink("/proc/self/root/etc/passwd", path.join("root/magic")).expect("a link");
        fs::mknodat(CWD, path.join("root/fifo"), FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
        place
    }

    #[test]
    fn links_are_followed_as_far_as_the_policy_has_it() {
        let place = place();
        for (name, never, beneath, anywhere) in [
            ("a", true, true, true),
            ("inside", false, true, true),
            ("outside", false, false, true),
            ("absolute", false, false, true),
            ("magic", false, false, false),
            ("../secret", false, false, true),
        ] {
            for (symlinks, expected) in
                [(Symlinks::Never, never), (Symlinks::Beneath, beneath), (Symlinks::Anywhere, anywhere)]
            {
                let root = Root::open(&place.path().join("root"), symlinks, false).expect("a root");
                let found = root.find(name.as_bytes(), LookupMode::MayBlock, DirectoryHint::Unknown);
                assert_eq!(found.is_ok(), expected, "{name} {symlinks:?}: {found:?}");
            }
        }
    }

    #[test]
    fn only_files_and_directories_are_found() {
        let place = place();
        let root = Root::open(&place.path().join("root"), Symlinks::Beneath, false).expect("a root");
        let find = |path: &str| root.find(path.as_bytes(), LookupMode::MayBlock, DirectoryHint::Unknown);
        assert!(matches!(find("a"), Ok(Found::File(_))));
        assert!(matches!(find("sub"), Ok(Found::Directory)));
        assert!(matches!(find("sub/"), Ok(Found::File(_))), "its index");
        assert!(matches!(find(""), Ok(Found::Listing(_))));
        for missing in ["fifo", "a/", "a/b", "nothing", "fifo/"] {
            assert_eq!(find(missing).err(), Some(Error::Missing), "{missing}");
        }
    }

    #[test]
    fn what_is_known_about_a_directory_changes_nothing_about_what_is_found() {
        let place = place();
        let root = Root::open(&place.path().join("root"), Symlinks::Beneath, true).expect("a root");
        let find = |path: &str, mode, hint| match root.find(path.as_bytes(), mode, hint) {
            Ok(Found::File(files)) => Ok((files[0].as_ref().map_or(0, |file| file.identity.size), "file")),
            Ok(Found::Directory) => Ok((0, "directory")),
            Ok(Found::Listing(_)) => Ok((0, "listing")),
            Err(error) => Err(error),
        };
        for path in ["a", "a/", "sub", "sub/", "", "sub/index.html", "nothing", "inside", "outside", "fifo"] {
            let expected = find(path, LookupMode::MayBlock, DirectoryHint::Unknown);
            for hint in [DirectoryHint::NoCodings, DirectoryHint::OnlyFiles] {
                assert_eq!(find(path, LookupMode::MayBlock, hint), expected, "{path} {hint:?}");
                let cached = find(path, LookupMode::CachedOnly, hint);
                // tmpfs does not remember what it doesn't have.
                assert!(cached == expected || cached == Err(Error::Cold), "{path} {hint:?}: {cached:?}");
            }
        }
    }

    #[test]
    fn a_link_that_leads_out_hides_nothing_beside_it() {
        let place = place();
        let path = place.path().join("root");
        create_dir(path.join("linked")).expect("a directory");
        symlink("../../secret", path.join("linked/index.html")).expect("a link");
        symlink("../secret", path.join("a.gz")).expect("a link");
        for symlinks in [Symlinks::Never, Symlinks::Beneath] {
            let root = Root::open(&path, symlinks, true).expect("a root");
            let find = |path: &str| root.find(path.as_bytes(), LookupMode::MayBlock, DirectoryHint::Unknown);
            assert!(matches!(find("linked/"), Ok(Found::Listing(_))), "{symlinks:?}: no index");
            let Ok(Found::File(files)) = find("a") else { panic!("{symlinks:?}: no file") };
            assert!(files[1..].iter().all(Option::is_none), "{symlinks:?}: no coding");
        }
    }

    #[test]
    fn a_coding_beside_a_file_counts_while_it_is_no_older() {
        let place = place();
        let path = place.path().join("root");
        let root = Root::open(&path, Symlinks::Beneath, true).expect("a root");
        write(path.join("a.gz"), "coded").expect("a file");
        let find = |hint| match root.find(b"a", LookupMode::MayBlock, hint) {
            Ok(Found::File(files)) => files.iter().map(Option::is_some).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let coded = || find(DirectoryHint::Unknown);
        assert_eq!(coded(), [true, false, false, true]);
        assert_eq!(find(DirectoryHint::NoCodings), [true, false, false, false], "not even looked for");
        let file = std::fs::File::options().write(true).open(path.join("a.gz")).expect("the file");
        file.set_modified(std::time::UNIX_EPOCH).expect("a time");
        assert_eq!(coded(), [true, false, false, false]);
    }

    #[test]
    fn a_coding_that_may_not_be_read_does_not_hide_its_file() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let place = place();
        let path = place.path().join("root");
        write(path.join("a.gz"), "coded").expect("a file");
        fs::chmod(path.join("a.gz"), Mode::empty()).expect("a mode");
        let root = Root::open(&path, Symlinks::Beneath, true).expect("a root");
        // On a thread to which file permissions apply, even if the tests run as root.
        let find = move || {
            let mut sets = capabilities(None).expect("the capabilities");
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).expect("fewer capabilities");
            root.find(b"a", LookupMode::MayBlock, DirectoryHint::Unknown)
        };
        match std::thread::spawn(find).join().expect("no panic") {
            Ok(Found::File(files)) => {
                assert_eq!(files.each_ref().map(Option::is_some), [true, false, false, false]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_state_of_an_open_file_is_that_of_its_metadata() {
        use std::os::unix::fs::MetadataExt;
        let place = place();
        let file = std::fs::File::open(place.path().join("root/a")).expect("a file");
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(7, 8)).expect("a time");
        let (identity, kind) = FileIdentity::of(&file).expect("its state");
        let metadata = file.metadata().expect("its metadata");
        assert_eq!(kind, FileType::RegularFile);
        assert_eq!(
            (identity.device, identity.inode, identity.size),
            (metadata.dev(), metadata.ino(), metadata.len())
        );
        assert_eq!(identity.modified, (7, 8));
        assert_eq!(identity.changed, (metadata.ctime(), metadata.ctime_nsec() as u32));
    }

    #[test]
    fn a_file_whose_time_says_nothing_has_its_version_from_elsewhere() {
        let place = place();
        let path = place.path().join("root");
        let root = Root::open(&path, Symlinks::Beneath, false).expect("a root");
        let version = |seconds| {
            let file = std::fs::File::options().write(true).open(path.join("a")).expect("the file");
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).expect("a time");
            root.regular(b"a", LookupMode::MayBlock).expect("a file").version()
        };
        assert_eq!(version(2), format!("{:x}", 2_000_000_000));
        let before = version(1);
        assert!(before.contains('-') && version(0).contains('-'), "{before}");
        std::fs::rename(path.join("a"), path.join("b")).expect("renamed");
        write(path.join("a"), "b").expect("a file");
        assert_ne!(version(1), before);
        let hash = "0123456789abcdfghijklmnpqrsvwxyz";
        let of = |path: &str| built(path.as_bytes());
        let one = of(&format!("/nix/store/{hash}-public/a")).expect("it is in the store");
        assert!(one.starts_with(hash) && one.len() > hash.len() + 8, "{one}");
        assert_eq!(of(&format!("/nix/store/{hash}-public/a")), Some(one.clone()));
        for other in [
            format!("/nix/store/{hash}-public/b"),
            format!("/nix/store/{hash}-page.html"),
            format!("/nix/store/{}-public/a", hash.replace('0', "2")),
        ] {
            assert!(of(&other).is_some_and(|other| other != one), "{other}");
        }
        for elsewhere in [
            format!("/srv/nix/store/{hash}-public/a"),
            format!("/nix/store/.links/{hash}"),
            "/nix/store/short".to_owned(),
        ] {
            assert_eq!(of(&elsewhere), None, "{elsewhere}");
        }
    }
}
