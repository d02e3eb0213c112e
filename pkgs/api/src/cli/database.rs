//! Which database a command works on.

use std::env;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::store;
use crate::users::{DatabaseUrl, Options, Users};

/// Where users are kept.
#[derive(Clone, Debug, clap::Args)]
pub struct DatabaseArgs {
    /// The database: sqlite:PATH or postgres://USER@HOST/DATABASE. Default: the file $STATE_DIRECTORY/api.db under
    /// systemd, otherwise $XDG_DATA_HOME/linerate/api.db or ~/.local/share/linerate/api.db.
    #[arg(long, value_name = "URL", env = "LINERATE_API_DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<DatabaseUrl>,
}

/// Why a database cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory of its file.
    #[error("cannot create {}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The database itself.
    #[error("cannot open {url}")]
    Open {
        /// Which.
        url: DatabaseUrl,
        /// Why not.
        source: store::Error,
    },
    /// The threads that work on it.
    #[error(transparent)]
    Runtime(#[from] std::io::Error),
}

impl DatabaseArgs {
    /// The database asked for, or the default.
    pub fn url(&self) -> DatabaseUrl {
        self.database_url.clone().unwrap_or_else(|| DatabaseUrl::Sqlite(default_file()))
    }

    /// Opens the database for a command, which reads nothing twice and may wait; with the runtime it works on.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&self) -> Result<(Runtime, Users), Error> {
        open(&Options {
            cache_bytes: 0,
            timeout: Duration::from_secs(60),
            acquire_timeout: Duration::from_secs(30),
            workers: NonZero::<usize>::MIN,
            ..Options::new(self.url())
        })
    }
}

/// Opens a database, with the runtime it works on.
///
/// # Errors
/// When it cannot be opened.
pub fn open(options: &Options) -> Result<(Runtime, Users), Error> {
    if let DatabaseUrl::Sqlite(path) = &options.database {
        create_parent(path)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("api-store")
        .enable_all()
        .build()?;
    let users = runtime.block_on(Users::open(options));
    let users = users.map_err(|source| Error::Open { url: options.database.clone(), source })?;
    Ok((runtime, users))
}

fn create_parent(path: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    fs::create_dir_all(parent).map_err(|source| Error::Directory { path: parent.to_owned(), source })
}

fn default_file() -> PathBuf {
    let directory = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(state) = directory("STATE_DIRECTORY") {
        return state.join("api.db");
    }
    let data = directory("XDG_DATA_HOME").or_else(|| Some(directory("HOME")?.join(".local/share")));
    data.unwrap_or_default().join("linerate/api.db")
}
