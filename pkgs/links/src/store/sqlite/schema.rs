//! The schema, as a list of migrations. `user_version` is the number of migrations that a file has.

use rusqlite::{Connection, TransactionBehavior};

use super::Error;

/// The steps from version `i` to `i + 1`. Only append to this list.
pub(super) const MIGRATIONS: &[&str] = &["
    -- Ids are never reused, so that clicks still under way never count for another link.
    CREATE TABLE links (
        id            INTEGER PRIMARY KEY AUTOINCREMENT,
        code          TEXT NOT NULL UNIQUE,
        target        TEXT NOT NULL,
        title         TEXT,
        tags          TEXT NOT NULL,               -- sorted, one space between
        status        INTEGER NOT NULL,            -- 0 active, 1 disabled
        redirect      INTEGER NOT NULL,            -- 301, 302, 307, 308
        forward_query INTEGER NOT NULL,
        password_hash TEXT,                        -- PHC string
        not_before    INTEGER,                     -- Unix seconds, as all instants
        expires_at    INTEGER,
        max_clicks    INTEGER,
        clicks        INTEGER NOT NULL,
        created_at    INTEGER NOT NULL,
        updated_at    INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX links_by_update ON links (updated_at, id);
    -- None on clicks: each flush would pay for it, and sorting a million links by clicks takes half a second.

    CREATE TABLE link_tags (
        tag  TEXT NOT NULL,
        link INTEGER NOT NULL REFERENCES links ON DELETE CASCADE,
        PRIMARY KEY (tag, link)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX link_tags_by_link ON link_tags (link);

    CREATE TABLE referrers (
        id   INTEGER PRIMARY KEY,
        host TEXT NOT NULL UNIQUE
    ) STRICT;

    -- Link 0 sums all links, those deleted since too.
    CREATE TABLE clicks (
        link     INTEGER NOT NULL,
        day      INTEGER NOT NULL,                 -- days since the Unix epoch
        referrer INTEGER NOT NULL,
        agent    INTEGER NOT NULL,
        count    INTEGER NOT NULL,
        PRIMARY KEY (link, day, referrer, agent)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE idempotency (
        key        TEXT PRIMARY KEY,
        request    BLOB NOT NULL,                  -- SHA-256 of the request
        link       INTEGER NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX idempotency_by_age ON idempotency (created_at);

    CREATE TABLE tokens (
        id         INTEGER PRIMARY KEY AUTOINCREMENT,
        name       TEXT NOT NULL,
        scope      INTEGER NOT NULL,               -- 0 read, 1 write
        selector   TEXT NOT NULL UNIQUE,           -- the part of the secret that finds the row
        hash       BLOB NOT NULL,                  -- SHA-256 of the secret
        created_at INTEGER NOT NULL
    ) STRICT;
", "
    -- Apart from the links: a flush writes a few bytes a link clicked, and the pages of links stay clean, to be
    -- read through the map rather than from the log. A link without a row has no clicks.
    CREATE TABLE totals (
        link   INTEGER PRIMARY KEY,
        clicks INTEGER NOT NULL
    ) STRICT;
    INSERT INTO totals SELECT id, clicks FROM links WHERE clicks > 0;
    ALTER TABLE links DROP COLUMN clicks;
", "
    -- Referrers by name: a table of all names there ever were could be filled by whoever makes names up.
    CREATE TABLE clicks_by_name (
        link     INTEGER NOT NULL,                 -- 0 sums all links, those deleted since too
        day      INTEGER NOT NULL,                 -- days since the Unix epoch
        referrer TEXT NOT NULL,                    -- a host; empty for none, '(other)' for all further ones
        agent    INTEGER NOT NULL,
        count    INTEGER NOT NULL,
        seen     INTEGER NOT NULL,                 -- when it was last added to
        PRIMARY KEY (link, day, referrer, agent)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO clicks_by_name SELECT link, day, ifnull(host, ''), agent, sum(count), 0
        FROM clicks LEFT JOIN referrers ON id = referrer GROUP BY 1, 2, 3, 4;
    DROP TABLE clicks;
    DROP TABLE referrers;
    ALTER TABLE clicks_by_name RENAME TO clicks;
", "
    -- Days too old to be told apart are one day in clicks, the least number there is. Which they were.
    CREATE TABLE folded_days (
        link  INTEGER PRIMARY KEY,
        first INTEGER NOT NULL,
        last  INTEGER NOT NULL
    ) STRICT;
", "
    -- The default domain is 0 and has no row. Ids are never reused, so that tokens and caches never mean another.
    CREATE TABLE domains (
        id             INTEGER PRIMARY KEY AUTOINCREMENT,
        host           TEXT NOT NULL UNIQUE,
        root_target    TEXT,
        default_target TEXT,
        not_found_html TEXT,
        created_at     INTEGER NOT NULL
    ) STRICT;
    -- A code is of its domain, and a column that is UNIQUE can be made otherwise only by another table.
    CREATE TABLE links_of_domains (
        id            INTEGER PRIMARY KEY AUTOINCREMENT,
        domain        INTEGER NOT NULL DEFAULT 0,
        code          TEXT NOT NULL,
        target        TEXT NOT NULL,
        title         TEXT,
        tags          TEXT NOT NULL,               -- sorted, one space between
        status        INTEGER NOT NULL,            -- 0 active, 1 disabled
        redirect      INTEGER NOT NULL,            -- 301, 302, 307, 308
        forward_query INTEGER NOT NULL,
        password_hash TEXT,                        -- PHC string
        not_before    INTEGER,                     -- Unix seconds, as all instants
        expires_at    INTEGER,
        max_clicks    INTEGER,
        created_at    INTEGER NOT NULL,
        updated_at    INTEGER NOT NULL
    ) STRICT;
    INSERT INTO links_of_domains SELECT id, 0, code, target, title, tags, status, redirect, forward_query, password_hash,
        not_before, expires_at, max_clicks, created_at, updated_at FROM links ORDER BY id;
    -- Also where the newest link was deleted.
    DELETE FROM sqlite_sequence WHERE name = 'links_of_domains';
    INSERT INTO sqlite_sequence SELECT 'links_of_domains', seq FROM sqlite_sequence WHERE name = 'links';
    DROP TABLE links;
    ALTER TABLE links_of_domains RENAME TO links;
    -- After the rows: sorted at once, which is faster than one by one.
    CREATE UNIQUE INDEX links_by_code ON links (domain, code);
    CREATE INDEX links_by_update ON links (updated_at, id);
    -- Costs nothing where there is the default domain alone.
    CREATE INDEX links_by_domain ON links (domain) WHERE domain <> 0;

    -- The ids of those that a token is for, one space between; of any where absent.
    ALTER TABLE tokens ADD COLUMN domains TEXT;
"];

/// Columns and tables that older releases need not know, since those releases name what they read and write. They are
/// not in [`MIGRATIONS`]: a release refuses a version later than it knows, but must be able to start after a newer
/// release has run.
const ADDITIONS: [(&str, &str, &str); 4] = [
    ("tokens", "expires_at", "ALTER TABLE tokens ADD COLUMN expires_at INTEGER"),
    ("tokens", "last_used_at", "ALTER TABLE tokens ADD COLUMN last_used_at INTEGER"),
    (
        "click_hours",
        "link",
        "CREATE TABLE click_hours (
            link  INTEGER NOT NULL,                -- 0 sums all links, those deleted since too
            hour  INTEGER NOT NULL,                -- hours since the Unix epoch
            count INTEGER NOT NULL,
            bots  INTEGER NOT NULL,                -- of these
            PRIMARY KEY (link, hour)
        ) STRICT, WITHOUT ROWID;
        CREATE TRIGGER hours_gone AFTER DELETE ON links BEGIN DELETE FROM click_hours WHERE link = old.id; END;",
    ),
    (
        "click_countries",
        "link",
        "CREATE TABLE click_countries (
            link    INTEGER NOT NULL,              -- 0 sums all links, those deleted since too
            day     INTEGER NOT NULL,              -- days since the Unix epoch; the least number for those folded
            country TEXT NOT NULL,                 -- ISO 3166-1 alpha-2; empty where it is not known
            count   INTEGER NOT NULL,
            PRIMARY KEY (link, day, country)
        ) STRICT, WITHOUT ROWID;
        CREATE TRIGGER countries_gone AFTER DELETE ON links BEGIN
            DELETE FROM click_countries WHERE link = old.id;
        END;",
    ),
];

/// `application_id` of our files (sqlite.org/pragma.html#pragma_application_id): `lnks`.
const APPLICATION: i64 = 0x6c6e_6b73;

/// The first version whose files have [`APPLICATION`]. Older files are recognised by their tables.
const FIRST_NAMED: i64 = 3;

/// Tables that files of all versions have.
const TABLES: [&str; 5] = ["links", "link_tags", "clicks", "idempotency", "tokens"];

/// Migrates a database to the newest schema. Refuses a newer one.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    if is_complete(connection)? {
        return Ok(());
    }
    // Dropping a referenced table first deletes its rows, and all rows that refer to them. The setting cannot change
    // within a transaction (sqlite.org/pragma.html#pragma_foreign_keys).
    connection.pragma_update(None, "foreign_keys", false)?;
    let migrated = try_migrate(connection);
    connection.pragma_update(None, "foreign_keys", true)?;
    migrated
}

fn try_migrate(connection: &mut Connection) -> Result<(), Error> {
    // Another process may be migrating the same file, so check again under the write lock.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = usize::try_from(version(&transaction)?).unwrap_or(0);
    for (version, step) in MIGRATIONS.iter().enumerate().skip(found) {
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", version as i64 + 1)?;
    }
    for (table, column, step) in ADDITIONS {
        if !has_column(&transaction, table, column)? {
            transaction.execute_batch(step)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    Ok(transaction.commit()?)
}

/// Whether the schema has everything that this release needs. Refuses foreign and newer files.
pub(super) fn is_complete(connection: &Connection) -> Result<bool, Error> {
    let mut is_complete = is_current(connection)?;
    for (table, column, _) in ADDITIONS {
        is_complete = is_complete && has_column(connection, table, column)?;
    }
    Ok(is_complete)
}

fn has_column(connection: &Connection, table: &str, column: &str) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2";
    Ok(connection.prepare(sql)?.exists([table, column])?)
}

/// Whether the schema has this release's version. Other releases that know this version may run beside this one.
/// Refuses foreign and newer files.
pub(super) fn is_current(connection: &Connection) -> Result<bool, Error> {
    let known = MIGRATIONS.len() as i64;
    let found = version(connection)?;
    if !is_ours(connection, found)? {
        return Err(Error::Foreign);
    }
    match found {
        found if found > known => Err(Error::TooNew { found, known }),
        found => Ok(found == known),
    }
}

/// Whether the file is ours, or is empty and may become ours.
fn is_ours(connection: &Connection, version: i64) -> Result<bool, Error> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application == APPLICATION {
        return Ok(true);
    }
    if application != 0 || version >= FIRST_NAMED {
        return Ok(false);
    }
    let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    let tables = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(match version {
        0 => tables.is_empty(),
        _ => TABLES.iter().all(|table| tables.iter().any(|name| name == table)),
    })
}

fn version(connection: &Connection) -> Result<i64, Error> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
