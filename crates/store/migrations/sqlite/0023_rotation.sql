-- Rotation of credentials by policy, whom it tells, one-time reads, and whose doing a permission is. Times are microseconds
-- since 1970 UTC, periods (_s) seconds.

-- path_key: as in credential_permissions; the most specific one counts for a name. planned_to: how far the names below it
-- have been planned since it changed, NULL when all are. removed: gone, once its names are planned without it.
CREATE TABLE credential_rotation_policies (
    path_key       TEXT    PRIMARY KEY,
    path           TEXT    NOT NULL,
    prefix         TEXT,
    every_s        INTEGER,
    before_s       INTEGER,
    before_percent INTEGER,
    overlap_s      INTEGER NOT NULL,
    hook           TEXT,
    planned_to     TEXT,
    removed        INTEGER NOT NULL,
    set_at         INTEGER NOT NULL,
    set_by         TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- What a policy counts for. version: for which it was planned. base_at: when that value was made; versions that only trust
-- another authority do not move it. due_at: NULL when the policy never makes it due. step: of an authority that changes.
-- asked: made due by somebody, whatever the policy says of this version.
CREATE TABLE credential_rotations (
    name_key  TEXT    PRIMARY KEY,
    path_key  TEXT    NOT NULL,
    version   BLOB    NOT NULL,
    base_at   INTEGER NOT NULL,
    not_after INTEGER,
    due_at    INTEGER,
    step      INTEGER NOT NULL,
    asked     INTEGER NOT NULL,
    failures  INTEGER NOT NULL,
    error     TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_rotations_due ON credential_rotations (due_at, name_key) WHERE due_at IS NOT NULL;

-- sealed: the secret that signs what is posted.
CREATE TABLE credential_hooks (
    uuid      BLOB    PRIMARY KEY,
    name      TEXT    NOT NULL UNIQUE,
    url       TEXT    NOT NULL,
    ask_before INTEGER NOT NULL,
    tell_after INTEGER NOT NULL,
    roots     TEXT,
    sealed    BLOB    NOT NULL,
    set_at    INTEGER NOT NULL,
    set_by    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Rotations that a hook has not acknowledged yet.
CREATE TABLE credential_hook_calls (
    id       INTEGER PRIMARY KEY,
    hook     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    version  BLOB    NOT NULL,
    at       INTEGER NOT NULL,
    next_at  INTEGER NOT NULL,
    tries    INTEGER NOT NULL,
    UNIQUE (version, hook)
) STRICT;
CREATE INDEX credential_hook_calls_due ON credential_hook_calls (next_at, id);
CREATE INDEX credential_hook_calls_of ON credential_hook_calls (hook);

-- Values to be read once, by whoever has the token whose SHA-256 this is.
CREATE TABLE credential_wraps (
    token_hash BLOB    PRIMARY KEY,
    uuid       BLOB    NOT NULL UNIQUE,
    name       TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    version    BLOB    NOT NULL,
    sealed     BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_wraps_by_end ON credential_wraps (expires_at);
CREATE INDEX credential_wraps_by_maker ON credential_wraps (created_by, expires_at);

-- Those that were read, without the value: whoever comes second is told that somebody came first.
CREATE TABLE credential_unwraps (
    token_hash BLOB    PRIMARY KEY,
    name       TEXT    NOT NULL,
    read_at    INTEGER NOT NULL,
    read_by    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_unwraps_by_time ON credential_unwraps (read_at);

-- Who gave it, or changed it last, and when that was; NULL for those from before this was kept.
ALTER TABLE credential_permissions ADD COLUMN granted_by TEXT;
ALTER TABLE credential_permissions ADD COLUMN changed_at INTEGER;

CREATE INDEX audit_events_of_permissions ON audit_events (at, shard, sequence)
    WHERE action IN ('credential.grant', 'credential.ungrant');
