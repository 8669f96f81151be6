-- Dynamic credentials: connections to databases, roles, leases. Times are microseconds since 1970 UTC.

-- uuid: identity of this configuration; the encrypted password is bound to it. tls: verify-full, verify-ca, disable. roots: PEM.
CREATE TABLE credential_connections (
    name     TEXT    COLLATE "C" PRIMARY KEY,
    uuid     UUID    NOT NULL UNIQUE,
    host     TEXT    NOT NULL,
    port     BIGINT  NOT NULL,
    db_name  TEXT    NOT NULL,
    username TEXT    NOT NULL,
    tls      TEXT    NOT NULL,
    roots    TEXT,
    sealed   BYTEA   NOT NULL,
    set_at   BIGINT  NOT NULL,
    set_by   TEXT    NOT NULL
);

-- name_key: the name in lower case. creation, revocation: SQL templates, a JSON list of texts.
CREATE TABLE credential_roles (
    name_key      TEXT    COLLATE "C" PRIMARY KEY,
    name          TEXT    NOT NULL,
    connection    TEXT    COLLATE "C" NOT NULL,
    creation      TEXT    NOT NULL,
    revocation    TEXT    NOT NULL,
    default_ttl_s BIGINT  NOT NULL,
    max_ttl_s     BIGINT  NOT NULL,
    set_at        BIGINT  NOT NULL,
    set_by        TEXT    NOT NULL
);
CREATE INDEX credential_roles_by_connection ON credential_roles (connection);

-- A lease is written before its role is created at the database, and deleted after the role is dropped there.
-- revocation: SQL statements, a JSON list of texts. identity: the token, person or certificate with which the lease ends; NULL once
-- the lease is being revoked. login: the login token, likewise. next_at: time of the next attempt to revoke.
CREATE TABLE credential_leases (
    uuid           UUID    PRIMARY KEY,
    name_key       TEXT    COLLATE "C" NOT NULL,
    name           TEXT    NOT NULL,
    connection     TEXT    COLLATE "C" NOT NULL,
    username       TEXT    NOT NULL,
    revocation     TEXT    NOT NULL,
    actor          TEXT    COLLATE "C" NOT NULL,
    identity       UUID,
    login          UUID,
    state          TEXT    NOT NULL,
    created_at     BIGINT  NOT NULL,
    expires_at     BIGINT  NOT NULL,
    max_expires_at BIGINT  NOT NULL,
    next_at        BIGINT  NOT NULL,
    tries          BIGINT  NOT NULL DEFAULT 0,
    error          TEXT,
    ended_by       TEXT
) WITH (fillfactor = 85);
CREATE INDEX credential_leases_due ON credential_leases (next_at);
CREATE INDEX credential_leases_due_of ON credential_leases (connection, next_at);
CREATE INDEX credential_leases_by_name ON credential_leases (name_key, uuid);
CREATE INDEX credential_leases_by_actor ON credential_leases (actor, uuid);
CREATE INDEX credential_leases_by_identity ON credential_leases (identity) WHERE identity IS NOT NULL;
CREATE INDEX credential_leases_by_login ON credential_leases (login) WHERE login IS NOT NULL;
