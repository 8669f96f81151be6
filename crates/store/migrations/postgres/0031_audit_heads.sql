-- Signed heads of the audit log, and how far each witness has them. Times are microseconds since 1970 UTC.

-- number 1 is the first key; there is one, however many nodes start at once. key_id: in keys. server: names the log in its heads.
CREATE TABLE audit_keys (
    number     BIGINT PRIMARY KEY,
    key_id     UUID   NOT NULL,
    server     UUID   NOT NULL,
    created_at BIGINT NOT NULL
);

-- document: the signed head, JSON.
CREATE TABLE audit_heads (
    sequence BIGINT PRIMARY KEY,
    at       BIGINT NOT NULL,
    document TEXT   NOT NULL
);

-- sequence: the last head that the witness has. failing_since and error: of the failure that goes on.
CREATE TABLE audit_witnesses (
    name          TEXT COLLATE "C" PRIMARY KEY,
    sequence      BIGINT NOT NULL,
    failing_since BIGINT,
    error         TEXT
);
