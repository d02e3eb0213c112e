//! A patch: makes a file of the next version from the same file of the running one.
//!
//! A line of text says how long both files are, and a zstd frame follows that `zstd --patch-from` has made: all of the
//! old file precedes what is decompressed. The line comes first since systemd-pull(8) would otherwise decompress the
//! frame while it downloads it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use zstd::zstd_safe::{DCtx, get_error_name};

use crate::system::memory;

/// The first words of a patch, and the number of the only format.
const MAGIC: &str = "linerate-patch 1 ";

/// The longest first line, in bytes.
const MAX_LINE: usize = 64;

/// The largest file that a patch reads or makes, in bytes: zstd's longest window (`ZSTD_WINDOWLOG_MAX`) is 2 GiB.
const MAX_FILE: u64 = 2 << 30;

/// What has to be free beyond what patching takes, in bytes: services go on beside it.
pub const MARGIN: u64 = 64 << 20;

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It isn't a patch of this format.
    #[error("the patch is not in a format that this version knows")]
    Format,
    /// Both files and the patch are in memory at once.
    #[error("patching takes {} MiB of memory, and {} are available", needed >> 20, available >> 20)]
    Memory {
        /// What it takes, in bytes, with a margin.
        needed: u64,
        /// What is available, in bytes.
        available: u64,
    },
    /// The old file is shorter than the one that the patch was made from.
    #[error("the running version's file is shorter than the one that the patch was made from")]
    Short,
    /// zstd fails.
    #[error("the patch cannot be applied: {0}")]
    Zstd(&'static str),
}

/// The first line of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    /// The length of the old file, in bytes.
    old: u64,
    /// The length of the new file, in bytes.
    new: u64,
}

impl Lengths {
    /// Reads them, and returns what follows.
    fn parse(patch: &[u8]) -> Option<(Self, &[u8])> {
        let end = patch.iter().take(MAX_LINE).position(|&byte| byte == b'\n')?;
        let line = str::from_utf8(&patch[..end]).ok()?;
        let (old, new) = line.strip_prefix(MAGIC)?.split_once(' ')?;
        let lengths = Self { old: old.parse().ok()?, new: new.parse().ok()? };
        (lengths.old <= MAX_FILE && lengths.new <= MAX_FILE).then_some((lengths, &patch[end + 1..]))
    }
}

/// Makes the new file from `old`, which may be a partition with more behind the old file.
pub fn apply(old: &Path, patch: &Path) -> Result<Vec<u8>, PatchError> {
    let bytes = fs::metadata(patch)?.len();
    let available = available()?;
    if bytes > MAX_FILE {
        return Err(PatchError::Format);
    }
    let enough = |needed: u64| match needed + MARGIN {
        needed if needed > available => Err(PatchError::Memory { needed, available }),
        _ => Ok(()),
    };
    enough(bytes)?;
    let patch = fs::read(patch)?;
    let (lengths, frame) = Lengths::parse(&patch).ok_or(PatchError::Format)?;
    enough(bytes + lengths.old + lengths.new)?;
    // Neither exceeds MAX_FILE.
    let mut before = Vec::with_capacity(lengths.old as usize);
    File::open(old)?.take(lengths.old).read_to_end(&mut before)?;
    if before.len() as u64 != lengths.old {
        return Err(PatchError::Short);
    }
    let mut made = Vec::with_capacity(lengths.new as usize);
    let count = DCtx::create()
        .decompress_using_dict(&mut made, frame, &before)
        .map_err(|code| PatchError::Zstd(get_error_name(code)))?;
    if count as u64 == lengths.new { Ok(made) } else { Err(PatchError::Format) }
}

/// How much memory is available, in bytes.
fn available() -> io::Result<u64> {
    let (_, available) = memory::parse(&fs::read_to_string(memory::PATH)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, memory::PATH))?;
    Ok(available)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tempfile::TempDir;
    use testkit::noise;
    use zstd::zstd_safe::CCtx;

    use super::*;

    fn frame(old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut made = Vec::with_capacity(new.len() + 1024);
        CCtx::create().compress_using_dict(&mut made, new, old, 9).expect("it compresses");
        made
    }

    struct Place(TempDir);

    impl Place {
        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, bytes).expect("written");
            path
        }
    }

    #[test]
    fn a_patch_makes_the_new_file_of_the_old_one() {
        let place = Place(TempDir::new().expect("a directory"));
        let old = noise(1, 300_000);
        let mut new = old.clone();
        new.splice(1_000..2_000, *b"other");
        let frame = frame(&old, &new);
        assert!(frame.len() < 1_000, "{}", frame.len());
        let patch = |lengths: &str| place.file("patch", &[lengths.as_bytes(), &frame].concat());
        // In a partition, something may follow.
        let slot = place.file("slot", &[&old[..], &[0; 4_096]].concat());
        let lengths = format!("{MAGIC}{} {}\n", old.len(), new.len());
        assert!(apply(&slot, &patch(&lengths)).expect("it fits") == new);
        // Another old file makes another new one, or none; which one is wanted is known by its digest.
        let other = place.file("other", &noise(1, 300_001)[1..]);
        assert!(apply(&other, &patch(&lengths)).is_ok_and(|made| made != new));
        for (lengths, why) in [
            ("", "format"),
            ("\n", "format"),
            ("linerate-patch 2 300000 299005\n", "format"),
            ("linerate-patch 1 300000\n", "format"),
            ("linerate-patch 1 300000 2147483649\n", "format"),
            ("linerate-patch 1 -1 299005\n", "format"),
            ("linerate-patch 1 300000 299006\n", "format"),
            ("linerate-patch 1 300000 299004\n", "cannot be applied"),
            ("linerate-patch 1 400000 299005\n", "shorter"),
        ] {
            let said = apply(&slot, &patch(lengths)).expect_err(lengths).to_string();
            assert!(said.contains(why), "{lengths:?}: {said}");
        }
        let short = place.file("patch", &[lengths.as_bytes(), &frame[..frame.len() - 1]].concat());
        assert!(matches!(apply(&slot, &short), Err(PatchError::Zstd(_))));
        assert!(matches!(apply(&slot, &place.0.path().join("nowhere")), Err(PatchError::Read(_))));
    }

    #[test]
    fn a_file_that_memory_does_not_hold_is_refused() {
        let place = Place(TempDir::new().expect("a directory"));
        let old = place.file("old", b"");
        let available = available().expect("a number");
        assert!(available > MARGIN);
        // Larger than what is available on most machines where this is tested, and always within what is allowed.
        let patch = place.file("patch", format!("{MAGIC}{MAX_FILE} {MAX_FILE}\n").as_bytes());
        let refused = apply(&old, &patch).expect_err("nothing follows");
        assert_eq!(
            matches!(refused, PatchError::Memory { .. }),
            2 * MAX_FILE + MARGIN > available,
            "{refused}"
        );
    }
}
