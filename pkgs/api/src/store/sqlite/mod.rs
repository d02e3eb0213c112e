//! Users in SQLite: one writer thread that commits waiting writes together, one read connection per thread that reads
//! by id, and a pool of threads for lists.

mod connection;
mod file;
mod pool;
mod reader;
mod rows;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ffi;
use service::ready::Heartbeats;

use crate::user::{Record, UserId};

use super::budget::WriteBudget;
use super::list::{self, Dialect};
use super::{
    Alarm, Created, Deleted, Draft, Entry, Error, Filter, IdempotencyRecord, Key, NewKey, Page, Query,
    Replaced, Store, Unusable, Watch,
};

use pool::Pool;
use reader::Readers;
use writer::{Work, Writer};

const DIALECT: Dialect = Dialect {
    tagged: "seq IN (SELECT seq FROM user_tags WHERE tag = {})",
    worded: "seq IN (SELECT rowid FROM user_words WHERE user_words MATCH {})",
    beginning: "\"{}\"*",
    and: " AND ",
    or: " OR ",
};

/// Users in SQLite.
#[derive(Clone)]
pub struct Sqlite {
    readers: Arc<Readers>,
    lists: Arc<Pool>,
    writer: Arc<Writer>,
}

impl Sqlite {
    /// Opens a database file, which is created if absent, and migrates it. `watch` is told of each commit before it is
    /// acknowledged, and of other processes' within 100 ms. Waiting writes may take `write_bytes`.
    pub async fn open(path: &Path, watch: Arc<dyn Watch>, write_bytes: u64) -> Result<Self, Error> {
        // SQLite takes only an absolute path as it is.
        let path: PathBuf = std::path::absolute(path).map_err(Unusable::File)?;
        let mut connection = connection::writer(&path)?;
        schema::migrate(&mut connection)?;
        Ok(Self {
            lists: Arc::new(Pool::start(&path)),
            readers: Arc::new(Readers::new(path)),
            writer: Arc::new(Writer::start(connection, watch, WriteBudget::new(write_bytes))),
        })
    }
}

impl Store for Sqlite {
    // `get` and `get_many` read on the calling thread, in some microseconds and usually without a system call.
    async fn get(&self, id: UserId) -> Result<Option<Record>, Error> {
        self.readers.with(|connection| rows::get(connection, id))
    }

    async fn get_many(&self, ids: &[UserId]) -> Result<Vec<Record>, Error> {
        let get = |connection: &_, id: &UserId| rows::get(connection, *id).transpose();
        self.readers.with(|connection| ids.iter().filter_map(|id| get(connection, id)).collect())
    }

    async fn create(&self, users: Vec<Draft>, record: Option<IdempotencyRecord>) -> Result<Created, Error> {
        let reserved = self.writer.reserve(Draft::bytes(&users))?;
        let entries: Vec<Entry> = Draft::begin(users);
        let create = move |work: &mut Work<'_>| rows::create(work, entries, record.as_ref());
        self.writer.submit_holding(Some(reserved), create).await
    }

    async fn replace(&self, id: UserId, expected: Option<i64>, user: Draft) -> Result<Replaced, Error> {
        let reserved = self.writer.reserve(Draft::bytes(std::slice::from_ref(&user)))?;
        let replace = move |work: &mut Work<'_>| rows::replace(work, id, expected, user);
        self.writer.submit_holding(Some(reserved), replace).await
    }

    async fn delete(&self, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
        // The answer repeats the ids.
        let reserved = self.writer.reserve(2 * size_of_val(ids) as u64)?;
        let ids = ids.to_vec();
        let delete = move |work: &mut Work<'_>| rows::delete(work, &ids, expected);
        self.writer.submit_holding(Some(reserved), delete).await
    }

    async fn list(&self, query: &Query) -> Result<Page, Error> {
        let statement = list::page(&DIALECT, query);
        let text = list::is_text(query.sort.by);
        let rows = self.lists.read(move |connection| rows::page(connection, &statement, text)).await?;
        Ok(list::paged(query, rows))
    }

    async fn count(&self, filter: &Filter) -> Result<u64, Error> {
        let statement = list::count(&DIALECT, filter);
        self.lists.read(move |connection| rows::count(connection, &statement)).await
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

    async fn key_used(&self, id: i64, second: i64) -> Result<(), Error> {
        self.writer.submit(move |work| rows::key_used(work, id, second)).await
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

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let Some(code) = error.sqlite_error() else { return Self::failed(error) };
        match (code.extended_code & 0xff, code.extended_code) {
            // Another process holds the lock for longer than the timeout.
            (ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED, _) => Self::Busy,
            // Without space, the index of the write-ahead log cannot grow (sqlite.org/rescode.html). A write to a file
            // fails with SQLITE_FULL then, and with SQLITE_IOERR_WRITE for every other reason.
            (ffi::SQLITE_FULL, _) | (_, ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_TRUNCATE) => Self::Full,
            (ffi::SQLITE_READONLY, _) => Self::ReadOnly,
            _ => Self::failed(error),
        }
    }
}
