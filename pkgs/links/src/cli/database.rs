//! The database of a command.

use std::num::NonZero;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fmt, fs};

use postgres::{Conninfo, InvalidConninfo};

use super::Error;
use super::policy::PolicyArgs;
use crate::store::{self, Options, Pending, PostgresOptions, Reader, Store};

/// How many writes of a command may wait for the writer. A command has few at a time.
const QUEUE: usize = 64;

/// Connections of a command: one in use, and one spare.
const CONNECTIONS: NonZero<u32> = NonZero::new(2).expect("two is not zero");

/// How long PostgreSQL may take to answer a command.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The longest scheme that an error shows, in bytes.
const MOST_SCHEME: usize = 16;

/// Where the database is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DatabaseArgs {
    /// The database: a file, or postgres://USER@HOST,HOST/DATABASE?PARAMETER=VALUE with libpq's parameters. Several
    /// servers can share a PostgreSQL database; backup and check are only for files. Default: the file
    /// $STATE_DIRECTORY/links.db under systemd, otherwise $XDG_DATA_HOME/linerate/links.db or
    /// ~/.local/share/linerate/links.db. Give a URL with a password in the variable, a credential of that name or the
    /// file of settings, since flags are visible to everybody on the machine.
    #[arg(long, value_name = "PATH|URL", env = "LINERATE_LINKS_DATABASE", hide_env_values = true,
          value_parser = service::settings::secret::<Location>())]
    pub database: Option<Location>,

    /// A TOML file with the server's settings; keys are the flags without their leading dashes.
    #[arg(long, value_name = "FILE", env = "LINERATE_LINKS_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The place of the database.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A file.
    File(PathBuf),
    /// A PostgreSQL server.
    Postgres(Box<Conninfo>),
}

/// The text is not a valid database. The error does not repeat it, since it may contain a password in an unexpected
/// place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLocation {
    /// It has an unknown scheme.
    #[error("links are in a file on this machine or in PostgreSQL, and {0}:// names neither")]
    Scheme(String),
    /// It starts like a PostgreSQL URL.
    #[error(transparent)]
    Postgres(#[from] InvalidConninfo),
}

impl FromStr for Location {
    type Err = InvalidLocation;

    fn from_str(text: &str) -> Result<Self, InvalidLocation> {
        match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(Box::new(text.parse()?))),
            Some((scheme, _)) if !scheme.contains('/') && scheme.len() <= MOST_SCHEME => {
                Err(InvalidLocation::Scheme(scheme.to_owned()))
            }
            _ => Ok(Self::File(text.into())),
        }
    }
}

/// Displays the location without the secrets of a URL.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What to do if there is no database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// Create it.
    Create,
    /// Fail.
    Refuse,
}

impl DatabaseArgs {
    /// The requested database, or the default.
    pub fn location(&self) -> Location {
        self.database.clone().unwrap_or_else(|| Location::File(default_database()))
    }

    /// Opens the database for reading alone, for commands that need a file. They do not migrate it: a server of an
    /// older release may use it, or it may be kept for one.
    ///
    /// # Errors
    /// When it is not a file, or cannot be opened.
    pub fn read_a_file(&self) -> Result<Reader, Error> {
        match self.location() {
            Location::File(path) if !path.exists() => Err(Error::NoDatabase(path)),
            Location::File(path) => {
                store::open_reader(&path).map_err(|source| Error::Database { path, source })
            }
            Location::Postgres(_) => Err(store::Error::OnlyFiles.into()),
        }
    }

    /// Opens the database for a command. `missing` says what to do if there is no file.
    pub fn open(&self, policy: &PolicyArgs, missing: IfMissing) -> Result<OpenDatabase, Error> {
        let location = self.location();
        let shown = PathBuf::from(location.to_string());
        let opened = match location {
            Location::File(path) => {
                match missing {
                    IfMissing::Create => create_parent(&path)?,
                    IfMissing::Refuse if !path.exists() => return Err(Error::NoDatabase(path)),
                    IfMissing::Refuse => {}
                }
                Store::open(Options {
                    path,
                    codes: policy.codes(),
                    targets: policy.targets(),
                    queue: QUEUE,
                    on_change: Box::new(|_| {}),
                })
            }
            Location::Postgres(url) => Store::connect(PostgresOptions {
                url: *url,
                codes: policy.codes(),
                targets: policy.targets(),
                queue: QUEUE,
                connections: CONNECTIONS,
                timeout: TIMEOUT,
                pipelines: NonZero::<usize>::MIN,
                staleness: TIMEOUT,
                serves: false,
                traced: false,
                watch: Arc::new(()),
            }),
        };
        match opened {
            Ok(store) => Ok(OpenDatabase { store, path: shown }),
            Err(source) => Err(Error::Database { path: shown, source }),
        }
    }
}

/// An open database, which is closed when dropped. Drop it after the readers, so that SQLite removes its log.
pub struct OpenDatabase {
    store: Store,
    path: PathBuf,
}

impl OpenDatabase {
    /// Waits for a write. If the database is at fault, the error contains its path.
    ///
    /// # Errors
    /// The reason why it was not written.
    pub fn done<T>(&self, pending: Pending<T>) -> Result<T, Error> {
        use crate::store::Error::{Busy, CannotOpen, Full, NotCommitted, Postgres, ReadOnly, Unreachable};
        pending.wait().map_err(|source| match source {
            Busy | CannotOpen | Full | NotCommitted(_) | Postgres(_) | ReadOnly | Unreachable(_) => {
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

/// Creates the directory of a file if necessary.
pub fn create_parent(path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => {
            fs::create_dir_all(directory).map_err(|source| Error::File { path: directory.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// The default database. It is in systemd's state directory (the first one, if there are several), in the user's data
/// directory (XDG Base Directory Specification), or in the current directory.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_file_or_in_postgresql_and_is_shown_without_its_password() {
        for (text, shown) in [
            ("links.db", Some("links.db")),
            ("/var/lib/a=b.db", Some("/var/lib/a=b.db")),
            ("./postgres:/x", Some("./postgres:/x")),
            ("postgres://ada:secret@db.example:5433/links", Some("postgres://db.example:5433/links")),
            ("postgresql:///links?host=/run/postgresql", Some("postgres:///links")),
            ("postgres://ada@db/links?passwort=secret", None),
            ("postgres://ada:sec@ret@db/links", None),
            ("mysql://x", None),
            ("sqlite://links.db", None),
        ] {
            let location = text.parse::<Location>().ok();
            assert_eq!(location.map(|location| format!("{location:?}")).as_deref(), shown, "{text}");
        }
    }
}
