-- What people were told of endpoints that watches look at, so that they are told of what is new and of what is over.
-- leaf_id, issuer_id and chain_id are the last ones told of; conditions is a set of bits; expiry says that the end of the
-- leaf is being watched.
CREATE TABLE endpoints_told (
    endpoint_id BIGINT PRIMARY KEY,
    watch       UUID   NOT NULL,
    leaf_id     BIGINT NOT NULL,
    issuer_id   BIGINT NOT NULL,
    chain_id    BIGINT NOT NULL,
    conditions  BIGINT NOT NULL,
    expiry      BIGINT NOT NULL
);
CREATE INDEX endpoints_told_by_watch ON endpoints_told (watch, endpoint_id);
CREATE INDEX endpoints_told_by_leaf ON endpoints_told (leaf_id) WHERE expiry = 1;

-- Ignored until then, µs; NULL is for good.
ALTER TABLE dismissals ADD COLUMN until BIGINT;
