-- Changes of profiles, access, issuers, targets and policies that wait for approval, because a profile that requires approval
-- depends on what they change. profiles: those profiles, a JSON array. plan: what is approved, JSON. sealed: the change itself,
-- sealed to this row; NULL once the change is over. state: 0 open, 1 approved, 2 rejected, 3 void, 4 applied.
CREATE TABLE pending_changes (
    uuid         BLOB    PRIMARY KEY,
    action       TEXT    NOT NULL,
    object       TEXT    NOT NULL,
    profiles     TEXT    NOT NULL,
    needed       INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    plan         TEXT    NOT NULL,
    plan_sha256  BLOB    NOT NULL,
    sealed       BLOB,
    requested_by TEXT    NOT NULL,
    requested_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    decided_by   TEXT,
    decided_at   INTEGER,
    note         TEXT
) WITHOUT ROWID;
CREATE INDEX pending_changes_by_state ON pending_changes (state, uuid);
