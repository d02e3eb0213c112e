//! Since when something has been found, from one look to the next.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::Finding;

/// Where it is kept unless told otherwise: since this boot.
pub const DIRECTORY: &str = "/run/linerate-doctor";

/// When each finding was first seen, in seconds since 1970, by rule and subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    first: BTreeMap<String, u64>,
    path: Option<PathBuf>,
}

impl Since {
    /// Kept in a directory, where it may be read; whatever cannot be is as if nothing had been found before.
    pub fn load(directory: &Path) -> Self {
        let path = directory.join("since.json");
        let first =
            fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { first, path: Some(path) }
    }

    /// Writes into findings when they were first seen, and forgets what is no longer found.
    pub fn note(&mut self, findings: &mut [Finding], now: u64) {
        let before = std::mem::take(&mut self.first);
        for finding in findings {
            let key = format!("{} {}", finding.rule, finding.subject);
            let first = before.get(&key).copied().unwrap_or(now);
            finding.since = Some(first);
            self.first.insert(key, first);
        }
    }

    /// Keeps it for the next look.
    pub fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let new = path.with_extension("new");
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(&new, serde_json::to_vec(&self.first)?)?;
        fs::rename(new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_counts_until_it_is_well_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let look = |subjects: &[&str], now| {
            let mut since = Since::load(directory.path());
            let mut findings: Vec<Finding> =
                subjects.iter().map(|&name| Finding::symptom(name, "")).collect();
            since.note(&mut findings, now);
            since.save().expect("saved");
            findings.iter().map(|finding| finding.since.expect("a time")).collect::<Vec<_>>()
        };
        assert_eq!(look(&["a"], 10), [10]);
        assert_eq!(look(&["a", "b"], 20), [10, 20]);
        assert_eq!(look(&["b"], 30), [20]);
        assert_eq!(look(&["a", "b"], 40), [40, 20]);
    }
}
