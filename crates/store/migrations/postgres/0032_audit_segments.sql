-- Sealed segments of the audit log. Times are microseconds since 1970 UTC.

-- Events first to last of a chain, which then leave audit_events. head: JSON; each names the hash of the one before it.
-- ends_at: the latest time of an event in it. body: compressed, encrypted under data_key, which is sealed under the master key.
-- A pruned segment has its head alone.
CREATE TABLE audit_segments (
    number    BIGINT PRIMARY KEY,
    id        UUID   NOT NULL UNIQUE,
    shard     BIGINT NOT NULL,
    last      BIGINT NOT NULL,
    hash      BYTEA  NOT NULL,
    ends_at   BIGINT NOT NULL,
    head      TEXT   NOT NULL,
    data_key  BYTEA,
    body      BYTEA,
    pruned_at BIGINT
);
CREATE INDEX audit_segments_of_chain ON audit_segments (shard, last);
CREATE INDEX audit_segments_unpruned ON audit_segments (ends_at) WHERE pruned_at IS NULL;
