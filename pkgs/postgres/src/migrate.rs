//! A schema, its version, and the oldest version that a program has to know to use it.
//!
//! Each step says which version a program has to know to use the result. So after a newer generation has migrated, the
//! previous one can still start, unless a step in between says otherwise, and a rollback needs no change of the
//! database. All steps that are due run in one transaction with a lock, which works through a pooler too.

use std::pin::Pin;

use sha2::{Digest, Sha384};
use tokio_postgres::types::Type;

use crate::error::Error;
use crate::session::{Session, Transaction};

/// A future with a version.
pub type Migrating<'a> = Pin<Box<dyn Future<Output = Result<i64, Error>> + Send + 'a>>;

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Counts up from 1.
    pub version: i64,
    /// The oldest version that a program has to know to use the schema after this step. It is the step's own version,
    /// unless the step's additions don't disturb older programs.
    pub min_reader: i64,
    /// What it does, for people.
    pub name: &'static str,
    /// Its statements.
    pub sql: &'static str,
}

/// All steps of a program's schema.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// The program, since several may have their tables in one database.
    pub program: &'static str,
    /// The steps, in order.
    pub steps: &'static [Migration],
}

/// The table that records the schemas in a database.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS linerate_schema (program text NOT NULL, version bigint NOT NULL, \
     min_reader bigint NOT NULL, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), \
     PRIMARY KEY (program, version))";

impl Migrations {
    /// The latest version.
    pub fn latest(&self) -> i64 {
        self.steps.iter().map(|step| step.version).max().unwrap_or(0)
    }

    /// Brings a schema up to date. Returns its version, which may be a later one that this program can use.
    ///
    /// # Errors
    /// [`Error::Newer`] if this program can't use the schema, [`Error::Foreign`] if there are other tables with these
    /// names, or the error of a step. Then nothing has changed.
    pub fn run<'a>(&'a self, session: &'a Session) -> Migrating<'a> {
        // Boxed, so that all of it is compiled here and not in every crate that migrates.
        Box::pin(self.migrated(session))
    }

    async fn migrated(&self, session: &Session) -> Result<i64, Error> {
        let transaction = session.begin().await?;
        // There is no time limit, since another node may be migrating.
        transaction.batch("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0").await?;
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended('linerate_schema ' || $1, 0))";
        transaction.query_once(lock, &[(&self.program, Type::TEXT)]).await?;
        let ours = self.found(&transaction).await?;
        let (found, min_reader) = match ours {
            Some(ours) => ours,
            None => (self.adopt(&transaction).await?, 0),
        };
        if found > self.latest() {
            // A program that knows the newer schema has made it, so there is nothing to do.
            let known = self.latest();
            transaction.commit().await?;
            return if known >= min_reader {
                Ok(found)
            } else {
                Err(Error::Newer { found, min_reader, known })
            };
        }
        let due: Vec<&Migration> = self.steps.iter().filter(|step| step.version > found).collect();
        if due.is_empty() && ours.is_some() {
            transaction.commit().await?;
            return Ok(found);
        }
        transaction.batch(TABLE).await?;
        // If the schema was adopted from sqlx, the earlier steps are recorded too.
        for step in self.steps {
            if step.version > found {
                transaction.batch(step.sql).await?;
            } else if ours.is_some() {
                continue;
            }
            let note =
                "INSERT INTO linerate_schema (program, version, min_reader, name) VALUES ($1, $2, $3, $4)";
            let values = [
                (&self.program as _, Type::TEXT),
                (&step.version as _, Type::INT8),
                (&step.min_reader as _, Type::INT8),
                (&step.name as _, Type::TEXT),
            ];
            transaction.query_once(note, &values).await?;
        }
        transaction.commit().await?;
        for step in due {
            tracing::info!(version = step.version, name = step.name, "the schema was migrated");
        }
        Ok(self.latest())
    }

    /// The recorded version, and the version that a program has to know to use it.
    async fn found(&self, transaction: &Transaction<'_>) -> Result<Option<(i64, i64)>, Error> {
        if !is_there(transaction, "linerate_schema").await? {
            return Ok(None);
        }
        let sql = "SELECT max(version), max(min_reader) FROM linerate_schema WHERE program = $1";
        let rows = transaction.query_once(sql, &[(&self.program, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(row.try_get::<_, Option<i64>>(0)?.zip(row.try_get(1)?))
    }

    /// The version that sqlx recorded. Earlier releases of services used sqlx.
    async fn adopt(&self, transaction: &Transaction<'_>) -> Result<i64, Error> {
        if !is_there(transaction, "_sqlx_migrations").await? {
            return Ok(0);
        }
        let sql = "SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version";
        let mut found = 0;
        for row in transaction.query_once(sql, &[]).await? {
            let (version, checksum): (i64, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
            match self.steps.iter().find(|step| step.version == version) {
                Some(step) if Sha384::digest(step.sql)[..] != checksum[..] => return Err(Error::Foreign),
                _ => found = version,
            }
        }
        Ok(found)
    }
}

async fn is_there(transaction: &Transaction<'_>, table: &str) -> Result<bool, Error> {
    let rows = transaction.query_once("SELECT to_regclass($1) IS NOT NULL", &[(&table, Type::TEXT)]).await?;
    Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
}
