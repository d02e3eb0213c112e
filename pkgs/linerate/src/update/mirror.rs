//! A directory from which systemd-sysupdate(8) takes a version, as it would from the server: most of the version is made
//! from what runs, and from patches.
//!
//! ```text
//!             SHA256SUMS, SHA256SUMS.gpg, verity ──────────────────────┐
//!  server ──▶ store.patch ─▶ patch ◀─ the running store ─────────▶ store ├▶ mirror ─▶ systemd-sysupdate ─▶ the other slot
//!             efi.patch ───▶ patch ◀─ the running boot file ─────▶ efi ┘
//! ```
//!
//! systemd-pull(8) downloads, and checks the signature of the manifest, which has the digest of every file and patch. So
//! no byte is decompressed that nobody has signed. systemd-sysupdate then checks everything once more.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use rustix::fs::FlockOperation;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::patch::{self, MARGIN, PatchError};
use super::{Patches, Settings, Version, sysupdate};

/// The manifest, and its detached signature (systemd-sysupdate(8)).
const MANIFEST: &str = "SHA256SUMS";
const SIGNATURE: &str = "SHA256SUMS.gpg";

/// The longest manifest, in bytes: a version has a line for each file, and two for each older version.
const MAX_MANIFEST: u64 = 1 << 20;

/// Why a version isn't made from patches.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The directory.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The file in it.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Another update is using the directory.
    #[error("another update is running")]
    Busy,
    /// The files would fill the file system.
    #[error("{}: it takes {} MiB, and {} are free", path.display(), needed >> 20, free >> 20)]
    Full {
        /// The directory.
        path: PathBuf,
        /// What it takes, in bytes, with a margin.
        needed: u64,
        /// What is free, in bytes.
        free: u64,
    },
    /// A program doesn't start.
    #[error("{}: {source}", program.display())]
    Start {
        /// Where it should be.
        program: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Downloading or writing took too long.
    #[error("it took longer than {} s", .0.as_secs())]
    TooLong(Duration),
    /// systemd-sysupdate failed. The reason is on standard error.
    #[error("systemd-sysupdate ended with {0}")]
    Write(ExitStatus),
    /// A download failed. The reason is on standard error.
    #[error("{name}: systemd-pull ended with {status}")]
    Pull {
        /// The file.
        name: String,
        /// The exit status.
        status: ExitStatus,
    },
    /// A patch doesn't make the file.
    #[error("{name}: {source}")]
    Patch {
        /// The patch.
        name: String,
        /// The reason.
        source: PatchError,
    },
    /// A patch makes another file than the manifest says: it was made for another file than the one that is here.
    #[error("{0}: it makes another file than the manifest says")]
    Other(String),
}

impl MirrorError {
    fn of(failure: sysupdate::Failure, program: &Path, patience: Duration) -> Self {
        match failure {
            sysupdate::Failure::Start(source) => Self::Start { program: program.to_owned(), source },
            sysupdate::Failure::TooLong(_) => Self::TooLong(patience),
        }
    }
}

/// What patches have saved, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// What was downloaded.
    pub downloaded: u64,
    /// What the whole version has.
    pub whole: u64,
}

/// The digests of a server's files, by name.
#[derive(Debug, Default, PartialEq, Eq)]
struct Manifest(BTreeMap<String, String>);

impl Manifest {
    /// Reads it as sha256sum(1) writes it. Ignores other lines, and names that aren't those of plain files.
    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (digest, name) = line.split_once(' ')?;
            let name = name.strip_prefix([' ', '*'])?;
            let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_plain =
                !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0', '%', '?', '#']);
            (is_digest && is_plain).then(|| (name.to_owned(), digest.to_ascii_lowercase()))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// The name and digest of the file with this name.
    fn get(&self, name: &str) -> Option<(&str, &str)> {
        self.0.get_key_value(name).map(|(name, digest)| (name.as_str(), digest.as_str()))
    }

    /// The name and digest of the only file with this beginning and this end.
    fn find(&self, begin: &str, end: &str) -> Option<(&str, &str)> {
        let mut found = self.0.iter().filter(|(name, _)| {
            name.strip_prefix(begin)
                .and_then(|rest| rest.strip_suffix(end))
                .is_some_and(|between| !between.contains('_'))
        });
        let (name, digest) = found.next()?;
        found.next().is_none().then_some((name.as_str(), digest.as_str()))
    }
}

/// The directory, with a whole version. It is emptied when this is dropped.
#[derive(Debug)]
pub struct Mirror {
    path: PathBuf,
    /// Is locked as long as it is open.
    _lock: File,
    saved: Saved,
}

impl Mirror {
    /// Makes a version, within `patience`, or nothing if the server has no patches from the running version to it.
    /// `boot_file` is the running version's.
    pub fn make(
        settings: &Settings,
        patches: &Patches,
        boot_file: &Path,
        version: &Version,
        patience: Duration,
    ) -> Result<Option<Self>, MirrorError> {
        let Settings { id, version: running, source: Some(source), .. } = settings else { return Ok(None) };
        let mut mirror = Self::open(&patches.mirror)?;
        let puller = Puller { program: &patches.pull, source, begun: Instant::now(), patience };
        let manifest = mirror.path.join(MANIFEST);
        puller.pull(MANIFEST, "signature", &manifest, MAX_MANIFEST)?;
        let text = fs::read_to_string(&manifest).map_err(at(&manifest))?;
        let manifest = Manifest::parse(&text);
        let patch = |kind| manifest.get(&format!("{id}_{version}-from-{running}.{kind}.patch"));
        let begin = format!("{id}_{version}_");
        let slot = settings.partition("store_", running).zip(patch("store"));
        let (Some(boot), Some(store), Some(verity), Some(slot)) = (
            manifest.get(&format!("{id}_{version}.efi")),
            manifest.find(&begin, ".store"),
            manifest.find(&begin, ".verity"),
            slot,
        ) else {
            return Ok(None);
        };
        puller.pull(SIGNATURE, "no", &mirror.path.join(SIGNATURE), MAX_MANIFEST)?;
        // The version's files, each with the running version's file and a patch to it, if there are any.
        let boot_file = patch("efi").map(|patch| (boot_file.to_owned(), patch));
        for ((name, digest), old) in [(verity, None), (store, Some(slot)), (boot, boot_file)] {
            let made = mirror.path.join(name);
            match old {
                Some((old, patch)) => mirror.patched(&puller, patch, &old, &made, digest)?,
                None => {
                    puller.pull(name, digest, &made, mirror.room(0)?)?;
                    mirror.saved.downloaded += length(&made)?;
                }
            }
            mirror.saved.whole += length(&made)?;
        }
        Ok(Some(mirror))
    }

    /// Writes the version into the slot that isn't running.
    pub fn write(
        &self,
        program: &Path,
        patches: &Patches,
        version: &Version,
        patience: Duration,
    ) -> Result<(), MirrorError> {
        let definitions = format!("--definitions={}", patches.definitions.display());
        match sysupdate::order(program, &[&definitions, "update", &version.to_string()], patience) {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(MirrorError::Write(output.status)),
            Err(failure) => Err(MirrorError::of(failure, program, patience)),
        }
    }

    /// What patches have saved.
    pub fn saved(&self) -> Saved {
        self.saved
    }

    fn open(path: &Path) -> Result<Self, MirrorError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at(path))?;
        let lock = File::open(path).map_err(at(path))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| MirrorError::Busy)?;
        let mirror = Self { path: path.to_owned(), _lock: lock, saved: Saved::default() };
        // After a power cut, there are files.
        mirror.empty().map_err(at(path))?;
        Ok(mirror)
    }

    fn empty(&self) -> io::Result<()> {
        for file in fs::read_dir(&self.path)? {
            fs::remove_file(file?.path())?;
        }
        Ok(())
    }

    /// How much may be written besides this, in bytes.
    fn room(&self, needed: u64) -> Result<u64, MirrorError> {
        let stat = rustix::fs::statvfs(&self.path).map_err(|error| at(&self.path)(error.into()))?;
        let (needed, free) = (needed + MARGIN, stat.f_bavail.saturating_mul(stat.f_frsize));
        free.checked_sub(needed).ok_or_else(|| MirrorError::Full { path: self.path.clone(), needed, free })
    }

    /// Makes the file `made` with this digest from `old` and a patch.
    fn patched(
        &mut self,
        puller: &Puller<'_>,
        (name, of_patch): (&str, &str),
        old: &Path,
        made: &Path,
        digest: &str,
    ) -> Result<(), MirrorError> {
        let patch = self.path.join(name);
        puller.pull(name, of_patch, &patch, self.room(0)?)?;
        self.saved.downloaded += length(&patch)?;
        let bytes = patch::apply(old, &patch)
            .map_err(|source| MirrorError::Patch { name: name.to_owned(), source })?;
        if HEXLOWER.encode(&Sha256::digest(&bytes)) != digest {
            return Err(MirrorError::Other(name.to_owned()));
        }
        fs::remove_file(&patch).map_err(at(&patch))?;
        self.room(bytes.len() as u64)?;
        fs::write(made, bytes).map_err(at(made))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // The next update empties it otherwise.
        drop(self.empty());
    }
}

/// Downloads the server's files.
struct Puller<'a> {
    program: &'a Path,
    source: &'a str,
    begun: Instant,
    patience: Duration,
}

impl Puller<'_> {
    /// Downloads a file of at most so many bytes. `verify` is its digest, or how it is checked (systemd-pull's option).
    fn pull(&self, name: &str, verify: &str, to: &Path, most: u64) -> Result<(), MirrorError> {
        let (verify, most) = (format!("--verify={verify}"), format!("--size-max={most}"));
        let (url, to) = (format!("{}{name}", self.source), to.display().to_string());
        let left = self.patience.saturating_sub(self.begun.elapsed());
        let ended = sysupdate::order(self.program, &["raw", "--direct", &verify, &most, &url, &to], left);
        match ended {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(MirrorError::Pull { name: name.to_owned(), status: output.status }),
            Err(failure) => Err(MirrorError::of(failure, self.program, self.patience)),
        }
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> MirrorError {
    move |source| MirrorError::Directory { path: path.to_owned(), source }
}

fn length(path: &Path) -> Result<u64, MirrorError> {
    Ok(fs::metadata(path).map_err(at(path))?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_has_plain_files_alone() {
        let digest = "0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdef0123";
        let line = |name: &str| format!("{digest}{name}\n");
        let text = [
            line("  box_2.efi"),
            line(" *box_2_ab-cd.store"),
            line("  ../box_2_x.verity"),
            line("  .hidden"),
            line("  "),
            line(" box_2_y.verity"),
            line("  box_2_z.verity?a"),
            format!("{}  short", &digest[1..]),
        ]
        .concat();
        let manifest = Manifest::parse(&text);
        assert_eq!(manifest.0.keys().collect::<Vec<_>>(), ["box_2.efi", "box_2_ab-cd.store"]);
        let lower = digest.to_ascii_lowercase();
        assert_eq!(manifest.find("box_2_", ".store"), Some(("box_2_ab-cd.store", lower.as_str())));
        assert_eq!(manifest.get("box_2.efi"), Some(("box_2.efi", lower.as_str())));
        assert_eq!((manifest.get("box_2"), manifest.find("box_2_", ".verity")), (None, None));
        let twice = Manifest::parse(&[line("  box_2_a.store"), line("  box_2_b.store")].concat());
        assert_eq!(twice.find("box_2_", ".store"), None);
    }
}
