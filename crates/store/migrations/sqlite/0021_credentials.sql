-- Credentials, their versions, and who may do what with them. Times are microseconds since 1970 UTC.

-- name_key: the name in lower case, for names compare without case. kind stays what it is as long as the name lives.
-- current: the newest version, whose time and end of validity stand here too; signed_by: name_key of what signed it.
CREATE TABLE credentials (
    id                INTEGER PRIMARY KEY,
    uuid              BLOB    NOT NULL UNIQUE,
    name              TEXT    NOT NULL,
    name_key          TEXT    NOT NULL UNIQUE,
    kind              TEXT    NOT NULL,
    created_at        INTEGER NOT NULL,
    current           BLOB,
    current_at        INTEGER NOT NULL,
    current_not_after INTEGER,
    signed_by         TEXT
) STRICT;
CREATE INDEX credentials_signed ON credentials (signed_by, name_key) WHERE signed_by IS NOT NULL;
CREATE INDEX credentials_certificates ON credentials (id) WHERE kind = 'certificate';
CREATE INDEX credentials_ending ON credentials (current_not_after) WHERE current_not_after IS NOT NULL;

-- sealed: the value, under the master key. metadata, parameters (how it was generated), facts: JSON.
CREATE TABLE credential_versions (
    id            INTEGER PRIMARY KEY,
    uuid          BLOB    NOT NULL UNIQUE,
    credential_id INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    sealed        BLOB    NOT NULL,
    metadata      TEXT,
    parameters    TEXT,
    facts         TEXT,
    not_after     INTEGER,
    transitional  INTEGER NOT NULL
) STRICT;
CREATE INDEX credential_versions_of ON credential_versions (credential_id, transitional, id);
CREATE INDEX credential_versions_by_master ON credential_versions (substr(sealed, 1, 9));

-- path_key: a name in lower case, or a path that ends in /*; prefix: such a path without the star. operations: bits.
CREATE TABLE credential_permissions (
    id         INTEGER PRIMARY KEY,
    uuid       BLOB    NOT NULL UNIQUE,
    actor      TEXT    NOT NULL,
    path       TEXT    NOT NULL,
    path_key   TEXT    NOT NULL,
    prefix     TEXT,
    operations INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (actor, path_key)
) STRICT;
CREATE INDEX credential_permissions_by_path ON credential_permissions (path_key);

-- Tokens of the embedded issuer that were ended before their time; kept until that time.
CREATE TABLE credential_tokens_ended (
    id         BLOB    PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_tokens_ended_by_time ON credential_tokens_ended (expires_at);
