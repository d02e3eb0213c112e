//! The database of a command.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use service::settings;
use tokio::runtime::Runtime;

use super::{Cli, Command, NAME};
use crate::store;
use crate::users::{DatabaseUrl, Options, Users};

/// The place of the users.
#[derive(Clone, Debug, clap::Args)]
pub struct DatabaseArgs {
    /// The database: sqlite:PATH or postgres://USER@HOST,HOST/DATABASE?PARAMETER=VALUE, with libpq's parameters. Hosts
    /// are tried one by one until one accepts writes. Hosts other than this machine need TLS that verifies the host's
    /// name (sslrootcert=FILE), unless sslmode says otherwise. Default: the file $STATE_DIRECTORY/api.db under systemd,
    /// otherwise $XDG_DATA_HOME/linerate/api.db or ~/.local/share/linerate/api.db. Give a URL with a password in the
    /// variable, a credential of that name or the file of settings, since flags are visible to everybody on the
    /// machine.
    #[arg(long, value_name = "URL", global = true, env = "LINERATE_API_DATABASE_URL", hide_env_values = true,
          value_parser = service::settings::secret::<DatabaseUrl>())]
    pub database_url: Option<DatabaseUrl>,
}

/// The database of a command other than `serve`: the same as `serve` would use.
#[derive(Clone, Debug, clap::Args)]
pub struct CommandArgs {
    /// Where.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// The file of settings of serve, for its database-url.
    #[arg(long, value_name = "FILE", global = true, env = "LINERATE_API_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings of `serve` cannot be read.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The directory of the database file cannot be created.
    #[error("cannot create {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The database cannot be opened.
    #[error("cannot open {url}")]
    Open {
        /// The database.
        url: DatabaseUrl,
        /// The cause.
        source: store::Error,
    },
    /// A command's query failed.
    #[error("cannot use {url}")]
    Use {
        /// The database.
        url: DatabaseUrl,
        /// The cause.
        source: store::Error,
    },
    /// The threads that work on the database cannot be started.
    #[error(transparent)]
    Runtime(#[from] std::io::Error),
}

impl DatabaseArgs {
    /// The requested database, or the default.
    pub fn url(&self) -> DatabaseUrl {
        self.database_url.clone().unwrap_or_else(|| DatabaseUrl::Sqlite(default_file()))
    }
}

/// An open database of a command.
pub struct Opened {
    url: DatabaseUrl,
    runtime: Runtime,
    users: Users,
}

impl Opened {
    /// Its URL.
    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Runs work on it.
    ///
    /// # Errors
    /// When the work fails, with its URL.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&Users) -> Result<T, store::Error>) -> Result<T, Error> {
        let done = self.runtime.block_on(work(&self.users));
        done.map_err(|source| Error::Use { url: self.url.clone(), source })
    }
}

impl CommandArgs {
    /// The requested database, or the one of `serve` from its file of settings or a credential, or the default.
    ///
    /// # Errors
    /// When the settings of `serve` cannot be read.
    pub fn url(&self) -> Result<DatabaseUrl, Error> {
        if let Some(url) = &self.database.database_url {
            return Ok(url.clone());
        }
        let mut serve: Vec<OsString> = vec![NAME.into(), "serve".into()];
        if let Some(config) = &self.config {
            serve.extend(["--config".into(), config.into()]);
        } else if env::var_os("CREDENTIALS_DIRECTORY").is_none() {
            return Ok(self.database.url());
        }
        match settings::try_parse_args::<Cli>("api", "serve", serve)?.command {
            Command::Serve(serve) => Ok(serve.database.url()),
            _ => Ok(self.database.url()),
        }
    }

    /// Opens the database for a command, which needs no cache and may wait.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&self) -> Result<Opened, Error> {
        let url = self.url()?;
        let (runtime, users) = open(&Options {
            cache_bytes: 0,
            timeout: Duration::from_secs(60),
            acquire_timeout: Duration::from_secs(30),
            workers: NonZero::<usize>::MIN,
            ..Options::new(url.clone())
        })?;
        Ok(Opened { url, runtime, users })
    }
}

impl Error {
    /// Whether the error calls for another database instead of another attempt.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Settings(_) | Self::Open { source: store::Error::Unusable(_), .. } => true,
            Self::Directory { .. } | Self::Open { .. } | Self::Use { .. } | Self::Runtime(_) => false,
        }
    }
}

/// Opens a database, and makes the runtime that it works on.
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
