//! Keeps from one check to the next since when and how often each finding has existed, and which findings have been
//! resolved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::Finding;

/// The default directory; its content lasts until the next boot.
pub const DIRECTORY: &str = "/run/linerate-doctor";

/// How many resolved findings are remembered: the most recent ones.
const REMEMBERED: usize = 256;

/// What is known about a finding; times are in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// When it was first seen since it last began.
    pub begun: u64,
    /// When it was no longer seen; absent while it still is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// How often it has begun.
    pub times: u32,
}

/// A finding that has been resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedFinding {
    /// The rule that found it.
    pub rule: String,
    /// What it concerned.
    pub subject: String,
    /// When it was first seen, the last time that it began.
    pub begun: u64,
    /// When it was no longer seen.
    pub ended: u64,
    /// How often it was found.
    pub times: u32,
}

/// What is known about each finding, by rule and subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    noted: BTreeMap<String, Noted>,
    path: Option<PathBuf>,
}

impl Since {
    /// Loads the notes from a directory. Notes that can't be read count as absent.
    pub fn load(directory: &Path) -> Self {
        let path = directory.join("since.json");
        let noted =
            fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { noted, path: Some(path) }
    }

    /// Adds to each finding since when and how often it has existed, and marks all other known findings as resolved.
    pub fn note(&mut self, findings: &mut [Finding], now: u64) {
        let mut before = std::mem::take(&mut self.noted);
        for finding in findings {
            let key = key(finding.rule, &finding.subject);
            let noted = match before.remove(&key) {
                Some(noted) if noted.ended.is_none() => noted,
                known => Noted {
                    begun: now,
                    ended: None,
                    times: known.map_or(0, |known| known.times).saturating_add(1),
                },
            };
            finding.since = Some(noted.begun);
            finding.times = Some(noted.times);
            self.noted.insert(key, noted);
        }
        let mut well: Vec<_> = before.into_iter().collect();
        for (_, noted) in &mut well {
            noted.ended.get_or_insert(now);
        }
        well.sort_by_key(|(_, noted)| std::cmp::Reverse(noted.ended));
        well.truncate(REMEMBERED);
        self.noted.extend(well);
    }

    /// Completes findings from the notes of another doctor, which checked earlier and more often.
    pub fn add_to(&self, findings: &mut [Finding]) {
        for finding in findings {
            let noted = self.noted.get(&key(finding.rule, &finding.subject));
            if let Some(noted) = noted.filter(|noted| noted.ended.is_none()) {
                finding.since = Some(finding.since.map_or(noted.begun, |since| since.min(noted.begun)));
                finding.times = finding.times.max(Some(noted.times));
            }
        }
    }

    /// Resolved findings, most recent first.
    pub fn past(&self) -> Vec<ResolvedFinding> {
        let past = self.noted.iter().filter_map(|(key, noted)| {
            let (rule, subject) = key.split_once(' ')?;
            let Noted { begun, ended, times } = *noted;
            Some(ResolvedFinding {
                rule: rule.to_owned(),
                subject: subject.to_owned(),
                begun,
                ended: ended?,
                times,
            })
        });
        let mut past: Vec<ResolvedFinding> = past.collect();
        past.sort_by_key(|one| std::cmp::Reverse(one.ended));
        past
    }

    /// Saves the notes for the next check.
    pub fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let new = path.with_extension("new");
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(&new, serde_json::to_vec(&self.noted)?)?;
        fs::rename(new, path)
    }
}

/// The key of a finding. It is unambiguous, since no rule has a space in its name.
fn key(rule: &str, subject: &str) -> String {
    format!("{rule} {subject}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(subjects: &[&str]) -> Vec<Finding> {
        subjects.iter().map(|&name| Finding { rule: "disk", ..Finding::symptom(name, "") }).collect()
    }

    #[test]
    fn the_first_look_counts_until_it_is_well_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let look = |subjects: &[&str], now| {
            let mut since = Since::load(directory.path());
            let mut findings = findings(subjects);
            since.note(&mut findings, now);
            since.save().expect("saved");
            findings
                .iter()
                .map(|finding| (finding.since.expect("a time"), finding.times.expect("a count")))
                .collect::<Vec<_>>()
        };
        assert_eq!(look(&["a"], 10), [(10, 1)]);
        assert_eq!(look(&["a", "b c"], 20), [(10, 1), (20, 1)]);
        assert_eq!(look(&["b c"], 30), [(20, 1)]);
        assert_eq!(look(&["a", "b c"], 40), [(40, 2), (20, 1)]);
        assert_eq!(look(&[], 50), []);
        let past = Since::load(directory.path()).past();
        let past: Vec<_> =
            past.iter().map(|one| (&*one.rule, &*one.subject, one.begun, one.ended, one.times)).collect();
        assert_eq!(past, [("disk", "a", 40, 50, 2), ("disk", "b c", 20, 50, 1)]);
    }

    #[test]
    fn what_is_well_again_is_remembered_within_bounds() {
        let mut since = Since::default();
        for number in 0..=REMEMBERED as u64 + 1 {
            since.note(&mut findings(&[&number.to_string()]), number);
        }
        let past = since.past();
        assert_eq!((past.len(), &*past[0].subject, &*past[REMEMBERED - 1].subject), (REMEMBERED, "256", "1"));
        assert_eq!(since.noted.len(), REMEMBERED + 1, "and what is found now");
    }

    #[test]
    fn what_another_has_noted_is_added_to_what_is_still_found() {
        let (mut box_doctor, mut own) = (Since::default(), Since::default());
        box_doctor.note(&mut findings(&["a", "b"]), 10);
        box_doctor.note(&mut findings(&["b"]), 20);
        let mut found = findings(&["a", "b", "c"]);
        own.note(&mut found, 30);
        box_doctor.add_to(&mut found);
        let told: Vec<_> = found.iter().map(|one| (one.since, one.times)).collect();
        assert_eq!(told, [(Some(30), Some(1)), (Some(10), Some(1)), (Some(30), Some(1))]);
    }
}
