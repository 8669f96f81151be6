-- Alerts, and who is told of them. Times are microseconds since 1970 UTC.

-- Where messages go. config is JSON, sealed: addresses of chat rooms are secrets too.
CREATE TABLE alert_channels (
    uuid            BLOB PRIMARY KEY,
    name            TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL,
    config          BLOB NOT NULL,
    enabled         INTEGER NOT NULL,
    revision        INTEGER NOT NULL,
    last_success_at INTEGER,
    last_error_at   INTEGER,
    last_error      TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
);

-- Rules, silences and the one row of settings: a few hundred at most, read whole.
CREATE TABLE alert_documents (
    uuid       BLOB PRIMARY KEY,
    sort       TEXT NOT NULL,
    name       TEXT NOT NULL,
    body       TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (sort, name)
);

-- dedup is unique among alerts not resolved: the key with the id after it once resolved.
-- state: 0 open, 1 acknowledged, 2 resolved. severity: 0 info to 4 critical.
CREATE TABLE alerts (
    id              INTEGER PRIMARY KEY,
    uuid            BLOB NOT NULL UNIQUE,
    dedup           TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL,
    subject         TEXT NOT NULL,
    severity        INTEGER NOT NULL,
    title           TEXT NOT NULL,
    attributes      TEXT NOT NULL,
    state           INTEGER NOT NULL,
    silenced_by     BLOB,
    first_at        INTEGER NOT NULL,
    last_at         INTEGER NOT NULL,
    count           INTEGER NOT NULL,
    acknowledged_by TEXT,
    acknowledged_at INTEGER,
    resolved_at     INTEGER,
    escalate_at     INTEGER
);
CREATE INDEX alerts_by_state ON alerts (state, last_at, id);
CREATE INDEX alerts_by_subject ON alerts (subject, kind) WHERE state < 2;
CREATE INDEX alerts_to_escalate ON alerts (escalate_at) WHERE escalate_at IS NOT NULL;

-- state: 0 waiting, 1 sent, 2 dead, 3 held for the digest.
CREATE TABLE alert_deliveries (
    id           INTEGER PRIMARY KEY,
    uuid         BLOB NOT NULL UNIQUE,
    alert_id     INTEGER NOT NULL,
    channel      BLOB NOT NULL,
    reason       TEXT NOT NULL,
    state        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    next_at      INTEGER NOT NULL,
    last_error   TEXT,
    created_at   INTEGER NOT NULL,
    done_at      INTEGER,
    UNIQUE (alert_id, channel, reason)
);
CREATE INDEX alert_deliveries_waiting ON alert_deliveries (next_at, id) WHERE state = 0;
CREATE INDEX alert_deliveries_by_state ON alert_deliveries (state, id);

-- When each certificate next comes near its end.
CREATE TABLE alert_schedule (
    subject    TEXT PRIMARY KEY,
    next_at    INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    not_after  INTEGER NOT NULL,
    attributes TEXT NOT NULL
);
CREATE INDEX alert_schedule_due ON alert_schedule (next_at, subject);
