CREATE TABLE users (
    seq        INTEGER PRIMARY KEY,     -- what tags and words refer to
    id         BLOB NOT NULL UNIQUE,    -- UUID, 16 bytes
    version    INTEGER NOT NULL,
    status     INTEGER NOT NULL,        -- 0 active, 1 invited, 2 suspended
    created_at INTEGER NOT NULL,        -- microseconds since the Unix epoch, as all instants
    updated_at INTEGER NOT NULL,
    email      TEXT NOT NULL UNIQUE,    -- lower case
    name       TEXT NOT NULL,           -- lower case
    body       BLOB NOT NULL            -- the representation as sent; last, for it is long
) STRICT;
CREATE INDEX users_by_creation ON users (created_at, id);
CREATE INDEX users_by_update ON users (updated_at, id);
CREATE INDEX users_by_name ON users (name, id);

CREATE TABLE user_tags (
    tag TEXT NOT NULL,
    seq INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
    PRIMARY KEY (tag, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX user_tags_by_user ON user_tags (seq);

-- Words are made by the service; this tokenizer leaves them as they are.
CREATE VIRTUAL TABLE user_words
    USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE TABLE claims (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    owner      INTEGER NOT NULL,        -- an API key, or 0
    key        TEXT NOT NULL,
    digest     BLOB NOT NULL,           -- SHA-256 of the request
    answer     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (owner, key)
) STRICT;
CREATE INDEX claims_by_age ON claims (created_at);

CREATE TABLE keys (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    digest     BLOB NOT NULL UNIQUE,    -- SHA-256 of the secret
    scope      INTEGER NOT NULL,        -- 0 read, 1 write
    rate       INTEGER,                 -- requests a second
    burst      INTEGER,                 -- requests at once
    created_at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT;
