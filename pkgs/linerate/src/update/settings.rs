//! What the image was built as, and where it may go: a file that it has in /etc.

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
    /// What files and partitions of the image are called by.
    pub id: String,
    /// The version that runs.
    pub version: Version,
    /// Where the EFI system partition is mounted.
    pub boot: PathBuf,
    /// What a version's partitions are called in [`Settings::partitions`], with `@v` for the version.
    pub labels: Vec<String>,
    /// Where partitions are by these names: udev's directory.
    pub partitions: PathBuf,
    /// How often a new version may try to be healthy.
    pub tries: u32,
    /// The lowest version that it goes to.
    pub floor: Option<Version>,
    /// Where updates come from; none where there are none.
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
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is another one.
    #[error("{}: {source}", path.display())]
    Wrong {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

impl Settings {
    /// Whether all that this version's boot file needs is on the disk. An update that was cut short has begun by taking the
    /// name from what it writes over, and the boot file may be there yet.
    pub fn is_whole(&self, version: &Version) -> bool {
        let version = version.to_string();
        self.labels.iter().all(|label| self.partitions.join(label.replace("@v", &version)).exists())
    }

    /// Those of this file.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        let text = fs::read_to_string(path)
            .map_err(|source| SettingsError::Missing { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|source| SettingsError::Wrong { path: path.to_owned(), source })
    }
}
