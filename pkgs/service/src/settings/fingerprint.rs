//! A checksum of all settings of a process, to compare it with another process.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use clap::ArgMatches;

/// This process's checksum, once it has parsed its settings.
static OF_THIS: OnceLock<Fingerprint> = OnceLock::new();

/// A checksum of every setting, from whatever source. It can only be compared between processes of one program, since
/// other programs may compute it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The checksum of parsed arguments, environment and file, if there are any.
    pub(super) fn of(settings: Option<&ArgMatches>) -> Self {
        let raw = |settings: &ArgMatches, id: &str| {
            let values = settings.try_get_raw(id).ok().flatten().into_iter().flatten();
            values.map(OsStr::to_owned).collect::<Vec<_>>()
        };
        let ids =
            settings.into_iter().flat_map(|settings| settings.ids().map(move |id| (settings, id.as_str())));
        let values: BTreeMap<_, _> = ids.map(|(settings, id)| (id, raw(settings, id))).collect();
        let mut hasher = DefaultHasher::new();
        values.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// Records the checksum as this process's own.
    pub(super) fn is_of_this_process(self) {
        // A process parses its own settings once.
        let _ = OF_THIS.set(self);
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// This process's checksum; none without settings.
pub fn fingerprint() -> Option<Fingerprint> {
    OF_THIS.get().copied()
}
