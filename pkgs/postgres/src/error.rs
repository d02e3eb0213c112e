//! Errors of PostgreSQL.

use std::fmt;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::conninfo::Role;
use crate::password::PasswordError;

/// Why PostgreSQL didn't do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All sessions are in use, and stayed in use for as long as a caller waits for one.
    #[error("all connections to PostgreSQL are busy")]
    Busy,
    /// No host could be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There was no answer in time. It is then unknown whether a write was done.
    #[error("PostgreSQL did not answer within {0:?}")]
    Timeout(Duration),
    /// A statement failed, or the connection was lost. If it was lost, it is unknown whether a write was done.
    #[error("{}", told(.0))]
    Query(#[source] tokio_postgres::Error),
    /// The schema is newer than this program, and programs that don't know its version can't use it.
    #[error("the schema is at {found} and needs a program that knows {min_reader}; this one knows {known}")]
    Newer {
        /// The schema's version.
        found: i64,
        /// The oldest version that a program has to know to use the schema.
        min_reader: i64,
        /// The latest version that this program knows.
        known: i64,
    },
    /// Another program has tables with the same names.
    #[error("it is the database of another program")]
    Foreign,
    /// The task that ran the query has ended, with its runtime.
    #[error("the task that asked PostgreSQL has ended")]
    Ended,
}

/// What an error means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It may succeed later.
    Busy,
    /// The database is away. Whether a write was done is unknown.
    Unreachable,
    /// The server's disk is full.
    Full,
    /// It won't succeed.
    Failed,
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Query(error)
    }
}

impl Error {
    /// The kind, from SQLSTATE (postgresql.org/docs/current/errcodes-appendix.html).
    pub fn kind(&self) -> Kind {
        match self {
            Self::Busy => Kind::Busy,
            Self::Connect(_) | Self::Timeout(_) | Self::Ended => Kind::Unreachable,
            Self::Newer { .. } | Self::Foreign => Kind::Failed,
            Self::Query(error) => match error.code().map(SqlState::code) {
                None => Kind::Unreachable,
                // Too many connections, a timeout of a statement or a lock, a deadlock, a serialization failure.
                Some("53300" | "57014" | "55P03" | "40P01" | "40001") => Kind::Busy,
                // The server is shutting down, has crashed, or is starting up, or it no longer accepts writes.
                Some("57P01" | "57P02" | "57P03" | "25006") => Kind::Unreachable,
                // Connection exceptions, which poolers report too.
                Some(code) if code.starts_with("08") => Kind::Unreachable,
                Some("53100") => Kind::Full,
                Some(_) => Kind::Failed,
            },
        }
    }

    /// Whether a unique index prevented it.
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Query(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION))
    }

    /// Whether its session can't be used any more: it is lost, or its server has changed.
    pub(crate) fn ends_session(&self) -> bool {
        // 0A000: a prepared statement's result has changed with the schema.
        let stale =
            matches!(self, Self::Query(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED));
        stale || self.kind() == Kind::Unreachable
    }
}

/// The message, and the server's detail if there is one.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(told) => format!("PostgreSQL: {} ({})", told.message(), told.code().code()),
        None => "the connection to PostgreSQL failed".to_owned(),
    }
}

/// No host could be connected to; each attempt has its reason.
#[derive(Debug)]
pub struct ConnectError {
    /// The attempts, in order.
    pub attempts: Vec<Attempt>,
}

/// An attempt to connect to a host.
#[derive(Debug)]
pub struct Attempt {
    /// The host as named.
    pub host: String,
    /// The reason.
    pub reason: Reason,
}

/// Why a host isn't suitable.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// Its name can't be resolved, or there was a network error.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Its deadline has passed.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// It doesn't have the requested role.
    #[error("{}", not(*.0))]
    Role(Role),
    /// A certificate or key for it can't be used.
    #[error("{0}")]
    Tls(String),
    /// There is no password for it.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The server's error.
    #[error("{}", chain(.0))]
    Server(#[from] tokio_postgres::Error),
}

fn not(role: Role) -> &'static str {
    match role {
        Role::Any | Role::PreferStandby => "it does not answer",
        Role::ReadWrite => "it takes no writes",
        Role::ReadOnly => "it takes writes",
        Role::Primary => "it is a standby",
        Role::Standby => "it is the primary",
    }
}

fn chain(error: &tokio_postgres::Error) -> String {
    if let Some(told) = error.as_db_error() {
        return format!("{} ({})", told.message(), told.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no server of PostgreSQL will do")?;
        for (index, Attempt { host, reason }) in self.attempts.iter().enumerate() {
            write!(f, "{} {host}: {reason}", if index == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {}
