-- Dynamic credentials: connections to databases, roles, leases. Times are microseconds since 1970 UTC.

-- uuid: identity of this configuration; the encrypted password is bound to it. tls: verify-full, verify-ca, disable. roots: PEM.
CREATE TABLE credential_connections (
    name     TEXT    PRIMARY KEY,
    uuid     BLOB    NOT NULL UNIQUE,
    host     TEXT    NOT NULL,
    port     INTEGER NOT NULL,
    db_name  TEXT    NOT NULL,
    username TEXT    NOT NULL,
    tls      TEXT    NOT NULL,
    roots    TEXT,
    sealed   BLOB    NOT NULL,
    set_at   INTEGER NOT NULL,
    set_by   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- name_key: the name in lower case. creation, revocation: SQL templates, a JSON list of texts.
CREATE TABLE credential_roles (
    name_key      TEXT    PRIMARY KEY,
    name          TEXT    NOT NULL,
    connection    TEXT    NOT NULL,
    creation      TEXT    NOT NULL,
    revocation    TEXT    NOT NULL,
    default_ttl_s INTEGER NOT NULL,
    max_ttl_s     INTEGER NOT NULL,
    set_at        INTEGER NOT NULL,
    set_by        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_roles_by_connection ON credential_roles (connection);

-- A lease is written before its role is created at the database, and deleted after the role is dropped there.
-- revocation: SQL statements, a JSON list of texts. identity: the token, person or certificate with which the lease ends; NULL once
-- the lease is being revoked. login: the login token, likewise. next_at: time of the next attempt to revoke.
CREATE TABLE credential_leases (
    uuid           BLOB    PRIMARY KEY,
    name_key       TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    connection     TEXT    NOT NULL,
    username       TEXT    NOT NULL,
    revocation     TEXT    NOT NULL,
    actor          TEXT    NOT NULL,
    identity       BLOB,
    login          BLOB,
    state          TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    max_expires_at INTEGER NOT NULL,
    next_at        INTEGER NOT NULL,
    tries          INTEGER NOT NULL DEFAULT 0,
    error          TEXT,
    ended_by       TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_leases_due ON credential_leases (next_at);
CREATE INDEX credential_leases_due_of ON credential_leases (connection, next_at);
CREATE INDEX credential_leases_by_name ON credential_leases (name_key, uuid);
CREATE INDEX credential_leases_by_actor ON credential_leases (actor, uuid);
CREATE INDEX credential_leases_by_identity ON credential_leases (identity) WHERE identity IS NOT NULL;
CREATE INDEX credential_leases_by_login ON credential_leases (login) WHERE login IS NOT NULL;
