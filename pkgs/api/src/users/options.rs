//! The database, and its use.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use postgres::{Conninfo, InvalidConninfo};

use crate::store::budget::WRITE_BYTES;

/// Options of users.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database.
    pub database: DatabaseUrl,
    /// Memory for cached users, in bytes; 0 for no cache.
    pub cache_bytes: u64,
    /// With PostgreSQL: how outdated a cached read may be while the database answers. With SQLite there is one service.
    /// It knows its own writes at once, and those of other processes within 100 ms.
    pub staleness: Duration,
    /// With PostgreSQL: how long cached reads continue while no server is usable, counted from when one was last heard
    /// of. Others may write meanwhile, so each such answer says how old it may be.
    pub cached_while_down: Duration,
    /// With PostgreSQL: connections for writes and lists. Lists and counts take at most half of them.
    pub connections: NonZero<u32>,
    /// How long a request waits for such a connection, and for other requests that look for API keys.
    pub acquire_timeout: Duration,
    /// With PostgreSQL: timeout of its answers.
    pub timeout: Duration,
    /// Memory for writes that wait for the database, in bytes; further ones are refused as [`Error::Busy`].
    ///
    /// [`Error::Busy`]: crate::store::Error::Busy
    pub write_bytes: u64,
    /// Threads that read by id. With PostgreSQL each has its own connection for that.
    pub workers: NonZero<usize>,
}

impl Options {
    /// The defaults for everything except the database.
    pub fn new(database: DatabaseUrl) -> Self {
        Self {
            database,
            cache_bytes: 128 << 20,
            staleness: Duration::from_secs(1),
            cached_while_down: Duration::from_secs(60),
            connections: NonZero::new(10).expect("ten is not zero"),
            acquire_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(5),
            write_bytes: WRITE_BYTES,
            workers: NonZero::new(service::workers::count(None)).unwrap_or(NonZero::<usize>::MIN),
        }
    }
}

/// The place of the database: `sqlite:PATH`, `postgres://USER@HOST/DATABASE`, or libpq's `keyword=value` pairs.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Box<Conninfo>),
}

/// The text is not a valid database. Errors do not repeat it, since it may contain a password in an unexpected place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDatabaseUrl {
    /// It has an unknown scheme.
    #[error("expected sqlite:PATH or postgres://USER@HOST/DATABASE")]
    Scheme,
    /// It starts like a PostgreSQL URL.
    #[error(transparent)]
    Postgres(#[from] InvalidConninfo),
}

impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidDatabaseUrl> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            // Other programs write `sqlite://PATH`.
            let path = path.strip_prefix("//").unwrap_or(path);
            let path = Some(path).filter(|path| !path.is_empty());
            return path.map(|path| Self::Sqlite(path.into())).ok_or(InvalidDatabaseUrl::Scheme);
        }
        if ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Ok(Self::Postgres(Box::new(text.parse()?)));
        }
        if text.contains('=') && !text.contains("://") {
            return Ok(Self::Postgres(Box::new(text.parse()?)));
        }
        Err(InvalidDatabaseUrl::Scheme)
    }
}

/// Leaves out secrets of a URL.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => fmt::Display::fmt(url, f),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_and_shown_without_its_password() {
        for (text, shown) in [
            ("sqlite:users.db", Some("sqlite:users.db")),
            ("sqlite:///var/lib/users.db", Some("sqlite:/var/lib/users.db")),
            (
                "postgres://ada:secret@db.example:5433/users?connect_timeout=5",
                Some("postgres://db.example:5433/users"),
            ),
            ("postgresql:///users?host=/run/postgresql", Some("postgres:///users")),
            ("postgres://linerate-api@%2Frun%2Fpostgresql/linerate-api", Some("postgres:///linerate-api")),
            ("postgres://ada:s%40cr%2Fet%3F%23@[::1]/users", Some("postgres://[::1]/users")),
            ("postgres://ada@db/users?password=secret", Some("postgres://db/users")),
            ("postgres://ada:secret@one,two:5433/users", Some("postgres://one,two:5433/users")),
            ("host=db dbname=users password=secret", Some("postgres://db/users")),
            // Not encoded.
            ("postgres://ada:sec@ret@db/users", None),
            ("postgres://ada:sec/ret@db/users", None),
            ("postgres://ada:12/secret@db/users", None),
            ("postgres://ada:sec?ret@db/users", None),
            ("postgres://ada:sec#ret@db/users", None),
            ("postgres://ada:12#secret@db/users", None),
            ("postgres:///ada:secret@db/users", None),
            ("postgres://ada:secret@db/users?passwort=secret", None),
            ("sqlite:", None),
            ("postgres://h:port/x", None),
            ("mysql://x", None),
            ("users.db", None),
        ] {
            let url = text.parse::<DatabaseUrl>().ok();
            assert_eq!(url.map(|url| format!("{url:?}")).as_deref(), shown, "{text}");
        }
    }
}
