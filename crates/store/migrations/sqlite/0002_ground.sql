-- What every room stands on: the audit log, the outbox, leases. Times are microseconds since 1970 UTC.

-- The end of each audit chain. One: there is one writer.
CREATE TABLE audit_chains (
    shard    INTEGER PRIMARY KEY,
    sequence INTEGER NOT NULL,
    hash     BLOB NOT NULL
);
INSERT INTO audit_chains (shard, sequence, hash) VALUES (0, 0, zeroblob(32));

-- Append-only; hash covers the hash before it in its chain.
CREATE TABLE audit_events (
    shard    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    actor    TEXT NOT NULL,
    action   TEXT NOT NULL,
    resource TEXT NOT NULL,
    details  TEXT NOT NULL,
    hash     BLOB NOT NULL,
    PRIMARY KEY (shard, sequence)
) WITHOUT ROWID;
CREATE INDEX audit_events_by_time ON audit_events (at, shard, sequence);
CREATE INDEX audit_events_by_resource ON audit_events (resource, at, shard, sequence);

-- tx orders rows by what a reader may see: always 0, there is one writer.
CREATE TABLE outbox (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    tx      INTEGER NOT NULL DEFAULT 0,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,
    body    TEXT NOT NULL
);
CREATE INDEX outbox_in_order ON outbox (tx, id);
CREATE INDEX outbox_by_time ON outbox (at);

CREATE TABLE outbox_consumers (
    name TEXT PRIMARY KEY,
    tx   INTEGER NOT NULL,
    id   INTEGER NOT NULL
);

CREATE TABLE leases (
    name     TEXT PRIMARY KEY,
    holder   BLOB NOT NULL,
    until_at INTEGER NOT NULL
);
