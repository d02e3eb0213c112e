//! Versions of a machine that runs an image (`linerate.appliance.image`): the versions in its slots, the running one,
//! and changes between them.
//!
//! systemd-sysupdate(8) downloads versions, checks signatures and writes slots. systemd-boot counts tries. This module
//! decides what they may do: it refuses versions below the floor, and updates that would overwrite the version that a
//! machine on trial falls back to.

mod mirror;
mod patch;
mod settings;
mod slots;
mod sysupdate;
mod version;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use serde::Serialize;

use mirror::Mirror;
pub use mirror::{MirrorError, Saved};
pub use patch::PatchError;
pub use settings::{Patches, SETTINGS, Settings, SettingsError};
pub use slots::{Entry, Trial};
pub use version::{Version, VersionError};

/// Why the machine didn't change to a version.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The EFI system partition.
    #[error("{}: {source}", path.display())]
    Boot {
        /// The file on it.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// systemd-sysupdate doesn't start.
    #[error("{}: {source}", program.display())]
    Start {
        /// Where it should be.
        program: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// systemd-sysupdate took too long.
    #[error("systemd-sysupdate took longer than {} s, and was ended: the server stalls, or --timeout is too short", .0.as_secs())]
    TooLong(Duration),
    /// systemd-sysupdate failed. The reason is on standard error, or in `said`.
    #[error("systemd-sysupdate ended with {status}{}{said}", if said.is_empty() { "" } else { ": " })]
    Sysupdate {
        /// Its exit status.
        status: ExitStatus,
        /// The end of its output, if that wasn't passed on.
        said: String,
    },
    /// The output of systemd-sysupdate isn't understood.
    #[error("systemd-sysupdate answered what is not understood: {0}")]
    Answer(String),
    /// No updates are configured.
    #[error("this image takes no updates: linerate.appliance.image.update.source is not set")]
    NoSource,
    /// The version is below the floor.
    #[error(
        "{version} is below {floor}, the lowest version that this box goes to (linerate.appliance.image.update.floor)"
    )]
    BelowFloor {
        /// The version.
        version: Version,
        /// The lowest version allowed.
        floor: Version,
    },
    /// The version is older than the running one.
    #[error(
        "{version} is older than {running}, which runs: linerate update rollback goes back to what is in the other slot"
    )]
    Older {
        /// The version.
        version: Version,
        /// The running version.
        running: Version,
    },
    /// The running version is on trial, and the machine may still have to go back to the version in the other slot.
    #[error(
        "{0} is on trial: the other slot is what the box would go back to; wait until this boot counts as good"
    )]
    OnTrial(Version),
    /// It is already running.
    #[error("{0} runs already")]
    Runs(Version),
    /// There is nothing to go back to.
    #[error("there is no other version to go back to that has been healthy")]
    NothingElse,
    /// The running version has no boot file.
    #[error("what runs, {0}, has no boot file on the EFI partition")]
    Unknown(Version),
    /// The reboot didn't start.
    #[error("systemctl reboot ended with {0}")]
    Reboot(ExitStatus),
}

impl Error {
    /// Whether other arguments would have helped.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::BelowFloor { .. } | Self::Older { .. } | Self::Runs(_) | Self::NoSource | Self::Settings(_)
        )
    }
}

/// The state of a machine, for programs.
#[derive(Debug, Serialize)]
pub struct Status {
    /// The identifier in the names of its files.
    pub id: String,
    /// The running version.
    pub running: Version,
    /// The lowest version allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Version>,
    /// Where updates come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The versions that may boot, newest first.
    pub versions: Vec<Entry>,
}

/// A version that boots next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The version.
    pub version: Version,
    /// What patches have saved, if the version was made from any.
    pub saved: Option<Saved>,
    /// Whether its boots are counted, and an unhealthy one leads back.
    pub is_on_trial: bool,
}

/// A machine that runs an image.
#[derive(Debug)]
pub struct Appliance {
    settings: Settings,
}

impl Appliance {
    /// A machine with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// The running version, and the others that may boot.
    pub fn status(&self) -> Result<Status, Error> {
        let Settings { id, version, floor, source, .. } = &self.settings;
        Ok(Status {
            id: id.clone(),
            running: version.clone(),
            floor: floor.clone(),
            source: source.clone(),
            versions: self.entries()?,
        })
    }

    /// The newest version if the server has one that the machine doesn't have. Signatures are checked. Waits for the
    /// server at most for `patience`.
    pub fn check(&self, patience: Duration) -> Result<Option<Version>, Error> {
        let said = sysupdate::ask(self.program()?, &["--json=short", "check-new"], patience)
            .map_err(|failure| self.failed(failure))?;
        if !said.status.success() {
            return Err(Error::Sysupdate { status: said.status, said: last_line(&said.stderr) });
        }
        let answer = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        let unknown = || Error::Answer(answer.chars().take(200).collect());
        let value: serde_json::Value = serde_json::from_str(&answer).map_err(|_| unknown())?;
        match value.get("available") {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(version)) => {
                let version: Version = version.parse().map_err(|_| unknown())?;
                self.above_floor(&version)?;
                Ok(Some(version))
            }
            Some(_) => Err(unknown()),
        }
    }

    /// Writes a version, by default the newest, into the slot that isn't running. It is on trial from the next boot, or
    /// good if there are no trials. If the wanted version is already complete in that slot, it only gets its tries back.
    /// Returns none if there is nothing newer. Checking, making the version from patches, and downloading or writing it
    /// may each take up to `patience`. `whole` says to use no patches. `notice` is told why there are patches that are
    /// not used.
    pub fn apply(
        &self,
        wanted: Option<&Version>,
        whole: bool,
        patience: Duration,
        notice: impl Fn(&MirrorError),
    ) -> Result<Option<Applied>, Error> {
        let running = &self.settings.version;
        let entries = self.entries()?;
        if let Some(version) = wanted {
            self.above_floor(version)?;
            if version < running {
                return Err(Error::Older { version: version.clone(), running: running.clone() });
            }
            if version == running {
                return Err(Error::Runs(version.clone()));
            }
        }
        let runs = self.running(&entries)?;
        if runs.trial != Trial::Good {
            return Err(Error::OnTrial(running.clone()));
        }
        let is_on_trial = self.untried() != Trial::Good;
        if let Some(version) = wanted
            && let Some(there) = entries.iter().find(|entry| entry.version == *version)
            && self.settings.is_whole(version)
        {
            self.count(there, self.untried())?;
            return Ok(Some(Applied { version: version.clone(), saved: None, is_on_trial }));
        }
        let version = match wanted {
            Some(version) => version.clone(),
            None => match self.check(patience)? {
                Some(version) => version,
                None => return Ok(None),
            },
        };
        if !whole && let Some(patches) = &self.settings.patches {
            match self.patch(patches, runs, &version, patience) {
                Ok(None) => {}
                Ok(saved) => {
                    self.end_trial_if_none(&version)?;
                    return Ok(Some(Applied { version, saved, is_on_trial }));
                }
                Err(MirrorError::TooLong(patience)) => return Err(Error::TooLong(patience)),
                Err(error) => notice(&error),
            }
        }
        let done = sysupdate::order(self.program()?, &["update", &version.to_string()], patience)
            .map_err(|failure| self.failed(failure))?;
        if !done.status.success() {
            return Err(Error::Sysupdate { status: done.status, said: String::new() });
        }
        self.end_trial_if_none(&version)?;
        Ok(Some(Applied { version, saved: None, is_on_trial }))
    }

    /// Writes a version that is made from patches, if the server has any for it.
    fn patch(
        &self,
        patches: &Patches,
        runs: &Entry,
        version: &Version,
        patience: Duration,
    ) -> Result<Option<Saved>, MirrorError> {
        let boot_file = slots::boot_file(&self.settings.boot, runs);
        let Some(mirror) = Mirror::make(&self.settings, patches, &boot_file, version, patience)? else {
            return Ok(None);
        };
        mirror.write(&self.settings.sysupdate, patches, version, patience)?;
        Ok(Some(mirror.saved()))
    }

    /// Takes back what would boot next: a newer version than the running one, so that the running one boots again, or
    /// else the running version, by marking it as failed, so that the other slot's version boots. Returns what boots
    /// next.
    pub fn rollback(&self) -> Result<Version, Error> {
        let entries = self.entries()?;
        let running = self.running(&entries)?;
        // Marking the running version as failed would leave no version to fall back to if the update fails too.
        if running.trial == Trial::Good
            && let Some((update, done)) = entries.iter().find_map(|entry| match entry.trial {
                _ if entry.version <= running.version => None,
                Trial::Left { left: 1.., done } => Some((entry, done)),
                Trial::Left { .. } => None,
                // Without trials, an update is good before it boots.
                Trial::Good => Some((entry, 0)),
            })
        {
            self.count(update, Trial::Left { left: 0, done })?;
            return Ok(running.version.clone());
        }
        let other = entries
            .iter()
            .find(|entry| {
                entry.version != running.version
                    && entry.trial == Trial::Good
                    && self.settings.is_whole(&entry.version)
            })
            .ok_or(Error::NothingElse)?;
        self.above_floor(&other.version)?;
        // On a boot on trial, systemd-bless-boot would take `+0-1` for its own mark of a bad boot, and remove it once
        // the boot is good after all.
        let done = match running.trial {
            Trial::Left { done, .. } => done.saturating_add(1),
            Trial::Good => 1,
        };
        self.count(running, Trial::Left { left: 0, done })?;
        Ok(other.version.clone())
    }

    /// Reboots.
    pub fn reboot(&self) -> Result<(), Error> {
        let program = PathBuf::from("systemctl");
        let status = Command::new(&program)
            .arg("reboot")
            .status()
            .map_err(|source| Error::Start { program, source })?;
        if status.success() { Ok(()) } else { Err(Error::Reboot(status)) }
    }

    fn entries(&self) -> Result<Vec<Entry>, Error> {
        let Settings { boot, id, .. } = &self.settings;
        slots::entries(boot, id).map_err(|(path, source)| Error::Boot { path, source })
    }

    fn running<'a>(&self, entries: &'a [Entry]) -> Result<&'a Entry, Error> {
        let running = &self.settings.version;
        entries.iter().find(|entry| entry.version == *running).ok_or_else(|| Error::Unknown(running.clone()))
    }

    fn count(&self, entry: &Entry, trial: Trial) -> Result<(), Error> {
        let Settings { boot, id, .. } = &self.settings;
        slots::count(boot, id, entry, trial).map_err(|(path, source)| Error::Boot { path, source })
    }

    /// The state of a version that is to boot next.
    fn untried(&self) -> Trial {
        match self.settings.tries {
            0 => Trial::Good,
            left => Trial::Left { left, done: 0 },
        }
    }

    /// Without trials, takes a version's counter away: systemd-sysupdate gives every new boot file one.
    fn end_trial_if_none(&self, version: &Version) -> Result<(), Error> {
        if self.untried() != Trial::Good {
            return Ok(());
        }
        let entries = self.entries()?;
        match entries.iter().find(|entry| entry.version == *version) {
            Some(written) => self.count(written, Trial::Good),
            None => Ok(()),
        }
    }

    fn above_floor(&self, version: &Version) -> Result<(), Error> {
        match &self.settings.floor {
            Some(floor) if version < floor => {
                Err(Error::BelowFloor { version: version.clone(), floor: floor.clone() })
            }
            _ => Ok(()),
        }
    }

    fn program(&self) -> Result<&Path, Error> {
        if self.settings.source.is_none() { Err(Error::NoSource) } else { Ok(&self.settings.sysupdate) }
    }

    fn failed(&self, failure: sysupdate::Failure) -> Error {
        match failure {
            sysupdate::Failure::Start(source) => {
                Error::Start { program: self.settings.sysupdate.clone(), source }
            }
            sysupdate::Failure::TooLong(patience) => Error::TooLong(patience),
        }
    }
}

/// The last line of a program's output, shortened for a message.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("").chars().take(300).collect()
}
