//! Which database a command works on.

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

/// Where users are kept.
#[derive(Clone, Debug, clap::Args)]
pub struct DatabaseArgs {
    /// The database: sqlite:PATH or postgres://USER@HOST,HOST/DATABASE?PARAMETER=VALUE, with the parameters of libpq; hosts
    /// are tried one by one for one that takes writes. Beyond this machine by TLS that knows the host's name
    /// (sslrootcert=FILE), unless sslmode says otherwise. Default: the file $STATE_DIRECTORY/api.db under
    /// systemd, otherwise $XDG_DATA_HOME/linerate/api.db or ~/.local/share/linerate/api.db. Give a URL with a password
    /// by the variable, a credential of that name or the file of settings: everybody on the machine sees flags.
    #[arg(long, value_name = "URL", global = true, env = "LINERATE_API_DATABASE_URL", hide_env_values = true,
          value_parser = service::settings::secret::<DatabaseUrl>())]
    pub database_url: Option<DatabaseUrl>,
}

/// Which database a command works on that is not `serve`: the one that `serve` would.
#[derive(Clone, Debug, clap::Args)]
pub struct CommandArgs {
    /// Where.
    #[command(flatten)]
    pub database: DatabaseArgs,

    /// The file of settings that serve has, for its database-url.
    #[arg(long, value_name = "FILE", global = true, env = "LINERATE_API_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Why a database cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What `serve` is set to cannot be read.
    #[error(transparent)]
    Settings(#[from] settings::Error),
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
    /// What a command asks of it.
    #[error("cannot use {url}")]
    Use {
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

    /// The arguments by which a command works on the same database, as they would be typed. A password is not told.
    pub fn arguments(&self) -> String {
        match &self.database_url {
            Some(url) if *url != DatabaseUrl::Sqlite(default_file()) => format!(" --database-url {url}"),
            _ => String::new(),
        }
    }
}

/// A database that a command works on.
pub struct Opened {
    url: DatabaseUrl,
    runtime: Runtime,
    users: Users,
}

impl Opened {
    /// What it is called.
    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Has it do something.
    ///
    /// # Errors
    /// When it does not, with its URL.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&Users) -> Result<T, store::Error>) -> Result<T, Error> {
        let done = self.runtime.block_on(work(&self.users));
        done.map_err(|source| Error::Use { url: self.url.clone(), source })
    }
}

impl CommandArgs {
    /// The database asked for, or the one that `serve` has, by its file of settings or a credential, or the default.
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

    /// Opens the database for a command, which reads nothing twice and may wait.
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
    /// Whether another database would have helped, rather than another try.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Settings(_) | Self::Open { source: store::Error::Unusable(_), .. } => true,
            Self::Directory { .. } | Self::Open { .. } | Self::Use { .. } | Self::Runtime(_) => false,
        }
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
