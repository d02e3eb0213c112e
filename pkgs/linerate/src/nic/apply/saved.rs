//! The settings from before the first change, saved until the changes are undone.
//!
//! Each interface has a file in a directory that, like the settings themselves, is lost at reboot. Interrupts are
//! identified by action, since their numbers may change when a port restarts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::nic::PlacementRequest;
use crate::nic::plan::Steering;
use crate::nic::policy;
use crate::nic::setting::{Setting, Subject};

/// The default directory.
pub const DIRECTORY: &str = "/run/linerate";

/// The original settings, and what was requested instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The interface.
    pub interface: String,
    /// The policy that was last applied.
    pub policy: String,
    /// Whether the plan may use RPS.
    pub steering: bool,
    /// How many queues were requested, if a number was requested.
    #[serde(default)]
    pub queues: Option<u32>,
    /// The original number of channels, if it was changed.
    #[serde(default)]
    pub channels: Option<u32>,
    /// The original RSS table, if it was changed.
    #[serde(default)]
    pub indirection: Option<Vec<u32>>,
    /// Interrupts that the kernel manages itself, by action.
    pub managed: Vec<String>,
    /// The original settings.
    pub originals: Vec<Original>,
}

/// The original content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its setting.
    #[serde(flatten)]
    pub key: Key,
    /// Byte for byte.
    pub content: String,
}

/// A setting, independent of its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Key {
    /// An interrupt's affinity.
    Irq {
        /// Its name.
        action: String,
    },
    /// `rps_cpus` of a queue.
    Rps {
        /// Its number.
        queue: usize,
    },
    /// `xps_cpus` of a queue.
    Xps {
        /// Its number.
        queue: usize,
    },
}

impl Key {
    /// The key of a setting.
    pub fn of(setting: &Setting) -> Self {
        match &setting.subject {
            Subject::Irq { action, .. } => Self::Irq { action: action.clone() },
            Subject::Rps => Self::Rps { queue: setting.queue },
            Subject::Xps => Self::Xps { queue: setting.queue },
        }
    }
}

impl Saved {
    /// No settings are saved yet.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            policy: String::new(),
            steering: true,
            queues: None,
            channels: None,
            indirection: None,
            managed: Vec::new(),
            originals: Vec::new(),
        }
    }

    /// Whether the plan may use RPS.
    pub fn steering(&self) -> Steering {
        if self.steering { Steering::Auto } else { Steering::Off }
    }

    /// What was requested.
    pub fn wish(&self) -> Result<PlacementRequest, policy::ParseError> {
        Ok(PlacementRequest { policy: self.policy.parse()?, steering: self.steering(), queues: self.queues })
    }

    /// Saves the current value unless a value is already saved: the oldest value is the original.
    pub fn keep(&mut self, setting: &Setting) {
        let key = Key::of(setting);
        if !self.originals.iter().any(|original| original.key == key) {
            self.originals.push(Original { key, content: setting.content.clone() });
        }
    }
}

/// Where original settings are saved.
#[derive(Clone, Debug)]
pub struct Store {
    directory: Option<PathBuf>,
}

/// Why original settings can't be saved or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

impl Store {
    /// Saves settings in a directory, which is created if it doesn't exist.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory: Some(directory) }
    }

    /// Saves nothing, for a rehearsal on a machine that exists only in memory.
    pub fn nowhere() -> Self {
        Self { directory: None }
    }

    /// What is saved about an interface.
    pub fn load(&self, interface: &str) -> Result<Option<Saved>, Error> {
        let Some(path) = self.path(interface) else { return Ok(None) };
        let failed = |source| Error { path: path.clone(), source };
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(error.into())),
        }
    }

    /// Saves the original settings, either completely or not at all.
    pub fn save(&self, saved: &Saved) -> Result<(), Error> {
        let Some(path) = self.path(&saved.interface) else { return Ok(()) };
        let failed = |source| Error { path: path.clone(), source };
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(saved).map_err(|error| failed(error.into()))?;
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(failed)
    }

    /// Deletes what is saved about an interface.
    pub fn forget(&self, interface: &str) -> Result<(), Error> {
        let Some(path) = self.path(interface) else { return Ok(()) };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error { path, source: error }),
            _ => Ok(()),
        }
    }

    /// The interfaces with saved settings, sorted.
    pub fn interfaces(&self) -> Result<Vec<String>, Error> {
        let Some(directory) = &self.directory else { return Ok(Vec::new()) };
        let failed = |source| Error { path: directory.clone(), source };
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut interfaces = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            let interface = name.strip_prefix("nic-").and_then(|name| name.strip_suffix(".json"));
            interfaces.extend(interface.map(str::to_owned));
        }
        interfaces.sort();
        Ok(interfaces)
    }

    fn path(&self, interface: &str) -> Option<PathBuf> {
        // A name with a slash would leave the directory; no interface has one.
        let name = interface.replace('/', "_");
        Some(self.directory.as_ref()?.join(format!("nic-{name}.json")))
    }
}
