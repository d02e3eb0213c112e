CREATE TABLE links (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    code          TEXT NOT NULL UNIQUE,
    target        TEXT NOT NULL,
    title         TEXT,
    tags          TEXT NOT NULL,
    status        INTEGER NOT NULL,
    redirect      INTEGER NOT NULL,
    forward_query INTEGER NOT NULL,
    password_hash TEXT,
    not_before    INTEGER,
    expires_at    INTEGER,
    max_clicks    INTEGER,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX links_by_update ON links (updated_at, id);

CREATE TABLE link_tags (
    tag  TEXT NOT NULL,
    link INTEGER NOT NULL REFERENCES links ON DELETE CASCADE,
    PRIMARY KEY (tag, link)
) STRICT, WITHOUT ROWID;
CREATE INDEX link_tags_by_link ON link_tags (link);

CREATE TABLE clicks (
    link     INTEGER NOT NULL,
    day      INTEGER NOT NULL,
    referrer TEXT NOT NULL,
    agent    INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    seen     INTEGER NOT NULL,
    PRIMARY KEY (link, day, referrer, agent)
) STRICT, WITHOUT ROWID;

CREATE TABLE totals (
    link   INTEGER PRIMARY KEY,
    clicks INTEGER NOT NULL
) STRICT;

CREATE TABLE folded_days (
    link  INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL
) STRICT;

CREATE TABLE idempotency (
    key        TEXT PRIMARY KEY,
    request    BLOB NOT NULL,
    link       INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_at);

CREATE TABLE tokens (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    scope      INTEGER NOT NULL,
    selector   TEXT NOT NULL UNIQUE,
    hash       BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

PRAGMA journal_mode = WAL;
PRAGMA user_version = 4;
PRAGMA application_id = 1819175795;
