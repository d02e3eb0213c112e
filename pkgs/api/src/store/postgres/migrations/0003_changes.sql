-- What other nodes' caches may know of and is no longer so: they poll for it (linerate-postgres, changes.rs). Triggers
-- note it whoever writes, the generation before this one too.
CREATE TABLE changes (
    xid   XID8 NOT NULL DEFAULT pg_current_xact_id(),
    topic TEXT NOT NULL,
    keys  TEXT[] NOT NULL
);
CREATE INDEX changes_by_transaction ON changes (xid);
CREATE TABLE changes_pruned (xid XID8 NOT NULL);
INSERT INTO changes_pruned VALUES ('0');

CREATE FUNCTION note_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (topic, keys) VALUES ('user', ARRAY[OLD.id::text]);
    RETURN NULL;
END $$;
CREATE FUNCTION note_topic() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (topic, keys) VALUES (TG_ARGV[0], '{}');
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER UPDATE OR DELETE ON users FOR EACH ROW EXECUTE FUNCTION note_user();
CREATE TRIGGER all_noted AFTER TRUNCATE ON users FOR EACH STATEMENT EXECUTE FUNCTION note_topic('all');
CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON keys
    FOR EACH STATEMENT EXECUTE FUNCTION note_topic('keys');
