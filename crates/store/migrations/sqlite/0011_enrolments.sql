-- Enrolments over EST and SCEP that wait for consent, and the keys SCEP clients encrypt to. Times are microseconds
-- since 1970 UTC.

-- state: 0 open, 1 approved, 2 rejected. key_sha256: what makes a repeat the same enrolment.
CREATE TABLE enrolments (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           BLOB    NOT NULL UNIQUE,
    key_sha256   BLOB    NOT NULL UNIQUE,
    protocol     TEXT    NOT NULL,
    profile      TEXT    NOT NULL,
    requester    TEXT    NOT NULL,
    request      BLOB    NOT NULL,
    summary      TEXT    NOT NULL,
    state        INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    decided_by   TEXT,
    decided_at   INTEGER,
    note         TEXT
);
CREATE INDEX enrolments_by_state ON enrolments (state, seq);
CREATE INDEX enrolments_by_end ON enrolments (expires_at);

-- One key an authority.
CREATE TABLE recipients (
    ca          BLOB    NOT NULL PRIMARY KEY,
    key_id      BLOB    NOT NULL,
    certificate BLOB    NOT NULL,
    not_after   INTEGER NOT NULL,
    created_at  INTEGER NOT NULL
) WITHOUT ROWID;
