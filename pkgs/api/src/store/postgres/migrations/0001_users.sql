CREATE TABLE users (
    id         UUID PRIMARY KEY,
    version    BIGINT NOT NULL,
    status     SMALLINT NOT NULL,       -- 0 active, 1 invited, 2 suspended
    created_at BIGINT NOT NULL,         -- microseconds since the Unix epoch, as all instants
    updated_at BIGINT NOT NULL,
    email      TEXT COLLATE "C" NOT NULL UNIQUE,    -- lower case
    name       TEXT COLLATE "C" NOT NULL,           -- lower case
    tags       TEXT[] NOT NULL,
    words      TSVECTOR NOT NULL,       -- made by the service, as they are
    body       BYTEA NOT NULL           -- the representation as sent
);
-- A usual document stays in its row as it is: moved out of it, a read by id would be two; compressed, slower.
ALTER TABLE users SET (toast_tuple_target = 8160);
ALTER TABLE users ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX users_by_creation ON users (created_at, id);
CREATE INDEX users_by_update ON users (updated_at, id);
CREATE INDEX users_by_name ON users (name, id);
CREATE INDEX users_by_tag ON users USING gin (tags);
CREATE INDEX users_by_word ON users USING gin (words);

CREATE TABLE claims (
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner      BIGINT NOT NULL,         -- an API key, or 0
    key        TEXT NOT NULL,
    digest     BYTEA NOT NULL,          -- SHA-256 of the request
    answer     BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (owner, key)
);
CREATE INDEX claims_by_age ON claims (created_at);

CREATE TABLE keys (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       TEXT NOT NULL,
    digest     BYTEA NOT NULL UNIQUE,   -- SHA-256 of the secret
    scope      SMALLINT NOT NULL,       -- 0 read, 1 write
    rate       BIGINT,                  -- requests a second
    burst      BIGINT,                  -- requests at once
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
