-- What every room stands on: the audit log, the outbox, leases. Times are microseconds since 1970 UTC.

-- The end of each audit chain. Sixteen, so that writers do not queue for one row.
CREATE TABLE audit_chains (
    shard    BIGINT PRIMARY KEY,
    sequence BIGINT NOT NULL,
    hash     BYTEA NOT NULL
);
INSERT INTO audit_chains (shard, sequence, hash) SELECT n, 0, '\x0000000000000000000000000000000000000000000000000000000000000000' FROM generate_series(0, 15) AS n;

-- Append-only; hash covers the hash before it in its chain.
CREATE TABLE audit_events (
    shard    BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    actor    TEXT COLLATE "C" NOT NULL,
    action   TEXT COLLATE "C" NOT NULL,
    resource TEXT COLLATE "C" NOT NULL,
    details  TEXT NOT NULL,
    hash     BYTEA NOT NULL,
    PRIMARY KEY (shard, sequence)
);
CREATE INDEX audit_events_by_time ON audit_events (at, shard, sequence);
CREATE INDEX audit_events_by_resource ON audit_events (resource, at, shard, sequence);

-- tx orders rows by what a reader may see: the transaction that wrote it.
CREATE TABLE outbox (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tx      BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    at      BIGINT NOT NULL,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,
    body    TEXT NOT NULL
);
CREATE INDEX outbox_in_order ON outbox (tx, id);
CREATE INDEX outbox_by_time ON outbox (at);

CREATE TABLE outbox_consumers (
    name TEXT COLLATE "C" PRIMARY KEY,
    tx   BIGINT NOT NULL,
    id   BIGINT NOT NULL
);

CREATE TABLE leases (
    name     TEXT COLLATE "C" PRIMARY KEY,
    holder   UUID NOT NULL,
    until_at BIGINT NOT NULL
);
