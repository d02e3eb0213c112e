//! How the image was built and where its updates come from, from a file in /etc.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Version;

/// Where the file is.
pub const SETTINGS: &str = "/etc/linerate/update.json";

/// The file, as `linerate.appliance.image` writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The identifier in the names of the image's files and partitions.
    pub id: String,
    /// The running version.
    pub version: Version,
    /// Where the EFI system partition is mounted.
    pub boot: PathBuf,
    /// The names of a version's partitions in [`Settings::partitions`], with `@v` for the version.
    pub labels: Vec<String>,
    /// Where partitions are found by these names: udev's directory.
    pub partitions: PathBuf,
    /// How often a new version may try to be healthy.
    pub tries: u32,
    /// The lowest version allowed.
    pub floor: Option<Version>,
    /// Where updates come from, if anywhere.
    pub source: Option<String>,
    /// systemd-sysupdate.
    pub sysupdate: PathBuf,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// There is no such file.
    #[error("{}: {source}; only a box that is an image (linerate.appliance.image) is updated so", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file isn't valid.
    #[error("{}: {source}", path.display())]
    Wrong {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
}

impl Settings {
    /// Whether everything that this version's boot file needs is on the disk. An interrupted update has already taken
    /// the name from the partition it overwrites, while the boot file may still be there.
    pub fn is_whole(&self, version: &Version) -> bool {
        let version = version.to_string();
        self.labels.iter().all(|label| self.partitions.join(label.replace("@v", &version)).exists())
    }

    /// Loads them from this file.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SettingsError::Missing { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|source| SettingsError::Wrong { path: path.to_owned(), source })
    }
}
