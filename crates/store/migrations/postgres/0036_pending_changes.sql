-- Changes of profiles, access, issuers, targets and policies that wait for approval, because a profile that requires approval
-- depends on what they change. profiles: those profiles, a JSON array. plan: what is approved, JSON. sealed: the change itself,
-- sealed to this row; NULL once the change is over. state: 0 open, 1 approved, 2 rejected, 3 void, 4 applied.
CREATE TABLE pending_changes (
    uuid         UUID   PRIMARY KEY,
    action       TEXT   NOT NULL,
    object       TEXT   NOT NULL,
    profiles     TEXT   NOT NULL,
    needed       BIGINT NOT NULL,
    state        BIGINT NOT NULL,
    plan         TEXT   NOT NULL,
    plan_sha256  BYTEA  NOT NULL,
    sealed       BYTEA,
    requested_by TEXT COLLATE "C" NOT NULL,
    requested_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    decided_by   TEXT,
    decided_at   BIGINT,
    note         TEXT
);
CREATE INDEX pending_changes_by_state ON pending_changes (state, uuid);
