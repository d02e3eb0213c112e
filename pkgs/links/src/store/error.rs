//! Why the store refuses.

use rusqlite::{ErrorCode, ffi};

use crate::code::InvalidCode;
use crate::domains::{InvalidHost, UnknownDomain};
use crate::invalid::InvalidField;
use crate::target::InvalidTarget;

/// Why the store refuses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No link has this code.
    #[error("no link has the code {0:?}")]
    NotFound(String),
    /// There is no domain of this name.
    #[error("there is no domain {0:?}")]
    NoDomain(String),
    /// There is a domain of this host already.
    #[error("there is a domain {0:?} already")]
    DomainTaken(String),
    /// The domain has links.
    #[error("the domain {0:?} has links; they can be deleted along with it, by force")]
    DomainInUse(String),
    /// The name is none of a domain.
    #[error(transparent)]
    Host(#[from] InvalidHost),
    /// No token has this number.
    #[error("there is no key {0}")]
    NoToken(i64),
    /// Another link has this code.
    #[error("the code {0:?} is taken")]
    Taken(String),
    /// The code breaks the rules.
    #[error(transparent)]
    Code(#[from] InvalidCode),
    /// The target breaks the rules.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// Another field breaks the rules: its name and how.
    #[error("{field}: {reason}")]
    Field {
        /// As in [`crate::link::NewLink`].
        field: &'static str,
        /// For people.
        reason: String,
    },
    /// The link is not as the condition of the edit has it.
    #[error("the link has changed since")]
    Changed,
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The writer's queue is full, or the database stays locked by another process.
    #[error("the database is busy, or locked by another process; try again")]
    Busy,
    /// A read took longer than it may.
    #[error("the query took too long")]
    TooSlow,
    /// No space is left for a write.
    #[error("the disk is full")]
    Full,
    /// The database cannot be written.
    #[error("the database is read-only")]
    ReadOnly,
    /// The file is something else.
    #[error("this is no database")]
    NotADatabase,
    /// A directory.
    #[error("this is a directory, not a database")]
    Directory,
    /// The file cannot be opened.
    #[error("the file cannot be opened: it may not be read, or made")]
    CannotOpen,
    /// The database is another program's.
    #[error("this is the database of another program; nothing in it was changed")]
    Foreign,
    /// The database was written by a newer release.
    #[error("a newer release wrote this database (schema version {found}; this one knows up to {known})")]
    TooNew {
        /// The file's `user_version`.
        found: i64,
        /// The newest this build migrates to.
        known: i64,
    },
    /// The writer is gone: the store was closed.
    #[error("the store is closed")]
    Closed,
    /// The database cannot be reached, or did not answer in time. Whether a write was done is then not known.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// Whatever PostgreSQL says else.
    #[error("{0}")]
    Postgres(String),
    /// What is read has to be waited for: the database is not on this machine's disk.
    #[error("the database has to be waited for")]
    Remote,
    /// A server of databases has its own programs for that.
    #[error("this is for databases that are files; PostgreSQL has pg_dump and pg_amcheck")]
    OnlyFiles,
    /// It is to be filled, and has something: in which table.
    #[error("it is not empty: there is something in {0}; a database is migrated into an empty one")]
    NotEmpty(&'static str),
    /// What was copied is not the same: of which table.
    #[error("the copy of {0} is not the same as what was read; nothing was kept of it")]
    Differs(&'static str),
    /// A fault of this program.
    #[error("the write failed for a fault of this program; the log says which")]
    Panicked,
    /// The transaction that this command was part of failed.
    #[error("not committed: {0}")]
    NotCommitted(String),
    /// Anything else SQLite says.
    #[error(transparent)]
    Sqlite(rusqlite::Error),
}

impl Error {
    /// A field that breaks the rules.
    pub(crate) fn field(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Field { field, reason: reason.into() }
    }

    /// Whether the database is damaged.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt))
    }

    /// The same for each command of a transaction that failed as a whole.
    pub(super) fn of_transaction(&self) -> Self {
        match self {
            Self::Busy => Self::Busy,
            Self::Full => Self::Full,
            Self::ReadOnly => Self::ReadOnly,
            other => Self::NotCommitted(other.to_string()),
        }
    }

    /// Whether the whole transaction is lost with the command that met it: SQLite may have rolled it back
    /// on its own (sqlite.org/lang_transaction.html, section 2.4).
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
            // Without space, the write-ahead log and its index fail to grow (sqlite.org/rescode.html).
            (ffi::SQLITE_FULL, _)
            | (_, ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_TRUNCATE) => {
                Self::Full
            }
            (ffi::SQLITE_READONLY, _) => Self::ReadOnly,
            (ffi::SQLITE_NOTADB, _) => Self::NotADatabase,
            (ffi::SQLITE_CANTOPEN, _) => Self::CannotOpen,
            (ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED, _) => Self::Busy,
            (ffi::SQLITE_INTERRUPT, _) => Self::TooSlow,
            _ => Self::Sqlite(error),
        }
    }
}
