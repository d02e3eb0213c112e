//! What an error of PostgreSQL means for a request.

use std::error::Error as _;
use std::io;

use crate::store::Error;

/// Of the pool.
pub fn of_pool(error: sqlx::Error) -> Error {
    if let Some(database) = error.as_database_error() {
        let code = database.code().unwrap_or_default().into_owned();
        return of_code(&code, error);
    }
    match error {
        // Also when PostgreSQL refuses connections, which are tried until the time is over.
        sqlx::Error::PoolTimedOut => Error::Busy,
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => Error::Unreachable(error.into()),
        _ => Error::failed(error),
    }
}

/// Of a connection of its own.
pub fn of_connection(error: tokio_postgres::Error) -> Error {
    match error.code() {
        Some(code) => of_code(code.clone().code(), error),
        None => Error::Unreachable(error.into()),
    }
}

/// By SQLSTATE (postgresql.org/docs/current/errcodes-appendix.html).
fn of_code(code: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    match code {
        // Too many connections, a timeout of a statement or a lock, a deadlock, a serialization failure.
        "53300" | "57014" | "55P03" | "40P01" | "40001" => Error::Busy,
        // It is shutting down, has crashed, or is starting up.
        "57P01" | "57P02" | "57P03" => Error::Unreachable(error.into()),
        // Connection exceptions.
        code if code.starts_with("08") => Error::Unreachable(error.into()),
        _ => Error::Failed(error.into()),
    }
}

/// Whether nobody listens where PostgreSQL should, or it says that it is shutting down or starting up: then it
/// serves nobody else either.
pub fn is_refusal(error: &tokio_postgres::Error) -> bool {
    if let Some(code) = error.code() {
        return matches!(code.code(), "57P01" | "57P02" | "57P03");
    }
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    // A Unix socket is gone with its listener.
    io.is_some_and(|io| matches!(io.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound))
}

/// Whether a unique index was in the way.
pub fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}
