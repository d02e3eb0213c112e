-- When keys were last used. Apart from the keys, whose changes all nodes are told. Goes with the key, whoever revokes that.
CREATE TABLE key_uses (
    key BIGINT PRIMARY KEY REFERENCES keys ON DELETE CASCADE,
    at  BIGINT NOT NULL                            -- Unix seconds, to a minute
) WITH (fillfactor = 80);
