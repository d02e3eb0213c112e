//! The versions that may boot. Each has a file on the EFI system partition, and systemd-boot counts its tries in the
//! name of that file (systemd, Automatic Boot Assessment).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Version;

/// Where systemd-boot looks for boot files, on the EFI system partition.
const DIRECTORY: &str = "EFI/Linux";

/// Whether a version is on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trial {
    /// It has booted and was healthy, it is the first version on the disk, or versions are not on trial.
    Good,
    /// It hasn't been healthy yet; with no tries left, it has failed.
    #[serde(untagged)]
    Left {
        /// How many boots it may still try.
        left: u32,
        /// How many boots it has tried.
        done: u32,
    },
}

/// A version that may boot.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Its number.
    pub version: Version,
    /// Its state of trial.
    pub trial: Trial,
    #[serde(skip)]
    name: String,
}

/// An entry's boot file.
pub fn boot_file(boot: &Path, entry: &Entry) -> PathBuf {
    boot.join(DIRECTORY).join(&entry.name)
}

/// The versions of the image `id`, newest first. Ignores other files.
pub fn entries(boot: &Path, id: &str) -> Result<Vec<Entry>, (PathBuf, io::Error)> {
    let directory = boot.join(DIRECTORY);
    let at = |source| (directory.clone(), source);
    let mut found = Vec::new();
    for file in fs::read_dir(&directory).map_err(at)? {
        if let Some(name) = file.map_err(at)?.file_name().to_str()
            && let Some((version, trial)) = parse(name, id)
        {
            found.push(Entry { version, trial, name: name.to_owned() });
        }
    }
    found.sort_by(|one, other| other.version.cmp(&one.version));
    Ok(found)
}

/// Renames a version's boot file to record its tries. After a power cut, the file has either the old or the new name.
pub fn count(boot: &Path, id: &str, entry: &Entry, trial: Trial) -> Result<(), (PathBuf, io::Error)> {
    let directory = boot.join(DIRECTORY);
    let counted = match trial {
        Trial::Good => String::new(),
        Trial::Left { left, done } => format!("+{left}-{done}"),
    };
    let to = directory.join(format!("{id}_{}{counted}.efi", entry.version));
    let from = directory.join(&entry.name);
    fs::rename(&from, &to).map_err(|source| (from, source))?;
    File::open(&directory).and_then(|opened| opened.sync_all()).map_err(|source| (directory, source))
}

/// `ID_VERSION.efi`, `ID_VERSION+LEFT.efi` or `ID_VERSION+LEFT-DONE.efi`.
fn parse(name: &str, id: &str) -> Option<(Version, Trial)> {
    let rest = name.strip_prefix(id)?.strip_prefix('_')?.strip_suffix(".efi")?;
    let Some((version, counted)) = rest.split_once('+') else {
        return Some((rest.parse().ok()?, Trial::Good));
    };
    let (left, done) = counted.split_once('-').unwrap_or((counted, "0"));
    Some((version.parse().ok()?, Trial::Left { left: left.parse().ok()?, done: done.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_how_often_a_version_may_try() {
        for (name, expected) in [
            ("box_1.2.efi", Some(("1.2", Trial::Good))),
            ("box_1.2+3.efi", Some(("1.2", Trial::Left { left: 3, done: 0 }))),
            ("box_1.2+0-2.efi", Some(("1.2", Trial::Left { left: 0, done: 2 }))),
            ("box_1.2", None),
            ("box_x.efi", None),
            ("box-2_1.efi", None),
            ("box_1+.efi", None),
            ("box_1+1-.efi", None),
            ("box_1+-1.efi", None),
            ("BOX_1.efi", None),
        ] {
            let expected = expected.map(|(version, trial)| (version.parse().unwrap(), trial));
            assert_eq!(parse(name, "box"), expected, "{name}");
        }
    }
}
