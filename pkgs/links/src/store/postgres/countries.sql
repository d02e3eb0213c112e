-- Clicks by country and day, where countries are looked up.
CREATE TABLE click_countries (
    link    BIGINT NOT NULL,                       -- 0 sums all links, those deleted since too
    day     INTEGER NOT NULL,                      -- days since the Unix epoch; the least number for those folded
    country TEXT COLLATE "C" NOT NULL,             -- ISO 3166-1 alpha-2; empty where it is not known
    count   BIGINT NOT NULL,
    PRIMARY KEY (link, day, country)
) WITH (fillfactor = 80);

-- Of nodes that look them up.
ALTER TABLE click_flushes ADD COLUMN country_links BIGINT[], ADD COLUMN country_days INTEGER[],
    ADD COLUMN countries TEXT[], ADD COLUMN country_counts BIGINT[];

-- Programs that know of no countries delete links too.
CREATE FUNCTION forget_countries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM click_countries WHERE link IN (SELECT id FROM gone);
    RETURN NULL;
END $$;
CREATE TRIGGER countries_gone AFTER DELETE ON links REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION forget_countries();
