//! Statements, each on the pool that is given.

use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::{Arguments, AssertSqlSafe, Postgres, Row, Transaction};
use uuid::Uuid;

use crate::store::entry::{self, Draft, Entry};
use crate::store::list::{self, Dialect, Statement, Value};
use crate::store::{
    Created, Deleted, Error, Filter, IdempotencyRecord, Key, NewKey, Page, Query, Replaced, Scope, SortKey,
    answer, idempotency,
};
use crate::user::{Record, UserId};

use super::failure::{is_duplicate, of_pool};
use super::listen::CHANNEL;
use super::trace;

/// How often a write is tried again that another came before.
const TRIES: usize = 8;

/// Remembered requests that are forgotten with each new one.
const FORGET: i64 = 100;

const DIALECT: Dialect = Dialect {
    tagged: "tags @> ARRAY[{}]",
    worded: "words @@ {}::tsquery",
    // Words hold only letters and digits, so nothing in the quotes needs quoting.
    beginnings: |words| words.iter().map(|word| format!("'{word}':*")).collect::<Vec<_>>().join(" & "),
};

/// Inserts rows given column by column. What a row has many of comes as one text with separators, for an array of
/// arrays would lose its rows.
const INSERT: &str = "INSERT INTO users (id, version, status, created_at, updated_at, email, name, tags, words, body) \
    SELECT id, version, status, created_at, updated_at, email, name, string_to_array(tags, E'\\x1f'), \
    array_to_tsvector(string_to_array(words, E'\\x1f')), body \
    FROM unnest($1::uuid[], $2::int8[], $3::int2[], $4::int8[], $5::int8[], $6::text[], $7::text[], $8::text[], \
    $9::text[], $10::bytea[]) \
    AS t (id, version, status, created_at, updated_at, email, name, tags, words, body)";

/// The same, leaving out what is there.
const LOAD: &str = " ON CONFLICT DO NOTHING";

fn insertion(mut entries: Vec<&Entry>) -> Result<PgArguments, Error> {
    // In the order of what is locked, so that two insertions never wait for each other.
    entries.sort_by(|one, other| one.draft.email.cmp(&other.draft.email));
    fn column<T>(entries: &[&Entry], value: impl Fn(&Entry) -> T) -> Vec<T> {
        entries.iter().map(|entry| value(entry)).collect()
    }
    let separator = entry::SEPARATOR.to_string();
    let mut arguments = PgArguments::default();
    let added = arguments
        .add(column(&entries, |entry| entry.record.id.0))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.record.version)))
        .and_then(|()| arguments.add(column(&entries, |entry| entry::number(entry.draft.status))))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.created_at)))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.updated_at)))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.draft.email.clone())))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.draft.name.clone())))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.draft.tags.join(&separator))))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.draft.words.join(&separator))))
        .and_then(|()| arguments.add(column(&entries, |entry| entry.record.body.to_vec())));
    added.map(|()| arguments).map_err(Error::Failed)
}

/// The users of some ids.
pub async fn get_many(pool: &PgPool, ids: &[UserId]) -> Result<Vec<Record>, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let query = trace::query("SELECT id, version, body FROM users WHERE id = ANY($1)").bind(ids);
    let rows = query.fetch_all(pool).await.map_err(of_pool)?;
    rows.iter().map(record_of).collect::<Result<_, _>>().map_err(of_pool)
}

fn record_of(row: &PgRow) -> Result<Record, sqlx::Error> {
    let body: &[u8] = row.try_get(2)?;
    Ok(Record { id: UserId(row.try_get(0)?), version: row.try_get(1)?, body: body.to_vec().into() })
}

/// Creates users, all or none.
pub async fn create(
    pool: &PgPool,
    entries: &[Entry],
    record: Option<&IdempotencyRecord>,
) -> Result<Created, Error> {
    let records: Vec<Record> = entries.iter().map(|entry| entry.record.clone()).collect();
    for _ in 0..TRIES {
        let inserted = match record {
            // A statement is a transaction of its own.
            None => {
                let arguments = insertion(entries.iter().collect())?;
                trace::query_with(INSERT, arguments).execute(pool).await.map(|_| None)
            }
            Some(record) => create_once(pool, entries, &records, record).await?,
        };
        match inserted {
            Ok(None) => return Ok(Created::Done(records)),
            Ok(Some(before)) => return Ok(before),
            Err(error) if is_duplicate(&error) => {}
            Err(error) => return Err(of_pool(error)),
        }
        if let Some(index) = taken(pool, entries).await? {
            return Ok(Created::EmailTaken(index));
        }
        // Who had the email is gone again.
    }
    Err(Error::Busy)
}

/// The first of the entries whose email is somebody's, or an earlier one's.
async fn taken(pool: &PgPool, entries: &[Entry]) -> Result<Option<usize>, Error> {
    let emails: Vec<&str> = entries.iter().map(|entry| entry.draft.email.as_str()).collect();
    let query = trace::query_scalar("SELECT email FROM users WHERE email = ANY($1)").bind(&emails);
    let taken: Vec<String> = query.fetch_all(pool).await.map_err(of_pool)?;
    let mut taken: std::collections::HashSet<&str> = taken.iter().map(String::as_str).collect();
    Ok(emails.iter().position(|email| !taken.insert(email)))
}

/// Creates users and notes that the request was made, or answers what came of it before.
async fn create_once(
    pool: &PgPool,
    entries: &[Entry],
    records: &[Record],
    record: &IdempotencyRecord,
) -> Result<Result<Option<Created>, sqlx::Error>, Error> {
    let mut transaction = pool.begin().await.map_err(of_pool)?;
    if let Some(before) = remember(&mut transaction, record, idempotency::instant(entries), records).await? {
        return Ok(Ok(Some(before)));
    }
    let arguments = insertion(entries.iter().collect())?;
    if let Err(error) = trace::query_with(INSERT, arguments).execute(&mut *transaction).await {
        // Rolled back before the next statement on another connection waits for it.
        transaction.rollback().await.map_err(of_pool)?;
        return Ok(Err(error));
    }
    Ok(transaction.commit().await.map(|()| None))
}

/// Notes that the request was made; answers what came of it where it was made before. The same request under way
/// elsewhere is waited for.
async fn remember(
    transaction: &mut Transaction<'static, Postgres>,
    record: &IdempotencyRecord,
    instant: i64,
    records: &[Record],
) -> Result<Option<Created>, Error> {
    let (owner, expired) = (idempotency::owner(record), entry::now() - idempotency::KEPT_MICROSECONDS);
    let insert = trace::query_scalar(
        "INSERT INTO claims (seq, owner, key, digest, answer, created_at) \
         VALUES ((SELECT max(nextval('claims_seq_seq')) FROM generate_series(1, $7)), $1, $2, $3, $4, $5) \
         ON CONFLICT (owner, key) DO UPDATE \
         SET seq = excluded.seq, digest = excluded.digest, answer = excluded.answer, created_at = excluded.created_at \
         WHERE claims.created_at < $6 RETURNING seq",
    );
    let answer = answer::encode(records);
    let blocks = idempotency::blocks(&answer);
    let insert = insert.bind(owner).bind(&record.key).bind(&record.digest[..]).bind(answer);
    let insert = insert.bind(instant).bind(expired).bind(blocks);
    let seq: Option<i64> = insert.fetch_optional(&mut **transaction).await.map_err(of_pool)?;
    let Some(seq) = seq else {
        let known = trace::query_as("SELECT digest, answer FROM claims WHERE owner = $1 AND key = $2");
        let known = known.bind(owner).bind(&record.key).fetch_one(&mut **transaction).await;
        let (digest, kept): (Vec<u8>, Vec<u8>) = known.map_err(of_pool)?;
        return idempotency::judge(record, &digest, kept).map(Some);
    };
    let forget = trace::query(
        "DELETE FROM claims WHERE seq IN (SELECT seq FROM claims WHERE created_at < $1 OR seq <= $2 \
         LIMIT $3 FOR UPDATE SKIP LOCKED)",
    );
    let forget = forget.bind(expired).bind(seq - idempotency::MOST).bind(FORGET);
    forget.execute(&mut **transaction).await.map_err(of_pool)?;
    Ok(None)
}

/// Replaces a user.
pub async fn replace(
    pool: &PgPool,
    id: UserId,
    expected: Option<i64>,
    mut user: Draft,
) -> Result<Replaced, Error> {
    for _ in 0..TRIES {
        let found = trace::query_as("SELECT version, created_at FROM users WHERE id = $1").bind(id.0);
        let found: Option<(i64, i64)> = found.fetch_optional(pool).await.map_err(of_pool)?;
        let Some((version, created_at)) = found else { return Ok(Replaced::Missing) };
        if expected.is_some_and(|expected| expected != version) {
            return Ok(Replaced::Changed(version));
        }
        let entry = user.at(id, version + 1, created_at, entry::now());
        match update(pool, version, &entry).await {
            Ok(true) => return Ok(Replaced::Done(entry.record)),
            // Another write came between.
            Ok(false) => user = entry.draft,
            Err(error) if is_duplicate(&error) => return Ok(Replaced::EmailTaken),
            Err(error) => return Err(of_pool(error)),
        }
    }
    Err(Error::Busy)
}

/// Writes the next version of a user and tells the nodes; false where the user is not at `version`.
async fn update(pool: &PgPool, version: i64, entry: &Entry) -> Result<bool, sqlx::Error> {
    let update = trace::query(
        "WITH written AS (UPDATE users SET version = $3, status = $4, updated_at = $5, email = $6, name = $7, \
         tags = $8, words = array_to_tsvector($9), body = $10 WHERE id = $1 AND version = $2 RETURNING id) \
         SELECT pg_notify($11, 'user ' || id) FROM written",
    );
    let update = update.bind(entry.record.id.0).bind(version).bind(entry.record.version);
    let update = update.bind(entry::number(entry.draft.status)).bind(entry.updated_at);
    let update = update
        .bind(&entry.draft.email)
        .bind(&entry.draft.name)
        .bind(&entry.draft.tags)
        .bind(&entry.draft.words);
    let update = update.bind(&entry.record.body[..]).bind(CHANNEL);
    Ok(update.fetch_optional(pool).await?.is_some())
}

/// Deletes users, and the answers kept for repeated requests that they are in, and tells the nodes.
pub async fn delete(pool: &PgPool, ids: &[UserId], expected: Option<i64>) -> Result<Deleted, Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    // In the order of what is locked, so that two deletions never wait for each other.
    let delete = trace::query_scalar(
        "WITH doomed AS (SELECT id FROM users WHERE id = ANY($1) AND ($2::int8 IS NULL OR version = $2) \
         ORDER BY id FOR UPDATE), \
         gone AS (DELETE FROM users USING doomed WHERE users.id = doomed.id RETURNING users.id, users.created_at), \
         stale AS (SELECT claims.seq FROM claims JOIN gone ON claims.created_at = gone.created_at \
         WHERE position(uuid_send(gone.id) IN claims.answer) > 0 ORDER BY claims.seq FOR UPDATE OF claims), \
         erased AS (UPDATE claims SET answer = '' FROM stale WHERE claims.seq = stale.seq) \
         SELECT id FROM (SELECT id, pg_notify($3, 'user ' || id) AS told FROM gone) AS all_told \
         WHERE told IS NOT NULL",
    );
    let delete = delete.bind(&ids).bind(expected).bind(CHANNEL).fetch_all(pool);
    let gone: Vec<Uuid> = delete.await.map_err(of_pool)?;
    if gone.is_empty() && expected.is_some() {
        let version = trace::query_scalar("SELECT version FROM users WHERE id = ANY($1) LIMIT 1").bind(&ids);
        if let Some(version) = version.fetch_optional(pool).await.map_err(of_pool)? {
            return Ok(Deleted::Changed(version));
        }
    }
    Ok(Deleted::Done(gone.into_iter().map(UserId).collect()))
}

/// A page of users.
pub async fn list(pool: &PgPool, query: &Query) -> Result<Page, Error> {
    let rows = rows(pool, list::page(&DIALECT, query)).await?;
    let record = |row: &PgRow| {
        let key = if list::is_text(query.sort.by) {
            SortKey::Text(row.try_get(3)?)
        } else {
            SortKey::Time(row.try_get(3)?)
        };
        Ok((record_of(row)?, key))
    };
    let rows: Result<Vec<_>, sqlx::Error> = rows.iter().map(record).collect();
    Ok(list::paged(query, rows.map_err(of_pool)?))
}

/// How many users meet a filter.
pub async fn count(pool: &PgPool, filter: &Filter) -> Result<u64, Error> {
    let rows = rows(pool, list::count(&DIALECT, filter)).await?;
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(of_pool)?;
    Ok(count.unsigned_abs())
}

async fn rows(pool: &PgPool, statement: Statement) -> Result<Vec<PgRow>, Error> {
    let mut arguments = PgArguments::default();
    for value in statement.values {
        match value {
            Value::Integer(integer) => arguments.add(integer),
            Value::Text(text) => arguments.add(text),
            Value::Id(id) => arguments.add(id.0),
        }
        .map_err(Error::Failed)?;
    }
    // Every text from outside is a parameter.
    trace::query_with(AssertSqlSafe(statement.sql), arguments).fetch_all(pool).await.map_err(of_pool)
}

/// Writes rows as they are, but for those that are there.
pub async fn load(pool: &PgPool, entries: &[Entry]) -> Result<u64, Error> {
    let arguments = insertion(entries.iter().collect())?;
    let load = trace::query_with(AssertSqlSafe(format!("{INSERT}{LOAD}")), arguments);
    Ok(load.execute(pool).await.map_err(of_pool)?.rows_affected())
}

/// Adds an API key and tells the nodes.
pub async fn add_key(pool: &PgPool, key: NewKey) -> Result<Key, Error> {
    let created_at = entry::now();
    let insert = trace::query_scalar(
        "WITH added AS (INSERT INTO keys (name, digest, scope, rate, burst, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id) \
         SELECT id FROM (SELECT id, pg_notify($8, 'keys') AS told FROM added) AS all_told WHERE told IS NOT NULL",
    );
    let insert = insert.bind(&key.name).bind(&key.digest[..]).bind(key.scope.number());
    let insert = insert.bind(key.rate.map(i64::from)).bind(key.burst.map(i64::from)).bind(created_at);
    let insert = insert.bind(key.expires_at.map(|time| time.as_microsecond())).bind(CHANNEL);
    let id: i64 = insert.fetch_one(pool).await.map_err(of_pool)?;
    Ok(key.with(id, created_at))
}

/// Revokes an API key and tells the nodes.
pub async fn revoke_key(pool: &PgPool, id: i64) -> Result<bool, Error> {
    let delete = trace::query(
        "WITH revoked AS (DELETE FROM keys WHERE id = $1 RETURNING id) SELECT pg_notify($2, 'keys') FROM revoked",
    );
    let row = delete.bind(id).bind(CHANNEL).fetch_optional(pool).await.map_err(of_pool)?;
    Ok(row.is_some())
}

/// All API keys.
pub async fn list_keys(pool: &PgPool) -> Result<Vec<Key>, Error> {
    let query = trace::query(
        "SELECT id, digest, name, scope, rate, burst, created_at, expires_at FROM keys ORDER BY id",
    );
    let rows = query.fetch_all(pool).await.map_err(of_pool)?;
    rows.iter().map(key_of).collect::<Result<_, _>>().map_err(of_pool)
}

fn key_of(row: &PgRow) -> Result<Key, sqlx::Error> {
    let small = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    Ok(Key {
        id: row.try_get(0)?,
        digest: row.try_get(1)?,
        name: row.try_get(2)?,
        scope: Scope::of(row.try_get(3)?),
        rate: small(row.try_get(4)?),
        burst: small(row.try_get(5)?),
        created_at: entry::time(row.try_get(6)?),
        expires_at: row.try_get::<Option<i64>, _>(7)?.map(entry::time),
    })
}
