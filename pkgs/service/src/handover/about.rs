//! How a process describes itself to a reload, which compares two descriptions to find out whether it has to be
//! replaced.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::settings;

/// A checksum, set by the unit, of how the unit starts processes. If it differs, another process takes over even if
/// program and settings are the same.
const UNIT: &str = "LINERATE_UNIT";

/// A checksum of the files that the service manager loads as credentials. It loads them only when it starts a unit, so
/// a process that takes over would find the old ones.
const CREDENTIALS: &str = "LINERATE_UNIT_CREDENTIALS";

/// Variables that tell how to reach the service manager. It sets them only for main processes, and the next process
/// needs the same ones.
pub(super) const OF_MANAGER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "FDSTORE"];

/// The longest text that is sent; checksums are shorter.
const MAX_BYTES: usize = 256;

/// A description: texts by their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct About(BTreeMap<String, String>);

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// They are the same.
    None,
    /// Another process has to take over, since this differs.
    Of(&'static str),
    /// Credentials differ, which only a process started by the service manager receives.
    Credentials,
}

impl About {
    /// Describes this process, whose settings have the checksum `settings`.
    ///
    /// # Errors
    /// When its program cannot be inspected.
    pub fn of_process(settings: Option<settings::Fingerprint>) -> io::Result<Self> {
        let program = fs::metadata("/proc/self/exe")?;
        let program = [
            program.dev(),
            program.ino(),
            program.size(),
            program.mtime() as u64,
            program.mtime_nsec() as u64,
        ];
        let mut texts = BTreeMap::from([
            ("program".to_owned(), program.map(|number| number.to_string()).join(" ")),
            ("settings".to_owned(), settings.map(|settings| settings.to_string()).unwrap_or_default()),
        ]);
        for name in [UNIT, CREDENTIALS].into_iter().chain(OF_MANAGER) {
            let value = env::var(name).ok().filter(|value| value.len() <= MAX_BYTES);
            texts.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(Self(texts))
    }

    /// Reads what a process has sent, each as `NAME=TEXT`.
    pub fn told(texts: impl Iterator<Item = String>) -> Self {
        Self(
            texts
                .filter_map(|text| text.split_once('=').map(|(n, t)| (n.to_owned(), t.to_owned())))
                .collect(),
        )
    }

    /// The texts to send.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|(name, text)| format!("{name}={text}")).collect()
    }

    /// The variables that tell how to reach the service manager.
    pub fn manager(&self) -> impl Iterator<Item = (&'static str, Option<&str>)> {
        OF_MANAGER.into_iter().map(|name| (name, self.text(name)))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What differs in the process that is `wanted`.
    pub fn differs_from(&self, wanted: &Self) -> Difference {
        let differs = |name| self.text(name) != wanted.text(name);
        if differs(CREDENTIALS) {
            return Difference::Credentials;
        }
        let rest = [("program", "another program"), ("settings", "other settings"), (UNIT, "another unit")];
        let first = rest.into_iter().find(|(name, _)| differs(name));
        first.map_or(Difference::None, |(_, what)| Difference::Of(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_says_whether_another_process_takes_over_or_the_unit_is_started_anew() {
        let about = |more: &[&str]| {
            let same = ["program=1 2", "settings=abc", "LINERATE_UNIT=u", "LINERATE_UNIT_CREDENTIALS=c"];
            About::told([&same, more].concat().into_iter().map(str::to_owned))
        };
        let cases = [
            (&[][..], Difference::None),
            // How to reach the service manager does not count as a difference.
            (&["NOTIFY_SOCKET=/other", "WATCHDOG_USEC=7"], Difference::None),
            (&["program=1 3"], Difference::Of("another program")),
            (&["settings=abd"], Difference::Of("other settings")),
            (&["LINERATE_UNIT="], Difference::Of("another unit")),
            (&["LINERATE_UNIT_CREDENTIALS=d"], Difference::Credentials),
            (&["LINERATE_UNIT_CREDENTIALS=d", "program=1 3"], Difference::Credentials),
        ];
        for (more, difference) in cases {
            assert_eq!(about(&[]).differs_from(&about(more)), difference, "{more:?}");
        }
    }

    #[test]
    fn what_is_told_is_heard() {
        let own = About::of_process(None).expect("it runs");
        assert_eq!(About::told(own.texts().into_iter()), own);
        assert_eq!(own.differs_from(&own), Difference::None);
    }
}
