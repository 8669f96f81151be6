-- Credentials, their versions, and who may do what with them. Times are microseconds since 1970 UTC.

-- name_key: the name in lower case, for names compare without case. kind stays what it is as long as the name lives.
-- current: the newest version, whose time and end of validity stand here too; signed_by: name_key of what signed it.
CREATE TABLE credentials (
    id                BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid              UUID   NOT NULL UNIQUE,
    name              TEXT   COLLATE "C" NOT NULL,
    name_key          TEXT   COLLATE "C" NOT NULL UNIQUE,
    kind              TEXT   NOT NULL,
    created_at        BIGINT NOT NULL,
    current           UUID,
    current_at        BIGINT NOT NULL,
    current_not_after BIGINT,
    signed_by         TEXT   COLLATE "C"
);
CREATE INDEX credentials_signed ON credentials (signed_by, name_key) WHERE signed_by IS NOT NULL;
CREATE INDEX credentials_certificates ON credentials (id) WHERE kind = 'certificate';
CREATE INDEX credentials_ending ON credentials (current_not_after) WHERE current_not_after IS NOT NULL;

-- sealed: the value, under the master key. metadata, parameters (how it was generated), facts: JSON.
CREATE TABLE credential_versions (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid          UUID   NOT NULL UNIQUE,
    credential_id BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    sealed        BYTEA  NOT NULL,
    metadata      TEXT,
    parameters    TEXT,
    facts         TEXT,
    not_after     BIGINT,
    transitional  BIGINT NOT NULL
);
CREATE INDEX credential_versions_of ON credential_versions (credential_id, transitional, id);
CREATE INDEX credential_versions_by_master ON credential_versions (substr(sealed, 1, 9));

-- path_key: a name in lower case, or a path that ends in /*; prefix: such a path without the star. operations: bits.
CREATE TABLE credential_permissions (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid       UUID   NOT NULL UNIQUE,
    actor      TEXT   COLLATE "C" NOT NULL,
    path       TEXT   COLLATE "C" NOT NULL,
    path_key   TEXT   COLLATE "C" NOT NULL,
    prefix     TEXT   COLLATE "C",
    operations BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (actor, path_key)
);
CREATE INDEX credential_permissions_by_path ON credential_permissions (path_key);

-- Tokens of the embedded issuer that were ended before their time; kept until that time.
CREATE TABLE credential_tokens_ended (
    id         BYTEA  PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE INDEX credential_tokens_ended_by_time ON credential_tokens_ended (expires_at);
