//! Users in SQLite: one writer thread that commits what waits together, a read connection for each thread that
//! reads by id, and a pool for lists.

mod connection;
mod file;
mod reader;
mod rows;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use service::ready::Heartbeats;
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use crate::user::{Record, UserId};

use super::list::{self, Dialect, Statement, Value};
use super::{
    Alarm, Created, Deleted, Draft, Entry, Error, Filter, IdempotencyRecord, Key, NewKey, Page, Query,
    Replaced, SortKey, Store, Watch,
};

use reader::Readers;
use writer::Writer;

/// Lists at a time: each has a thread and a connection of its own.
const LISTS: u32 = 4;

/// How long a list waits for one of them.
const LIST_WAITS: Duration = Duration::from_secs(1);

/// How long a list or a count may take.
const LIST_TIME: Duration = Duration::from_secs(5);

const DIALECT: Dialect = Dialect {
    tagged: "seq IN (SELECT seq FROM user_tags WHERE tag = {})",
    worded: "seq IN (SELECT rowid FROM user_words WHERE user_words MATCH {})",
    // Words hold only letters and digits, so nothing in the quotes needs quoting.
    beginnings: |words| words.iter().map(|word| format!("\"{word}\"*")).collect::<Vec<_>>().join(" AND "),
};

/// Users in SQLite.
#[derive(Clone)]
pub struct Sqlite {
    readers: Arc<Readers>,
    lists: SqlitePool,
    writer: Arc<Writer>,
}

impl Sqlite {
    /// Opens a database file, which is created where absent, and migrates it. `watch` is told of each commit
    /// before it is acknowledged, and within 100 ms of those of other processes.
    pub async fn open(path: &Path, watch: Arc<dyn Watch>) -> Result<Self, Error> {
        let path: PathBuf = path.to_owned();
        let connection = connection::writer(&path)?;
        connection::migrate(&path).await?;
        let lists = connection::lists(&path).await?;
        Ok(Self {
            readers: Arc::new(Readers::new(path)),
            lists,
            writer: Arc::new(Writer::start(connection, watch)),
        })
    }

    async fn rows(&self, statement: Statement) -> Result<Vec<SqliteRow>, Error> {
        let mut arguments = SqliteArguments::default();
        for value in statement.values {
            use sqlx::Arguments;
            match value {
                Value::Integer(integer) => arguments.add(integer),
                Value::Text(text) => arguments.add(text),
                Value::Id(id) => arguments.add(id.0.as_bytes().to_vec()),
            }
            .map_err(Error::Failed)?;
        }
        // Every text from outside is a parameter.
        let query = sqlx::query_with(AssertSqlSafe(statement.sql), arguments).fetch_all(&self.lists);
        match tokio::time::timeout(LIST_TIME, query).await {
            Ok(rows) => rows.map_err(failure),
            Err(_) => Err(Error::Busy),
        }
    }
}

impl Store for Sqlite {
    // Both of these read on the calling thread: some microseconds, most often without a system call.
    async fn get(&self, id: UserId) -> Result<Option<Record>, Error> {
        self.readers.with(|connection| rows::get(connection, id))
    }

    async fn get_many(&self, ids: &[UserId]) -> Result<Vec<Record>, Error> {
        let get = |connection: &_, id: &UserId| rows::get(connection, *id).transpose();
        self.readers.with(|connection| ids.iter().filter_map(|id| get(connection, id)).collect())
    }

    async fn create(&self, users: Vec<Draft>, record: Option<IdempotencyRecord>) -> Result<Created, Error> {
        let entries: Vec<Entry> = Draft::begin(users);
        self.writer.submit(move |work| rows::create(work, entries, record.as_ref())).await
    }

    async fn replace(&self, id: UserId, expected: Option<i64>, user: Draft) -> Result<Replaced, Error> {
        self.writer.submit(move |work| rows::replace(work, id, expected, user)).await
    }

    async fn delete(&self, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
        let ids = ids.to_vec();
        self.writer.submit(move |work| rows::delete(work, &ids, expected)).await
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        let rows = self.rows(list::page(&DIALECT, query)).await?;
        let record = |row: SqliteRow| {
            let id: &[u8] = row.try_get(0)?;
            let record = Record {
                id: UserId(Uuid::from_slice(id).map_err(|error| sqlx::Error::Decode(error.into()))?),
                version: row.try_get(1)?,
                body: row.try_get::<Vec<u8>, _>(2)?.into(),
            };
            let key = if list::is_text(query.sort.by) {
                SortKey::Text(row.try_get(3)?)
            } else {
                SortKey::Time(row.try_get(3)?)
            };
            Ok((record, key))
        };
        let rows: Result<Vec<_>, sqlx::Error> = rows.into_iter().map(record).collect();
        Ok(list::paged(query, rows.map_err(failure)?))
    }

    async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        let rows = self.rows(list::count(&DIALECT, filter)).await?;
        let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(failure)?;
        Ok(count.unsigned_abs())
    }

    async fn load(&self, entries: Vec<Entry>) -> Result<u64, Error> {
        self.writer.submit(move |work| rows::load(work, &entries)).await
    }

    async fn add_key(&self, key: NewKey) -> Result<Key, Error> {
        self.writer.submit(move |work| rows::add_key(work, key)).await
    }

    async fn list_keys(&self) -> Result<Vec<Key>, Error> {
        self.readers.with(rows::list_keys)
    }

    async fn revoke_key(&self, id: i64) -> Result<bool, Error> {
        self.writer.submit(move |work| rows::revoke_key(work, id)).await
    }

    fn alarm(&self) -> &Alarm {
        self.writer.alarm()
    }

    fn heartbeats(&self) -> &Heartbeats {
        self.writer.heartbeats()
    }

    async fn ping(&self) -> Result<(), Error> {
        self.readers.with(rows::ping)
    }
}

fn failure(error: sqlx::Error) -> Error {
    match error {
        sqlx::Error::PoolTimedOut => Error::Busy,
        error => Error::failed(error),
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // Another process holds the lock for longer than is waited.
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::failed(error),
        }
    }
}
