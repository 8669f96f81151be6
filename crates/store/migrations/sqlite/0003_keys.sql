-- Private keys at rest, and the certification authorities that use them. Times are microseconds since 1970 UTC.

-- provider: sealed (the key stands in sealed, encrypted), or the name of what holds it (locator says where).
CREATE TABLE keys (
    seq            INTEGER PRIMARY KEY,
    id             BLOB    NOT NULL UNIQUE,
    key_type       TEXT    NOT NULL,
    spki           BLOB    NOT NULL,
    spki_sha256    BLOB    NOT NULL UNIQUE,
    provider       TEXT    NOT NULL,
    sealed         BLOB,
    locator        TEXT,
    label          TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    blocked_at     INTEGER,
    blocked_reason TEXT
);

-- state: pending (its request waits for an external parent), active, retiring, retired. sha256: its certificate's.
-- parent_id: the authority here that signed it; none for roots and below external parents.
CREATE TABLE cas (
    seq           INTEGER PRIMARY KEY,
    id            BLOB    NOT NULL UNIQUE,
    name          TEXT    NOT NULL UNIQUE,
    key_id        BLOB    NOT NULL,
    state         TEXT    NOT NULL,
    parent_id     BLOB,
    sha256        BLOB,
    specification TEXT    NOT NULL,
    request       BLOB,
    created_at    INTEGER NOT NULL,
    retiring_at   INTEGER,
    retired_at    INTEGER
);
CREATE INDEX cas_by_key ON cas (key_id);

-- role: own (its certificate), cross (for the same name and key, by another issuer), above (certificates of an
-- external parent and what is above it, in order).
CREATE TABLE ca_certificates (
    ca_id      BLOB    NOT NULL,
    sha256     BLOB    NOT NULL,
    role       TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    issuer_ca  BLOB,
    der        BLOB    NOT NULL,
    not_after  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (ca_id, sha256)
) WITHOUT ROWID;

-- Grows with every change of the two tables above: what caches ask.
CREATE TABLE ca_generation (
    id    INTEGER PRIMARY KEY,
    value INTEGER NOT NULL
);
INSERT INTO ca_generation (id, value) VALUES (1, 1);
