//! Settings of the image and its updates, from a file in /etc.

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
    /// The directory where udev has links to partitions by these names.
    pub partitions: PathBuf,
    /// How many boots a new version may try until it is healthy. 0: versions are not on trial.
    pub tries: u32,
    /// The lowest version allowed.
    pub floor: Option<Version>,
    /// Where updates come from, if anywhere.
    pub source: Option<String>,
    /// systemd-sysupdate.
    pub sysupdate: PathBuf,
    /// How versions are made from patches, if they are.
    pub patches: Option<Patches>,
}

/// How versions are made from patches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patches {
    /// systemd-pull.
    pub pull: PathBuf,
    /// The directory where versions are made.
    pub mirror: PathBuf,
    /// The definitions of transfers (sysupdate.d(5)) whose source is that directory.
    pub definitions: PathBuf,
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
    /// Whether all partitions that this version's boot file needs exist. An interrupted update may leave the boot file
    /// of a version whose partition it has already renamed.
    pub fn is_whole(&self, version: &Version) -> bool {
        let version = version.to_string();
        self.labels.iter().all(|label| self.partitions.join(label.replace("@v", &version)).exists())
    }

    /// The partition of a version whose name in [`Settings::labels`] starts so.
    pub fn partition(&self, start: &str, version: &Version) -> Option<PathBuf> {
        let label = self.labels.iter().find(|label| label.starts_with(start))?;
        Some(self.partitions.join(label.replace("@v", &version.to_string())))
    }

    /// Loads them from this file.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SettingsError::Missing { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|source| SettingsError::Wrong { path: path.to_owned(), source })
    }
}
