//! Stage 7's kernel settings, which are set while that stage and the next one are started and loaded.

use std::fs;
use std::path::PathBuf;

use bench::report::Report;
use bench::{Error, setup};
use ladder::api::STAGES;
use ladder::api::s7_kernel::{self, SETTINGS};

/// The settings that can be set here.
pub struct Kernel {
    settings: Vec<(PathBuf, &'static str)>,
}

/// The original values, which are restored when this is dropped.
pub struct Set {
    before: Vec<(PathBuf, String)>,
}

impl Kernel {
    /// Finds out what the bench's network namespace allows it to set, and adds that to the report.
    pub fn new(report: &mut Report) -> Self {
        if !setup::owns_network() {
            report.condition("kernel settings: none, for the machine's are not the bench's to change".into());
            return Self::untouched();
        }
        let path = |name: &str| PathBuf::from("/proc/sys").join(name.replace('.', "/"));
        let (possible, not): (Vec<_>, Vec<_>) = SETTINGS.iter().partition(|(name, _)| {
            let path = path(name);
            // Writing the current value changes nothing.
            fs::read_to_string(&path).and_then(|value| fs::write(&path, value)).is_ok()
        });
        let names = |settings: &[&(&str, &str)]| {
            settings.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        report.condition(format!("kernel settings of stages 7 and 8: {}", names(&possible)));
        if !not.is_empty() {
            report.condition(format!("not to be set in a namespace: {}", names(&not)));
        }
        Self { settings: possible.into_iter().map(|(name, value)| (path(name), *value)).collect() }
    }

    /// Sets nothing.
    pub fn untouched() -> Self {
        Self { settings: Vec::new() }
    }

    /// Sets them while the result lives, if the stage is served with them.
    pub fn around(&self, stage: &str) -> Result<Set, Error> {
        let mut set = Set { before: Vec::new() };
        let first = STAGES.iter().position(|other| other.name == s7_kernel::STAGE.name);
        let this = STAGES.iter().position(|other| other.name == stage);
        if this.is_none() || this < first {
            return Ok(set);
        }
        for (path, value) in &self.settings {
            let before = fs::read_to_string(path).map_err(Error::file(path))?;
            fs::write(path, value).map_err(Error::file(path))?;
            set.before.push((path.clone(), before));
        }
        Ok(set)
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        for (path, value) in &self.before {
            if let Err(error) = fs::write(path, value) {
                eprintln!("{}: {error}", path.display());
            }
        }
    }
}
