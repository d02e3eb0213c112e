//! Errors of the store.

use rusqlite::{ErrorCode, ffi};

use crate::code::InvalidCode;
use crate::domains::{InvalidHost, UnknownDomain};
use crate::invalid::InvalidField;
use crate::target::InvalidTarget;

/// Why the store refuses or fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No link has this code.
    #[error("no link has the code {0:?}")]
    NotFound(String),
    /// No domain has this name.
    #[error("there is no domain {0:?}")]
    NoDomain(String),
    /// The client may use domains, but not the one that now has this name.
    #[error("the key is not for the domain {0:?}")]
    OtherDomain(String),
    /// A domain with this host exists.
    #[error("there is a domain {0:?} already")]
    DomainTaken(String),
    /// The domain has links.
    #[error("the domain {0:?} has links; they can be deleted along with it, by force")]
    DomainInUse(String),
    /// The name is not valid for a domain.
    #[error(transparent)]
    Host(#[from] InvalidHost),
    /// No token has this number.
    #[error("there is no key {0}")]
    NoToken(i64),
    /// Another link has this code.
    #[error("the code {0:?} is taken")]
    Taken(String),
    /// The code is invalid.
    #[error(transparent)]
    Code(#[from] InvalidCode),
    /// The target is invalid.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// Another field is invalid, for this reason.
    #[error("{field}: {reason}")]
    Field {
        /// Its name, as in [`crate::link::NewLink`].
        field: &'static str,
        /// The reason, for people.
        reason: String,
    },
    /// The link does not meet the edit's condition.
    #[error("the link has changed since")]
    Changed,
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The writer's queue is full, or another process keeps the database locked.
    #[error("the database is busy, or locked by another process; try again")]
    Busy,
    /// A read took too long.
    #[error("the query took too long")]
    TooSlow,
    /// There is no space for a write.
    #[error("the disk is full")]
    Full,
    /// The database cannot be written.
    #[error("the database is read-only")]
    ReadOnly,
    /// The file is not a database.
    #[error("this is no database")]
    NotADatabase,
    /// It is a directory.
    #[error("this is a directory, not a database")]
    Directory,
    /// The file cannot be opened.
    #[error("the file cannot be opened: it may not be read, or made")]
    CannotOpen,
    /// The database belongs to another program.
    #[error("this is the database of another program; nothing in it was changed")]
    Foreign,
    /// A newer release wrote the database.
    #[error("a newer release wrote this database (schema version {found}; this one knows up to {known})")]
    TooNew {
        /// The file's `user_version`.
        found: i64,
        /// The newest that this build knows.
        known: i64,
    },
    /// The writer has ended, since the store was closed.
    #[error("the store is closed")]
    Closed,
    /// The database cannot be reached, or did not answer in time. It is then unknown whether a write was done.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// Any other error of PostgreSQL.
    #[error("{0}")]
    Postgres(String),
    /// The read has to wait for a database server, which this method does not do.
    #[error("the database has to be waited for")]
    Remote,
    /// The operation is only for files; a database server has its own programs for it.
    #[error("this is for databases that are files; PostgreSQL has pg_dump and pg_amcheck")]
    OnlyFiles,
    /// The database to fill is not empty: this table has rows.
    #[error("it is not empty: there is something in {0}; a database is migrated into an empty one")]
    NotEmpty(&'static str),
    /// The copy of this table differs.
    #[error("the copy of {0} is not the same as what was read; nothing was kept of it")]
    Differs(&'static str),
    /// A bug of this program.
    #[error("the write failed for a fault of this program; the log says which")]
    Panicked,
    /// The transaction of this command failed.
    #[error("not committed: {0}")]
    NotCommitted(String),
    /// Any other error of SQLite.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
}

impl Error {
    /// An error of an invalid field.
    pub(crate) fn field(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Field { field, reason: reason.into() }
    }

    /// Whether the database is damaged.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt))
    }

    /// The same error for each command of a transaction that failed as a whole.
    pub(super) fn of_transaction(&self) -> Self {
        match self {
            Self::Busy => Self::Busy,
            Self::Full => Self::Full,
            Self::ReadOnly => Self::ReadOnly,
            other => Self::NotCommitted(other.to_string()),
        }
    }

    /// Whether this error of a command loses the whole transaction: SQLite may have rolled it back
    /// (sqlite.org/lang_transaction.html, section 2.4).
    pub(super) fn ends_transaction(&self) -> bool {
        matches!(
            self,
            Self::Full
                | Self::ReadOnly
                | Self::Busy
                | Self::CannotOpen
                | Self::NotADatabase
                | Self::Sqlite(_)
        )
    }
}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Self {
        match error {
            postgres::Error::Newer { found, known, .. } => Self::TooNew { found, known },
            postgres::Error::Foreign => Self::Foreign,
            error => match error.kind() {
                postgres::Kind::Busy => Self::Busy,
                postgres::Kind::Unreachable => Self::Unreachable(error.to_string()),
                postgres::Kind::Full => Self::Full,
                postgres::Kind::Failed => Self::Postgres(error.to_string()),
            },
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        postgres::Error::from(error).into()
    }
}

impl From<InvalidField> for Error {
    fn from(InvalidField { field, reason }: InvalidField) -> Self {
        Self::Field { field, reason }
    }
}

impl From<UnknownDomain> for Error {
    fn from(UnknownDomain(name): UnknownDomain) -> Self {
        Self::NoDomain(name)
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let Some(code) = error.sqlite_error() else { return Self::Sqlite(error) };
        match (code.extended_code & 0xff, code.extended_code) {
            // Without space, the index of the write-ahead log cannot grow (sqlite.org/rescode.html). A write to a file
            // fails with SQLITE_FULL then, and with SQLITE_IOERR_WRITE for every other reason.
            (ffi::SQLITE_FULL, _) | (_, ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_TRUNCATE) => Self::Full,
            (ffi::SQLITE_READONLY, _) => Self::ReadOnly,
            (ffi::SQLITE_NOTADB, _) => Self::NotADatabase,
            (ffi::SQLITE_CANTOPEN, _) => Self::CannotOpen,
            (ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED, _) => Self::Busy,
            (ffi::SQLITE_INTERRUPT, _) => Self::TooSlow,
            _ => Self::Sqlite(error),
        }
    }
}
