-- Who may ask: tokens, people, client certificates; their sessions, roles of one's own, answers kept for repeats.
-- Times are microseconds since 1970 UTC.

-- kind: token, user, certificate. key_hash: SHA-256 of what identifies it (a token's secret, a person's issuer and
-- subject, a certificate's fingerprint or name). grants: JSON, [{"role":…,"scope":…}].
CREATE TABLE access_identities (
    id           UUID   PRIMARY KEY,
    kind         TEXT   COLLATE "C" NOT NULL,
    name         TEXT   COLLATE "C" NOT NULL,
    key_hash     BYTEA  NOT NULL UNIQUE,
    label        TEXT   NOT NULL,
    email        TEXT,
    grants       TEXT   NOT NULL,
    enabled      BIGINT NOT NULL,
    revision     BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    created_by   TEXT   NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT,
    UNIQUE (kind, name)
) WITH (fillfactor = 85);

-- token_hash: SHA-256 of the cookie's secret. grants: what the login's groups gave, beside the person's own.
CREATE TABLE access_sessions (
    token_hash   BYTEA  PRIMARY KEY,
    identity     UUID   NOT NULL,
    grants       TEXT   NOT NULL,
    address      TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL
) WITH (fillfactor = 85);
CREATE INDEX access_sessions_by_identity ON access_sessions (identity);
CREATE INDEX access_sessions_by_end ON access_sessions (expires_at);

-- permissions: JSON, ["noun.verb", …].
CREATE TABLE access_roles (
    name        TEXT   COLLATE "C" PRIMARY KEY,
    description TEXT   NOT NULL,
    permissions TEXT   NOT NULL,
    revision    BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

-- What was answered to a request with an Idempotency-Key. key_hash: SHA-256 over caller, route and key. status is NULL
-- while the first request is under way.
CREATE TABLE access_idempotency (
    key_hash   BYTEA  PRIMARY KEY,
    body_hash  BYTEA  NOT NULL,
    begun_at   BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    status     BIGINT,
    headers    TEXT,
    body       BYTEA
);
CREATE INDEX access_idempotency_by_end ON access_idempotency (expires_at);
