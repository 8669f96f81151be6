-- Signed heads of the audit log, and how far each witness has them. Times are microseconds since 1970 UTC.

-- number 1 is the first key; there is one, however many nodes start at once. key_id: in keys. server: names the log in its heads.
CREATE TABLE audit_keys (
    number     INTEGER PRIMARY KEY,
    key_id     BLOB    NOT NULL,
    server     BLOB    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- document: the signed head, JSON.
CREATE TABLE audit_heads (
    sequence INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    document TEXT    NOT NULL
) STRICT;

-- sequence: the last head that the witness has. failing_since and error: of the failure that goes on.
CREATE TABLE audit_witnesses (
    name          TEXT PRIMARY KEY,
    sequence      INTEGER NOT NULL,
    failing_since INTEGER,
    error         TEXT
) STRICT, WITHOUT ROWID;
