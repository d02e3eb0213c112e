//! Statements, each with the given pool.

use postgres::types::{ToSql, Type};
use postgres::{Parameter, Pool, Row, Session};
use uuid::Uuid;

use crate::store::entry::{self, Draft, Entry};
use crate::store::list::{self, Dialect, Statement, Value};
use crate::store::{
    Created, Deleted, Error, Filter, IdempotencyRecord, Key, LastUse, NewKey, Page, Query, Replaced, Scope,
    SortKey, answer, idempotency,
};
use crate::user::{Record, UserId};

/// Values of a statement with their types.
macro_rules! values {
    ($($value:expr => $of:ident),* $(,)?) => {
        &[$((&$value as &(dyn ToSql + Sync), Type::$of)),*]
    };
}

/// How often a write is retried because another came first.
const TRIES: usize = 8;

const DIALECT: Dialect = Dialect {
    tagged: "tags @> ARRAY[{}]",
    worded: "words @@ {}::tsquery",
    beginning: "'{}':*",
    and: " & ",
    or: " | ",
};

/// Inserts rows given column by column. Arrays within a row are texts with separators, since an array of arrays would
/// lose its rows.
const INSERT: &str = "INSERT INTO users (id, version, status, created_at, updated_at, email, name, tags, words, body) \
    SELECT id, version, status, created_at, updated_at, email, name, string_to_array(tags, E'\\x1f'), \
    array_to_tsvector(string_to_array(words, E'\\x1f')), body \
    FROM unnest($1::uuid[], $2::int8[], $3::int2[], $4::int8[], $5::int8[], $6::text[], $7::text[], $8::text[], \
    $9::text[], $10::bytea[]) \
    AS t (id, version, status, created_at, updated_at, email, name, tags, words, body)";

/// Appended to [`INSERT`]: skips existing rows.
const LOAD: &str = " ON CONFLICT DO NOTHING";

/// Writes entries with [`INSERT`], or a statement that starts with it.
async fn insert(session: &Session, sql: &str, entries: &[Entry]) -> Result<u64, postgres::Error> {
    // All inserts lock in this order, so that two of them never deadlock.
    let mut entries: Vec<&Entry> = entries.iter().collect();
    entries.sort_by(|one, other| one.draft.email.cmp(&other.draft.email));
    fn column<'a, T>(entries: &[&'a Entry], value: impl Fn(&'a Entry) -> T) -> Vec<T> {
        entries.iter().map(|entry| value(entry)).collect()
    }
    let separator = entry::SEPARATOR.to_string();
    let values = values![
        column(&entries, |entry| entry.record.id.0) => UUID_ARRAY,
        column(&entries, |entry| entry.record.version) => INT8_ARRAY,
        column(&entries, |entry| entry::number(entry.draft.status)) => INT2_ARRAY,
        column(&entries, |entry| entry.created_at) => INT8_ARRAY,
        column(&entries, |entry| entry.updated_at) => INT8_ARRAY,
        column(&entries, |entry| entry.draft.email.as_str()) => TEXT_ARRAY,
        column(&entries, |entry| entry.draft.name.as_str()) => TEXT_ARRAY,
        column(&entries, |entry| entry.draft.tags.join(&separator)) => TEXT_ARRAY,
        column(&entries, |entry| entry.draft.words.join(&separator)) => TEXT_ARRAY,
        column(&entries, |entry| &entry.record.body[..]) => BYTEA_ARRAY,
    ];
    session.execute(sql, values).await
}

/// The users with some ids.
pub async fn get_many(pool: &Pool, ids: &[UserId]) -> Result<Vec<Record>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let sql = "SELECT id, version, body FROM users WHERE id = ANY($1)";
    let rows = pool.get().await?.query(sql, values![ids => UUID_ARRAY]).await?;
    Ok(rows.iter().map(record_of).collect::<Result<_, _>>()?)
}

/// The user in a row that starts with `id, version, body`.
pub fn record_of(row: &Row) -> Result<Record, tokio_postgres::Error> {
    let body: &[u8] = row.try_get(2)?;
    Ok(Record { id: UserId(row.try_get(0)?), version: row.try_get(1)?, body: body.to_vec().into() })
}

/// Creates users, all or none.
pub async fn create(
    pool: &Pool,
    entries: &[Entry],
    record: Option<&IdempotencyRecord>,
) -> Result<Created, Error> {
    let records: Vec<Record> = entries.iter().map(|entry| entry.record.clone()).collect();
    for _ in 0..TRIES {
        let session = pool.get().await?;
        let inserted = match record {
            // A single statement is its own transaction.
            None => insert(&session, INSERT, entries).await.map(|_| None),
            Some(record) => create_once(&session, entries, &records, record).await?,
        };
        match inserted {
            Ok(None) => return Ok(Created::Done(records)),
            Ok(Some(before)) => return Ok(before),
            Err(error) if error.is_duplicate() => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(index) = taken(&session, entries).await? {
            return Ok(Created::EmailTaken(index));
        }
        // The user who had that email was deleted meanwhile.
    }
    Err(Error::Busy)
}

/// The first entry whose email is taken, or occurs in an earlier one.
async fn taken(session: &Session, entries: &[Entry]) -> Result<Option<usize>, Error> {
    let emails: Vec<&str> = entries.iter().map(|entry| entry.draft.email.as_str()).collect();
    let sql = "SELECT email FROM users WHERE email = ANY($1)";
    let rows = session.query(sql, values![emails => TEXT_ARRAY]).await?;
    let taken: Result<Vec<&str>, _> = rows.iter().map(|row| row.try_get(0)).collect();
    let mut taken: std::collections::HashSet<&str> = taken?.into_iter().collect();
    Ok(emails.iter().position(|email| !taken.insert(email)))
}

/// Creates users and records the request, or returns its earlier result.
async fn create_once(
    session: &Session,
    entries: &[Entry],
    records: &[Record],
    record: &IdempotencyRecord,
) -> Result<Result<Option<Created>, postgres::Error>, Error> {
    let answer = answer::encode(records);
    let transaction = session.begin().await?;
    if let Some(before) = claim(&transaction, record, idempotency::instant(entries), &answer).await? {
        transaction.rollback().await?;
        return Ok(Ok(Some(before)));
    }
    if let Err(error) = insert(&transaction, INSERT, entries).await {
        // Roll back now, since the next statement, on another connection, would wait for this transaction.
        transaction.rollback().await?;
        return Ok(Err(error));
    }
    number(&transaction, record, &answer).await?;
    Ok(transaction.commit().await.map(|()| None))
}

/// Records the request. Returns its earlier result if it was made before. Waits for the same request running elsewhere.
///
/// The claim has no block yet, but a negative number, of which nobody else ever knows.
async fn claim(
    session: &Session,
    record: &IdempotencyRecord,
    instant: i64,
    answer: &[u8],
) -> Result<Option<Created>, Error> {
    let (owner, expired) = (idempotency::owner(record), idempotency::expired());
    let sql = "INSERT INTO claims (seq, owner, key, digest, answer, created_at) \
         VALUES (-(pg_current_xact_id()::text::int8), $1, $2, $3, $4, $5) \
         ON CONFLICT (owner, key) DO UPDATE \
         SET seq = excluded.seq, digest = excluded.digest, answer = excluded.answer, created_at = excluded.created_at \
         WHERE claims.created_at < $6";
    let values = values![
        owner => INT8, record.key => TEXT, &record.digest[..] => BYTEA, answer => BYTEA, instant => INT8,
        expired => INT8,
    ];
    if session.execute(sql, values).await? > 0 {
        return Ok(None);
    }
    let sql = "SELECT digest, answer FROM claims WHERE owner = $1 AND key = $2";
    let known = session.query(sql, values![owner => INT8, record.key => TEXT]).await?;
    let row = known.first().ok_or(Error::Busy)?;
    let (digest, kept): (&[u8], Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
    idempotency::judge(record, digest, kept).map(Some)
}

/// Gives a claim the blocks that its answer takes, and forgets older ones. This comes last, since blocks that are taken
/// are not given back: those of a request that stores nothing would make others be forgotten.
async fn number(session: &Session, record: &IdempotencyRecord, answer: &[u8]) -> Result<(), Error> {
    let owner = idempotency::owner(record);
    let sql = "UPDATE claims SET seq = (SELECT max(nextval('claims_seq_seq')) FROM generate_series(1, $3)) \
         WHERE owner = $1 AND key = $2 RETURNING seq";
    let values = values![owner => INT8, record.key => TEXT, idempotency::blocks(answer) => INT8];
    let numbered = session.query(sql, values).await?;
    let row = numbered.first().ok_or_else(|| Error::failed("a claim was lost"))?;
    let seq: i64 = row.try_get(0)?;
    let forget = "DELETE FROM claims WHERE seq IN (SELECT seq FROM claims WHERE created_at < $1 OR seq <= $2 \
         LIMIT $3 FOR UPDATE SKIP LOCKED)";
    let values = values![
        idempotency::expired() => INT8, seq - idempotency::MOST => INT8, idempotency::FORGET => INT8,
    ];
    session.execute(forget, values).await?;
    Ok(())
}

/// Replaces a user.
pub async fn replace(
    pool: &Pool,
    id: UserId,
    expected: Option<i64>,
    mut user: Draft,
) -> Result<Replaced, Error> {
    let session = pool.get().await?;
    for _ in 0..TRIES {
        let sql = "SELECT version, created_at FROM users WHERE id = $1";
        let found = session.query(sql, values![id.0 => UUID]).await?;
        let Some(row) = found.first() else { return Ok(Replaced::Missing) };
        let (version, created_at): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        if expected.is_some_and(|expected| expected != version) {
            return Ok(Replaced::Changed(version));
        }
        let entry = user.at(id, version + 1, created_at, entry::now());
        match update(&session, version, &entry).await {
            Ok(true) => return Ok(Replaced::Done(entry.record)),
            // Another write came first.
            Ok(false) => user = entry.draft,
            Err(error) if error.is_duplicate() => return Ok(Replaced::EmailTaken),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::Busy)
}

/// Writes the next version of a user; false if the user is not at `version`.
async fn update(session: &Session, version: i64, entry: &Entry) -> Result<bool, postgres::Error> {
    let sql = "UPDATE users SET version = $3, status = $4, updated_at = $5, email = $6, name = $7, \
         tags = $8, words = array_to_tsvector($9), body = $10 WHERE id = $1 AND version = $2";
    let values = values![
        entry.record.id.0 => UUID, version => INT8, entry.record.version => INT8,
        entry::number(entry.draft.status) => INT2, entry.updated_at => INT8, entry.draft.email => TEXT,
        entry.draft.name => TEXT, entry.draft.tags => TEXT_ARRAY, entry.draft.words => TEXT_ARRAY,
        &entry.record.body[..] => BYTEA,
    ];
    Ok(session.execute(sql, values).await? > 0)
}

/// Deletes users, and the stored answers that contain them.
pub async fn delete(pool: &Pool, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let session = pool.get().await?;
    // All deletions lock in this order, so that two of them never deadlock. A stored answer is searched only until one
    // of the users is found in it, since it may have thousands of them in some megabytes. The array lets PostgreSQL
    // look answers up by their time, which a semi-join doesn't.
    let sql = "WITH doomed AS (SELECT id FROM users WHERE id = ANY($1) AND ($2::int8 IS NULL OR version = $2) \
         ORDER BY id FOR UPDATE), \
         gone AS (DELETE FROM users USING doomed WHERE users.id = doomed.id RETURNING users.id, users.created_at), \
         stale AS (SELECT claims.seq FROM claims WHERE claims.created_at = ANY(ARRAY(SELECT created_at FROM gone)) \
         AND EXISTS (SELECT FROM gone WHERE gone.created_at = claims.created_at \
         AND position(uuid_send(gone.id) IN claims.answer) > 0) \
         ORDER BY claims.seq FOR UPDATE OF claims), \
         erased AS (UPDATE claims SET answer = '' FROM stale WHERE claims.seq = stale.seq) \
         SELECT id FROM gone";
    let gone = session.query(sql, values![ids => UUID_ARRAY, expected => INT8]).await?;
    if gone.is_empty() && expected.is_some() {
        let sql = "SELECT version FROM users WHERE id = ANY($1) LIMIT 1";
        if let Some(row) = session.query(sql, values![ids => UUID_ARRAY]).await?.first() {
            return Ok(Deleted::Changed(row.try_get(0)?));
        }
    }
    let gone = gone.iter().map(|row| row.try_get(0).map(UserId));
    Ok(Deleted::Done(gone.collect::<Result<_, _>>()?))
}

/// A page of users.
pub async fn list(pool: &Pool, query: &Query) -> Result<Page, Error> {
    let rows = rows(pool, list::page(&DIALECT, query)).await?;
    let mut page = list::Rows::default();
    for row in &rows {
        let key = if list::is_text(query.sort.by) {
            SortKey::Text(row.try_get(3)?)
        } else {
            SortKey::Time(row.try_get(3)?)
        };
        if !page.add(record_of(row)?, key) {
            break;
        }
    }
    Ok(list::paged(query, page))
}

/// The number of users that meet a filter.
pub async fn count(pool: &Pool, filter: &Filter) -> Result<u64, Error> {
    let rows = rows(pool, list::count(&DIALECT, filter)).await?;
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(count.unsigned_abs())
}

/// Runs a statement of `list`. Every external text is a parameter.
async fn rows(pool: &Pool, statement: Statement) -> Result<Vec<Row>, Error> {
    let values: Vec<Parameter<'_>> = statement
        .values
        .iter()
        .map(|value| match value {
            Value::Integer(integer) => (integer as _, Type::INT8),
            Value::Text(text) => (text as _, Type::TEXT),
            Value::Id(id) => (&id.0 as _, Type::UUID),
        })
        .collect();
    Ok(pool.get().await?.query(&statement.sql, &values).await?)
}

/// Writes rows unchanged, except existing ones.
pub async fn load(pool: &Pool, entries: &[Entry]) -> Result<u64, Error> {
    Ok(insert(&*pool.get().await?, &format!("{INSERT}{LOAD}"), entries).await?)
}

/// Adds an API key.
pub async fn add_key(pool: &Pool, key: NewKey) -> Result<Key, Error> {
    let created_at = entry::now();
    let sql = "INSERT INTO keys (name, digest, scope, rate, burst, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    let values = values![
        key.name => TEXT, &key.digest[..] => BYTEA, key.scope.number() => INT2, key.rate.map(i64::from) => INT8,
        key.burst.map(i64::from) => INT8, created_at => INT8,
        key.expires_at.map(|time| time.as_microsecond()) => INT8,
    ];
    let rows = pool.get().await?.query(sql, values).await?;
    let row = rows.first().ok_or_else(|| Error::failed("a key that was added has no id"))?;
    Ok(key.with(row.try_get(0)?, created_at))
}

/// Revokes an API key.
pub async fn revoke_key(pool: &Pool, id: i64) -> Result<bool, Error> {
    Ok(pool.get().await?.execute("DELETE FROM keys WHERE id = $1", values![id => INT8]).await? > 0)
}

/// Records an API key's use. It is not in the key's row, since all nodes are told of changes of that row.
pub async fn key_used(pool: &Pool, id: i64, second: i64) -> Result<(), Error> {
    let sql = "INSERT INTO key_uses (key, at) SELECT id, $2 FROM keys WHERE id = $1 \
         ON CONFLICT (key) DO UPDATE SET at = greatest(key_uses.at, excluded.at)";
    pool.get().await?.execute(sql, values![id => INT8, second => INT8]).await?;
    Ok(())
}

/// All API keys.
pub async fn list_keys(pool: &Pool) -> Result<Vec<Key>, Error> {
    let sql = "SELECT id, digest, name, scope, rate, burst, created_at, expires_at, key_uses.at FROM keys \
         LEFT JOIN key_uses ON key_uses.key = id ORDER BY id";
    let rows = pool.get().await?.query(sql, &[]).await?;
    rows.iter().map(key_of).collect()
}

fn key_of(row: &Row) -> Result<Key, Error> {
    let small = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let digest: &[u8] = row.try_get(1)?;
    Ok(Key {
        id: row.try_get(0)?,
        digest: digest.try_into().map_err(|_| Error::failed("a key's digest is damaged"))?,
        name: row.try_get(2)?,
        scope: Scope::of(row.try_get(3)?),
        rate: small(row.try_get(4)?),
        burst: small(row.try_get(5)?),
        created_at: entry::time(row.try_get(6)?),
        expires_at: row.try_get::<_, Option<i64>>(7)?.map(entry::time),
        last_use: LastUse::of(row.try_get(8)?),
    })
}
