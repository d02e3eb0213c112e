//! PostgreSQL: the table, and how the first stages call it.

use serde_json::Value;
use sqlx::PgPool;
use tokio::runtime::{Builder, Runtime};
use tokio::task::unconstrained;

use super::document::DOCUMENT;
use crate::Error;

/// Rows in the table: ids from 1 to this. All of it stays in PostgreSQL's memory.
pub const ROWS: u32 = 10_000;

/// Reads a row by id.
pub const READ: &str = "SELECT id, email, name, created_at, document::text FROM users WHERE id = $1";

/// The document as a client sends it: without white space.
pub fn document() -> String {
    let document: Value = serde_json::from_str(DOCUMENT).expect("it is JSON");
    document.to_string()
}

/// SQL that makes the table and fills it with [`ROWS`] users.
pub fn schema() -> String {
    let document = document().replace('\'', "''");
    format!(
        "CREATE TABLE users (\n  \
           id bigint PRIMARY KEY,\n  \
           email text NOT NULL,\n  \
           name text NOT NULL,\n  \
           created_at bigint NOT NULL,\n  \
           document jsonb NOT NULL\n\
         );\n\
         INSERT INTO users SELECT id, 'user' || id || '@example.com', 'User ' || id, 1763683200 + id,\n  \
           jsonb_set('{document}', '{{id}}', to_jsonb(id)) FROM generate_series(1, {ROWS}) AS id;\n\
         VACUUM ANALYZE users;\n"
    )
}

/// The database as a blocking driver presents it: a caller waits, and does nothing else.
///
/// The pool underneath is the same as in the later stages, so that waiting is the only difference. It has its own
/// runtime: if all workers of the server's runtime blocked, no thread would poll the sockets that they wait for. (The
/// crate `postgres` does the same, and refuses to be called from an async function at all.)
#[derive(Debug)]
pub struct Blocking {
    runtime: Runtime,
    pool: PgPool,
}

impl Blocking {
    /// Connects.
    ///
    /// # Errors
    /// When no thread can be started, or there is no PostgreSQL at `url`.
    pub fn connect(url: &str) -> Result<Self, Error> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Error::Threads)?;
        let pool = runtime.block_on(PgPool::connect(url))?;
        Ok(Self { runtime, pool })
    }

    /// The connections.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Waits for `query` on this thread.
    pub fn wait<T>(&self, query: impl Future<Output = T>) -> T {
        // Sockets and timers belong to the runtime that is entered.
        let _entered = self.runtime.enter();
        // Unconstrained: tokio would make the query yield to others now and then, but there is nothing else to run.
        futures_executor::block_on(unconstrained(query))
    }
}
