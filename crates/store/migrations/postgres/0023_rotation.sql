-- Rotation of credentials by policy, whom it tells, one-time reads, and whose doing a permission is. Times are microseconds
-- since 1970 UTC, periods (_s) seconds.

-- path_key: as in credential_permissions; the most specific one counts for a name. planned_to: how far the names below it
-- have been planned since it changed, NULL when all are. removed: gone, once its names are planned without it.
CREATE TABLE credential_rotation_policies (
    path_key       TEXT COLLATE "C" PRIMARY KEY,
    path           TEXT COLLATE "C" NOT NULL,
    prefix         TEXT COLLATE "C",
    every_s        BIGINT,
    before_s       BIGINT,
    before_percent BIGINT,
    overlap_s      BIGINT NOT NULL,
    hook           TEXT COLLATE "C",
    planned_to     TEXT COLLATE "C",
    removed        BIGINT NOT NULL,
    set_at         BIGINT NOT NULL,
    set_by         TEXT    NOT NULL
);

-- What a policy counts for. version: for which it was planned. base_at: when that value was made; versions that only trust
-- another authority do not move it. due_at: NULL when the policy never makes it due. step: of an authority that changes.
-- asked: made due by somebody, whatever the policy says of this version.
CREATE TABLE credential_rotations (
    name_key  TEXT COLLATE "C" PRIMARY KEY,
    path_key  TEXT COLLATE "C" NOT NULL,
    version   UUID    NOT NULL,
    base_at   BIGINT NOT NULL,
    not_after BIGINT,
    due_at    BIGINT,
    step      BIGINT NOT NULL,
    asked     BIGINT NOT NULL,
    failures  BIGINT NOT NULL,
    error     TEXT
);
CREATE INDEX credential_rotations_due ON credential_rotations (due_at, name_key) WHERE due_at IS NOT NULL;

-- sealed: the secret that signs what is posted.
CREATE TABLE credential_hooks (
    uuid      UUID    PRIMARY KEY,
    name      TEXT COLLATE "C" NOT NULL UNIQUE,
    url       TEXT    NOT NULL,
    ask_before BIGINT NOT NULL,
    tell_after BIGINT NOT NULL,
    roots     TEXT,
    sealed    BYTEA    NOT NULL,
    set_at    BIGINT NOT NULL,
    set_by    TEXT    NOT NULL
);

-- Rotations that a hook has not acknowledged yet.
CREATE TABLE credential_hook_calls (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hook     TEXT COLLATE "C" NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    kind     TEXT    NOT NULL,
    version  UUID    NOT NULL,
    at       BIGINT NOT NULL,
    next_at  BIGINT NOT NULL,
    tries    BIGINT NOT NULL,
    UNIQUE (version, hook)
);
CREATE INDEX credential_hook_calls_due ON credential_hook_calls (next_at, id);
CREATE INDEX credential_hook_calls_of ON credential_hook_calls (hook);

-- Values to be read once, by whoever has the token whose SHA-256 this is.
CREATE TABLE credential_wraps (
    token_hash BYTEA    PRIMARY KEY,
    uuid       UUID    NOT NULL UNIQUE,
    name       TEXT COLLATE "C" NOT NULL,
    kind       TEXT    NOT NULL,
    version    UUID    NOT NULL,
    sealed     BYTEA    NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX credential_wraps_by_end ON credential_wraps (expires_at);
CREATE INDEX credential_wraps_by_maker ON credential_wraps (created_by, expires_at);

-- Those that were read, without the value: whoever comes second is told that somebody came first.
CREATE TABLE credential_unwraps (
    token_hash BYTEA    PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    read_at    BIGINT NOT NULL,
    read_by    TEXT    NOT NULL
);
CREATE INDEX credential_unwraps_by_time ON credential_unwraps (read_at);

-- Who gave it, or changed it last, and when that was; NULL for those from before this was kept.
ALTER TABLE credential_permissions ADD COLUMN granted_by TEXT COLLATE "C";
ALTER TABLE credential_permissions ADD COLUMN changed_at BIGINT;

CREATE INDEX audit_events_of_permissions ON audit_events (at, shard, sequence)
    WHERE action IN ('credential.grant', 'credential.ungrant');
