-- Alerts, and who is told of them. Times are microseconds since 1970 UTC.

-- Where messages go. config is JSON, sealed: addresses of chat rooms are secrets too.
CREATE TABLE alert_channels (
    uuid            UUID PRIMARY KEY,
    name            TEXT COLLATE "C" NOT NULL UNIQUE,
    kind            TEXT NOT NULL,
    config          BYTEA NOT NULL,
    enabled         BIGINT NOT NULL,
    revision        BIGINT NOT NULL,
    last_success_at BIGINT,
    last_error_at   BIGINT,
    last_error      TEXT,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);

-- Rules, silences and the one row of settings: a few hundred at most, read whole.
CREATE TABLE alert_documents (
    uuid       UUID PRIMARY KEY,
    sort       TEXT NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    body       TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (sort, name)
);

-- dedup is unique among alerts not resolved: the key with the id after it once resolved.
-- state: 0 open, 1 acknowledged, 2 resolved. severity: 0 info to 4 critical.
CREATE TABLE alerts (
    id              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid            UUID NOT NULL UNIQUE,
    dedup           TEXT COLLATE "C" NOT NULL UNIQUE,
    kind            TEXT COLLATE "C" NOT NULL,
    subject         TEXT COLLATE "C" NOT NULL,
    severity        BIGINT NOT NULL,
    title           TEXT NOT NULL,
    attributes      TEXT NOT NULL,
    state           BIGINT NOT NULL,
    silenced_by     UUID,
    first_at        BIGINT NOT NULL,
    last_at         BIGINT NOT NULL,
    count           BIGINT NOT NULL,
    acknowledged_by TEXT,
    acknowledged_at BIGINT,
    resolved_at     BIGINT,
    escalate_at     BIGINT
);
CREATE INDEX alerts_by_state ON alerts (state, last_at, id);
CREATE INDEX alerts_by_subject ON alerts (subject, kind) WHERE state < 2;
CREATE INDEX alerts_to_escalate ON alerts (escalate_at) WHERE escalate_at IS NOT NULL;

-- state: 0 waiting, 1 sent, 2 dead, 3 held for the digest.
CREATE TABLE alert_deliveries (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid         UUID NOT NULL UNIQUE,
    alert_id     BIGINT NOT NULL,
    channel      UUID NOT NULL,
    reason       TEXT NOT NULL,
    state        BIGINT NOT NULL,
    attempts     BIGINT NOT NULL,
    next_at      BIGINT NOT NULL,
    last_error   TEXT,
    created_at   BIGINT NOT NULL,
    done_at      BIGINT,
    UNIQUE (alert_id, channel, reason)
);
CREATE INDEX alert_deliveries_waiting ON alert_deliveries (next_at, id) WHERE state = 0;
CREATE INDEX alert_deliveries_by_state ON alert_deliveries (state, id);

-- When each certificate next comes near its end.
CREATE TABLE alert_schedule (
    subject    TEXT COLLATE "C" PRIMARY KEY,
    next_at    BIGINT NOT NULL,
    not_before BIGINT NOT NULL,
    not_after  BIGINT NOT NULL,
    attributes TEXT NOT NULL
);
CREATE INDEX alert_schedule_due ON alert_schedule (next_at, subject);
