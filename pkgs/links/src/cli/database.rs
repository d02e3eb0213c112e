//! Which database a command works on.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};

use super::Error;
use super::policy::PolicyArgs;
use crate::store::{Options, Pending, Store};

/// Commands that may wait for the writer: a command line has few at a time.
const QUEUE: usize = 64;

/// Where the database is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DatabaseArgs {
    /// The database file. Default: $STATE_DIRECTORY/links.db under systemd, otherwise
    /// $XDG_DATA_HOME/linerate/links.db or ~/.local/share/linerate/links.db.
    #[arg(long, value_name = "PATH", env = "LINERATE_LINKS_DATABASE",
          value_parser = OsStringValueParser::new().try_map(file))]
    pub database: Option<PathBuf>,

    /// A TOML file with the server's settings, named as its flags without their dashes in front.
    #[arg(long, value_name = "FILE", env = "LINERATE_LINKS_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Why a text is no database's path.
#[derive(Debug, thiserror::Error)]
#[error("links are in a file on this machine, and {0}:// names none")]
struct NotAFile(String);

fn file(path: OsString) -> Result<PathBuf, NotAFile> {
    match path.to_str().and_then(|path| path.split_once("://")) {
        Some((scheme, _)) => Err(NotAFile(scheme.to_owned())),
        None => Ok(path.into()),
    }
}

/// What to do where there is no database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// Create it.
    Create,
    /// Say so.
    Refuse,
}

impl DatabaseArgs {
    /// The file asked for, or the default.
    pub fn path(&self) -> PathBuf {
        self.database.clone().unwrap_or_else(default_database)
    }

    /// Opens the database for a command.
    pub fn open(&self, policy: &PolicyArgs, missing: IfMissing) -> Result<OpenDatabase, Error> {
        let path = self.path();
        match missing {
            IfMissing::Create => create_parent(&path)?,
            IfMissing::Refuse if !path.exists() => return Err(Error::NoDatabase(path)),
            IfMissing::Refuse => {}
        }
        let options = Options {
            path,
            codes: policy.codes(),
            targets: policy.targets(),
            queue: QUEUE,
            on_change: Box::new(|_| {}),
        };
        let path = self.path();
        match Store::open(options) {
            Ok(store) => Ok(OpenDatabase { store, path }),
            Err(source) => Err(Error::Database { path, source }),
        }
    }
}

/// An open database, closed in the end. It goes after the readers: then SQLite tidies its log away.
pub struct OpenDatabase {
    store: Store,
    path: PathBuf,
}

impl OpenDatabase {
    /// What came of a write; where the database is at fault, with its path.
    ///
    /// # Errors
    /// Why it was not written.
    pub fn done<T>(&self, pending: Pending<T>) -> Result<T, Error> {
        use crate::store::Error::{Busy, CannotOpen, Full, NotCommitted, ReadOnly};
        pending.wait().map_err(|source| match source {
            Busy | CannotOpen | Full | NotCommitted(_) | ReadOnly => {
                Error::Database { path: self.path.clone(), source }
            }
            source => source.into(),
        })
    }
}

impl Deref for OpenDatabase {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        self.store.close();
    }
}

/// Makes sure that the directory of a file is there.
pub fn create_parent(path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => {
            fs::create_dir_all(directory).map_err(|source| Error::File { path: directory.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Where the database is unless told otherwise: in systemd's state directory (the first, where it has
/// several), or in the user's data directory (XDG Base Directory Specification), or right here.
pub fn default_database() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directories) = set("STATE_DIRECTORY") {
        let first = env::split_paths(&directories).next().unwrap_or_default();
        return first.join("links.db");
    }
    set("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|directory| directory.is_absolute())
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".local/share")))
        .map_or_else(|| PathBuf::from("links.db"), |data| data.join("linerate/links.db"))
}
