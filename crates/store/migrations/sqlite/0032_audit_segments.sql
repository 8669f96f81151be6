-- Sealed segments of the audit log. Times are microseconds since 1970 UTC.

-- Events first to last of a chain, which then leave audit_events. head: JSON; each names the hash of the one before it.
-- ends_at: the latest time of an event in it. body: compressed, encrypted under data_key, which is sealed under the master key.
-- A pruned segment has its head alone.
CREATE TABLE audit_segments (
    number    INTEGER PRIMARY KEY,
    id        BLOB    NOT NULL UNIQUE,
    shard     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    hash      BLOB    NOT NULL,
    ends_at   INTEGER NOT NULL,
    head      TEXT    NOT NULL,
    data_key  BLOB,
    body      BLOB,
    pruned_at INTEGER
) STRICT;
CREATE INDEX audit_segments_of_chain ON audit_segments (shard, last);
CREATE INDEX audit_segments_unpruned ON audit_segments (ends_at) WHERE pruned_at IS NULL;
