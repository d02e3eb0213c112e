//! The services' audit logs, read from the end.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// How much of the end of a log is searched, in bytes: about 20,000 writes.
const LOOKED: u64 = 8 << 20;

/// How many lines are shown.
pub(crate) const SHOWN: usize = 100;

/// A service's audit log.
#[derive(Clone, Debug)]
pub(crate) struct AuditFile {
    /// The service's name.
    pub(crate) service: &'static str,
    /// The log's path.
    pub(crate) path: PathBuf,
}

/// A write, as the `service` crate logs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Line {
    pub(crate) kind: String,
    pub(crate) time: String,
    pub(crate) id: String,
    pub(crate) client: Option<String>,
    pub(crate) key: Option<i64>,
    pub(crate) name: Option<String>,
    pub(crate) action: String,
    pub(crate) target: Option<String>,
    pub(crate) count: u64,
}

/// What to search for. A line must match all fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The start of the action.
    pub(crate) action: String,
    /// The exact target.
    pub(crate) target: String,
    /// The key's name or number, or the address.
    pub(crate) who: String,
}

impl Wanted {
    fn has(&self, line: &Line) -> bool {
        let whose = [&line.name, &line.client, &line.key.map(|key| key.to_string())];
        line.kind == "audit"
            && line.action.starts_with(&self.action)
            && (self.target.is_empty() || line.target.as_deref() == Some(&self.target))
            && (self.who.is_empty() || whose.into_iter().flatten().any(|one| *one == self.who))
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Newest first.
    pub(crate) lines: Vec<Line>,
    /// Whether there may be older matches.
    pub(crate) more: bool,
}

impl AuditFile {
    /// The newest matching lines.
    ///
    /// # Errors
    /// When the file can't be read.
    pub(crate) async fn newest(&self, wanted: Wanted) -> io::Result<Found> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || newest(&path, &wanted)).await.map_err(io::Error::other)?
    }
}

fn newest(path: &Path, wanted: &Wanted) -> io::Result<Found> {
    // Reading from a pipe could block forever.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(LOOKED);
    file.seek(SeekFrom::Start(skipped))?;
    let mut text = Vec::new();
    file.take(LOOKED).read_to_end(&mut text)?;
    let mut lines = text.split(|byte| *byte == b'\n').rev();
    if skipped > 0 {
        // The first line in the searched part may be incomplete.
        lines.next_back();
    }
    let mut found = Found { lines: Vec::new(), more: skipped > 0 };
    for line in lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()) {
        if !wanted.has(&line) {
            continue;
        }
        if found.lines.len() == SHOWN {
            found.more = true;
            break;
        }
        found.lines.push(line);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[String]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), lines.join("\n")).expect("written");
        file
    }

    fn line(number: usize, action: &str, target: &str) -> String {
        format!(
            r#"{{"kind":"audit","time":"t","id":"{number}","client":"192.0.2.1","key":7,"name":"ops","action":"{action}","target":"{target}","before":null,"after":null,"count":1}}"#
        )
    }

    #[test]
    fn the_newest_lines_that_are_wanted_come_first() {
        let file = log(&[
            line(1, "user.create", "a"),
            r#"{"kind":"access","action":"user.create"}"#.to_owned(),
            "half a line {".to_owned(),
            line(2, "user.patch", "a"),
            line(3, "user.patch", "b"),
        ]);
        let of = |action: &str, target: &str, who: &str| Wanted {
            action: action.into(),
            target: target.into(),
            who: who.into(),
        };
        for (wanted, ids) in [
            (Wanted::default(), &["3", "2", "1"][..]),
            (of("", "a", ""), &["2", "1"]),
            (of("user.p", "", ""), &["3", "2"]),
            (of("", "", "ops"), &["3", "2", "1"]),
            (of("", "", "7"), &["3", "2", "1"]),
            (of("", "", "192.0.2.1"), &["3", "2", "1"]),
            (of("", "", "op"), &[]),
        ] {
            let found = newest(file.path(), &wanted).expect("read");
            let found: Vec<_> = found.lines.iter().map(|line| line.id.as_str()).collect();
            assert_eq!(found, ids, "{wanted:?}");
        }
    }

    #[test]
    fn a_long_log_is_read_from_its_end_and_no_further_than_is_shown() {
        let lines: Vec<_> = (0..80_000).map(|number| line(number, "user.create", "a")).collect();
        let file = log(&lines);
        assert!(file.as_file().metadata().expect("known").len() > LOOKED);
        let found = newest(file.path(), &Wanted::default()).expect("read");
        assert_eq!((found.lines.len(), found.more, &*found.lines[0].id), (SHOWN, true, "79999"));
        let none = newest(file.path(), &Wanted { target: "b".into(), ..Wanted::default() }).expect("read");
        assert_eq!((none.lines.len(), none.more), (0, true), "there may be some before");
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(newest(directory.path(), &Wanted::default()).is_err());
        assert!(newest(&directory.path().join("none"), &Wanted::default()).is_err());
    }
}
