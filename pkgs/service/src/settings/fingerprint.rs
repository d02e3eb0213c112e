//! What all settings of a process come to, in a number: whether another one is set alike.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use clap::ArgMatches;

/// That of this process, once it has parsed its settings.
static OF_THIS: OnceLock<Fingerprint> = OnceLock::new();

/// Sums up every setting, wherever it is from. Of use between processes of one program: another may sum up otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Of what the arguments, the environment and the file have come to, where there are any.
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

    /// This process is set so.
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

/// That of this process; none where it has none.
pub fn fingerprint() -> Option<Fingerprint> {
    OF_THIS.get().copied()
}
