//! Statements, each with the given connection.

use bytes::Bytes;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, ToSql, params, params_from_iter};
use uuid::Uuid;

use crate::store::entry::{self, Draft, Entry};
use crate::store::list::{self, Statement, Value};
use crate::store::{
    Created, Deleted, Error, IdempotencyRecord, Key, LastUse, NewKey, Replaced, Scope, SortKey, answer,
    idempotency,
};
use crate::user::{Record, UserId};

use super::writer::Work;

/// The user with an id.
pub fn get(connection: &Connection, id: UserId) -> Result<Option<Record>, Error> {
    let mut statement = connection.prepare_cached("SELECT version, body FROM users WHERE id = ?1")?;
    let mut rows = statement.query([id.0.as_bytes().as_slice()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let body = Bytes::copy_from_slice(row.get_ref(1)?.as_blob().map_err(Error::failed)?);
    Ok(Some(Record { id, version: row.get(0)?, body }))
}

/// Runs [`list::page`]: users, each with its sort key.
pub fn page(connection: &Connection, statement: &Statement, text: bool) -> Result<list::Rows, Error> {
    let mut prepared = connection.prepare_cached(&statement.sql)?;
    let mut rows = prepared.query(params_from_iter(&statement.values))?;
    let mut page = list::Rows::default();
    while let Some(row) = rows.next()? {
        let id =
            Uuid::from_slice(row.get_ref(0)?.as_blob().map_err(Error::failed)?).map_err(Error::failed)?;
        let body = Bytes::copy_from_slice(row.get_ref(2)?.as_blob().map_err(Error::failed)?);
        let key = if text { SortKey::Text(row.get(3)?) } else { SortKey::Time(row.get(3)?) };
        if !page.add(Record { id: UserId(id), version: row.get(1)?, body }, key) {
            break;
        }
    }
    Ok(page)
}

/// Runs [`list::count`].
pub fn count(connection: &Connection, statement: &Statement) -> Result<u64, Error> {
    let mut prepared = connection.prepare_cached(&statement.sql)?;
    Ok(prepared.query_row(params_from_iter(&statement.values), |row| row.get(0))?)
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Integer(integer) => (*integer).into(),
            Self::Text(text) => text.as_str().into(),
            Self::Id(id) => id.0.as_bytes().as_slice().into(),
        })
    }
}

/// Creates users, all or none.
pub fn create(
    work: &mut Work<'_>,
    entries: Vec<Entry>,
    record: Option<&IdempotencyRecord>,
) -> Result<Created, Error> {
    let records: Vec<Record> = entries.iter().map(|entry| entry.record.clone()).collect();
    if let Some(record) = record
        && let Some(before) = remember(work.connection, record, idempotency::instant(&entries), &records)?
    {
        return Ok(before);
    }
    for (index, entry) in entries.iter().enumerate() {
        if !insert(work.connection, entry)? {
            undo(work.connection)?;
            return Ok(Created::EmailTaken(index));
        }
    }
    Ok(Created::Done(records))
}

/// Rolls back what the job has done so far.
fn undo(connection: &Connection) -> Result<(), Error> {
    connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
    Ok(())
}

/// Records the request. Returns its earlier result if it was made before.
fn remember(
    connection: &Connection,
    record: &IdempotencyRecord,
    instant: i64,
    records: &[Record],
) -> Result<Option<Created>, Error> {
    let (owner, expired) = (idempotency::owner(record), idempotency::expired());
    let known: Option<([u8; 32], Vec<u8>)> = connection
        .prepare_cached(
            "SELECT digest, answer FROM claims WHERE owner = ?1 AND key = ?2 AND created_at >= ?3",
        )?
        .query_row(params![owner, record.key, expired], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((digest, kept)) = known {
        return idempotency::judge(record, &digest, kept).map(Some);
    }
    let answer = answer::encode(records);
    // It replaces an expired one of the same key.
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO claims (seq, owner, key, digest, answer, created_at) \
             VALUES ((SELECT coalesce(max(seq), 0) FROM claims) + ?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![idempotency::blocks(&answer), owner, record.key, record.digest, answer, instant])?;
    let oldest = connection.last_insert_rowid() - idempotency::MOST;
    connection.prepare_cached("DELETE FROM claims WHERE seq <= ?1")?.execute([oldest])?;
    connection
        .prepare_cached(
            "DELETE FROM claims WHERE seq IN (SELECT seq FROM claims WHERE created_at < ?1 LIMIT ?2)",
        )?
        .execute([expired, idempotency::FORGET])?;
    Ok(None)
}

/// Inserts a user; false if the email or the id is taken.
fn insert(connection: &Connection, entry: &Entry) -> Result<bool, Error> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO users (id, version, status, created_at, updated_at, email, name, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            entry.record.id.0.as_bytes().as_slice(),
            entry.record.version,
            entry::number(entry.draft.status),
            entry.created_at,
            entry.updated_at,
            entry.draft.email,
            entry.draft.name,
            &entry.record.body[..],
        ])?;
    if inserted == 1 {
        attach(connection, connection.last_insert_rowid(), entry)?;
    }
    Ok(inserted == 1)
}

/// Writes tags and words of a user.
fn attach(connection: &Connection, seq: i64, entry: &Entry) -> Result<(), Error> {
    let mut tag = connection.prepare_cached("INSERT INTO user_tags VALUES (?1, ?2)")?;
    for text in &entry.draft.tags {
        tag.execute(params![text, seq])?;
    }
    connection
        .prepare_cached("INSERT INTO user_words (rowid, words) VALUES (?1, ?2)")?
        .execute(params![seq, entry.draft.words.join(" ")])?;
    Ok(())
}

/// Removes tags and words of a user.
fn detach(connection: &Connection, seq: i64) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM user_tags WHERE seq = ?1")?.execute([seq])?;
    connection.prepare_cached("DELETE FROM user_words WHERE rowid = ?1")?.execute([seq])?;
    Ok(())
}

/// Number, version and creation of a user.
fn find(connection: &Connection, id: UserId) -> Result<Option<(i64, i64, i64)>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT seq, version, created_at FROM users WHERE id = ?1")?;
    let found =
        statement.query_row([id.0.as_bytes().as_slice()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    Ok(found.optional()?)
}

/// Replaces a user.
pub fn replace(
    work: &mut Work<'_>,
    id: UserId,
    expected: Option<i64>,
    user: Draft,
) -> Result<Replaced, Error> {
    let Some((seq, version, created_at)) = find(work.connection, id)? else { return Ok(Replaced::Missing) };
    if expected.is_some_and(|expected| expected != version) {
        return Ok(Replaced::Changed(version));
    }
    let entry = user.at(id, version + 1, created_at, entry::now());
    let updated = work
        .connection
        .prepare_cached(
            "UPDATE users SET version = ?2, status = ?3, updated_at = ?4, email = ?5, name = ?6, body = ?7 \
             WHERE seq = ?1",
        )?
        .execute(params![
            seq,
            entry.record.version,
            entry::number(entry.draft.status),
            entry.updated_at,
            entry.draft.email,
            entry.draft.name,
            &entry.record.body[..],
        ]);
    match updated {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            return Ok(Replaced::EmailTaken);
        }
        updated => updated?,
    };
    detach(work.connection, seq)?;
    attach(work.connection, seq, &entry)?;
    work.changed(id);
    Ok(Replaced::Done(entry.record))
}

/// Deletes users, and the stored answers that contain them.
pub fn delete(work: &mut Work<'_>, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
    let mut gone = Vec::with_capacity(ids.len());
    for &id in ids {
        let Some((seq, version, created_at)) = find(work.connection, id)? else { continue };
        if expected.is_some_and(|expected| expected != version) {
            undo(work.connection)?;
            return Ok(Deleted::Changed(version));
        }
        detach(work.connection, seq)?;
        work.connection.prepare_cached("DELETE FROM users WHERE seq = ?1")?.execute([seq])?;
        work.connection
            .prepare_cached("UPDATE claims SET answer = x'' WHERE created_at = ?1 AND instr(answer, ?2) > 0")?
            .execute(params![created_at, id.0.as_bytes().as_slice()])?;
        work.changed(id);
        gone.push(id);
    }
    Ok(Deleted::Done(gone))
}

/// Writes rows unchanged, except existing ones.
pub fn load(work: &mut Work<'_>, entries: &[Entry]) -> Result<u64, Error> {
    let mut inserted = 0;
    for entry in entries {
        inserted += u64::from(insert(work.connection, entry)?);
    }
    Ok(inserted)
}

/// Adds an API key.
pub fn add_key(work: &mut Work<'_>, key: NewKey) -> Result<Key, Error> {
    let created_at = entry::now();
    work.connection
        .prepare_cached(
            "INSERT INTO keys (name, digest, scope, rate, burst, created_at, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            key.name,
            key.digest,
            key.scope.number(),
            key.rate,
            key.burst,
            created_at,
            key.expires_at.map(|time| time.as_microsecond()),
        ])?;
    work.keys_changed();
    Ok(key.with(work.connection.last_insert_rowid(), created_at))
}

/// Revokes an API key.
pub fn revoke_key(work: &mut Work<'_>, id: i64) -> Result<bool, Error> {
    work.keys_changed();
    Ok(work.connection.prepare_cached("DELETE FROM keys WHERE id = ?1")?.execute([id])? == 1)
}

/// Records an API key's use. It is not a change of the key.
pub fn key_used(work: &mut Work<'_>, id: i64, second: i64) -> Result<(), Error> {
    work.connection
        .prepare_cached(
            "INSERT INTO key_uses SELECT id, ?2 FROM keys WHERE id = ?1 ON CONFLICT DO UPDATE SET at = max(at, excluded.at)",
        )?
        .execute([id, second])?;
    Ok(())
}

/// The columns for [`key_of`].
const KEY: &str = "id, digest, name, scope, rate, burst, created_at, expires_at, key_uses.at";

fn key_of(row: &Row<'_>) -> rusqlite::Result<Key> {
    Ok(Key {
        id: row.get(0)?,
        digest: row.get(1)?,
        name: row.get(2)?,
        scope: Scope::of(row.get(3)?),
        rate: row.get(4)?,
        burst: row.get(5)?,
        created_at: entry::time(row.get(6)?),
        expires_at: row.get::<_, Option<i64>>(7)?.map(entry::time),
        last_use: LastUse::of(row.get(8)?),
    })
}

/// All API keys.
pub fn list_keys(connection: &Connection) -> Result<Vec<Key>, Error> {
    let sql = format!("SELECT {KEY} FROM keys LEFT JOIN key_uses ON key_uses.key = id ORDER BY id");
    let mut statement = connection.prepare_cached(&sql)?;
    let keys = statement.query_map([], key_of)?;
    Ok(keys.collect::<Result<_, _>>()?)
}

/// Runs a trivial query.
pub fn ping(connection: &Connection) -> Result<(), Error> {
    connection.prepare_cached("SELECT 1 FROM users LIMIT 1")?.exists([])?;
    Ok(())
}
