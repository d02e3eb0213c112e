-- As the file's schema (sqlite/schema.rs) where nothing else is said. Ids are never reused, so that clicks, tokens and caches
-- never mean another. The default domain is 0 and has no row.
CREATE TABLE domains (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host           TEXT COLLATE "C" NOT NULL UNIQUE,
    root_target    TEXT,
    default_target TEXT,
    not_found_html TEXT,
    created_at     BIGINT NOT NULL                 -- Unix seconds, as all instants
);

CREATE TABLE links (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    domain        BIGINT NOT NULL,
    code          TEXT COLLATE "C" NOT NULL,
    target        TEXT NOT NULL,
    title         TEXT,
    tags          TEXT[] NOT NULL,                 -- sorted
    status        SMALLINT NOT NULL,               -- 0 active, 1 disabled
    redirect      SMALLINT NOT NULL,               -- 301, 302, 307, 308
    forward_query BOOLEAN NOT NULL,
    password_hash TEXT,                            -- PHC string
    not_before    BIGINT,
    expires_at    BIGINT,
    max_clicks    BIGINT,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    -- A domain that has links cannot go; what is at the default one asks nobody.
    named_domain  BIGINT GENERATED ALWAYS AS (nullif(domain, 0)) STORED REFERENCES domains
);
CREATE UNIQUE INDEX links_by_code ON links (domain, code);
CREATE INDEX links_by_update ON links (updated_at, id);
CREATE INDEX links_by_domain ON links (named_domain) WHERE named_domain IS NOT NULL;
CREATE INDEX links_by_tag ON links USING gin (tags);

-- Clicks of a link. Apart from the links, which are not written anew for each visit.
CREATE TABLE totals (
    link   BIGINT PRIMARY KEY,
    clicks BIGINT NOT NULL
) WITH (fillfactor = 80);

-- How many clicks of a link's limit nodes were granted so far, and how many by the last grant.
CREATE TABLE limits (
    link    BIGINT PRIMARY KEY,
    taken   BIGINT NOT NULL,
    granted BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 80);

CREATE TABLE clicks (
    link     BIGINT NOT NULL,                      -- 0 sums all links, those deleted since too
    day      INTEGER NOT NULL,                     -- days since the Unix epoch; the least number for those folded
    referrer TEXT COLLATE "C" NOT NULL,            -- a host; empty for none, '(other)' for all further ones
    agent    SMALLINT NOT NULL,
    count    BIGINT NOT NULL,
    seen     BIGINT NOT NULL,                      -- when it was last added to
    PRIMARY KEY (link, day, referrer, agent)
) WITH (fillfactor = 80);
CREATE TABLE folded_days (
    link  BIGINT PRIMARY KEY,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL
);

-- What nodes have counted and nobody has added up yet: one row a flush, whose number tells a flush that is sent again.
CREATE TABLE click_flushes (
    node      BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    links     BIGINT[] NOT NULL,
    days      INTEGER[] NOT NULL,
    referrers TEXT[] NOT NULL,
    agents    SMALLINT[] NOT NULL,
    counts    BIGINT[] NOT NULL,
    PRIMARY KEY (node, seq)
);
-- Up to which flush a node's were added up.
CREATE TABLE click_nodes (
    node   BIGINT PRIMARY KEY,
    folded BIGINT NOT NULL,
    seen   BIGINT NOT NULL
);

CREATE TABLE idempotency (
    key        TEXT COLLATE "C" PRIMARY KEY,
    request    BYTEA NOT NULL,                     -- SHA-256 of the request
    link       BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);

CREATE TABLE tokens (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       TEXT NOT NULL,
    scope      BIGINT NOT NULL,                    -- 0 read, 1 write
    selector   TEXT COLLATE "C" NOT NULL UNIQUE,   -- the part of the secret that finds the row
    hash       BYTEA NOT NULL,                     -- SHA-256 of the secret
    domains    TEXT,                               -- ids, one space between; of any where absent
    created_at BIGINT NOT NULL
);

-- What other nodes' caches may know of and is no longer so: they poll for it (linerate-postgres, changes.rs). One row a
-- statement, whoever writes. New links are told too, for caches know that there was none.
CREATE TABLE changes (
    xid   XID8 NOT NULL DEFAULT pg_current_xact_id(),
    topic TEXT NOT NULL,
    keys  TEXT[] NOT NULL
);
CREATE INDEX changes_by_transaction ON changes (xid);
CREATE TABLE changes_pruned (xid XID8 NOT NULL);
INSERT INTO changes_pruned VALUES ('0');

CREATE FUNCTION note_links() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (topic, keys)
        SELECT 'link', array_agg(domain || '/' || code) FROM written HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE FUNCTION note_topic() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (topic, keys) VALUES (TG_ARGV[0], '{}');
    RETURN NULL;
END $$;
CREATE TRIGGER noted_new AFTER INSERT ON links REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION note_links();
CREATE TRIGGER noted_edited AFTER UPDATE ON links REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION note_links();
CREATE TRIGGER noted_gone AFTER DELETE ON links REFERENCING OLD TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION note_links();
CREATE TRIGGER all_noted AFTER TRUNCATE ON links FOR EACH STATEMENT EXECUTE FUNCTION note_topic('all');
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON domains
    FOR EACH STATEMENT EXECUTE FUNCTION note_topic('domains');
