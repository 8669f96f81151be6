-- Who may ask: tokens, people, client certificates; their sessions, roles of one's own, answers kept for repeats.
-- Times are microseconds since 1970 UTC.

-- kind: token, user, certificate. key_hash: SHA-256 of what identifies it (a token's secret, a person's issuer and
-- subject, a certificate's fingerprint or name). grants: JSON, [{"role":…,"scope":…}].
CREATE TABLE access_identities (
    id           BLOB PRIMARY KEY,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    key_hash     BLOB NOT NULL UNIQUE,
    label        TEXT NOT NULL,
    email        TEXT,
    grants       TEXT NOT NULL,
    enabled      INTEGER NOT NULL,
    revision     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    UNIQUE (kind, name)
) WITHOUT ROWID;

-- token_hash: SHA-256 of the cookie's secret. grants: what the login's groups gave, beside the person's own.
CREATE TABLE access_sessions (
    token_hash   BLOB PRIMARY KEY,
    identity     BLOB NOT NULL,
    grants       TEXT NOT NULL,
    address      TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX access_sessions_by_identity ON access_sessions (identity);
CREATE INDEX access_sessions_by_end ON access_sessions (expires_at);

-- permissions: JSON, ["noun.verb", …].
CREATE TABLE access_roles (
    name        TEXT PRIMARY KEY,
    description TEXT NOT NULL,
    permissions TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- What was answered to a request with an Idempotency-Key. key_hash: SHA-256 over caller, route and key. status is NULL
-- while the first request is under way.
CREATE TABLE access_idempotency (
    key_hash   BLOB PRIMARY KEY,
    body_hash  BLOB NOT NULL,
    begun_at   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    status     INTEGER,
    headers    TEXT,
    body       BLOB
) WITHOUT ROWID;
CREATE INDEX access_idempotency_by_end ON access_idempotency (expires_at);
