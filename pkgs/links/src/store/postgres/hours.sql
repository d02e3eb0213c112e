-- Clicks by hour, for as long as hours are told apart.
CREATE TABLE click_hours (
    link  BIGINT NOT NULL,                         -- 0 sums all links, those deleted since too
    hour  INTEGER NOT NULL,                        -- hours since the Unix epoch
    count BIGINT NOT NULL,
    bots  BIGINT NOT NULL,                         -- of these
    PRIMARY KEY (link, hour)
) WITH (fillfactor = 80);

-- Of nodes that know of hours: the hour of each entry, whose day it is of.
ALTER TABLE click_flushes ADD COLUMN hours INTEGER[];

-- Programs that know of no hours delete links too.
CREATE FUNCTION forget_hours() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM click_hours WHERE link IN (SELECT id FROM gone);
    RETURN NULL;
END $$;
CREATE TRIGGER hours_gone AFTER DELETE ON links REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION forget_hours();
