-- Enrolments over EST and SCEP that wait for consent, and the keys SCEP clients encrypt to. Times are microseconds
-- since 1970 UTC.

-- state: 0 open, 1 approved, 2 rejected. key_sha256: what makes a repeat the same enrolment.
CREATE TABLE enrolments (
    seq          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           UUID    NOT NULL UNIQUE,
    key_sha256   BYTEA   NOT NULL UNIQUE,
    protocol     TEXT    NOT NULL,
    profile      TEXT    NOT NULL,
    requester    TEXT    NOT NULL,
    request      BYTEA   NOT NULL,
    summary      TEXT    NOT NULL,
    state        BIGINT NOT NULL,
    requested_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    decided_by   TEXT,
    decided_at   BIGINT,
    note         TEXT
);
CREATE INDEX enrolments_by_state ON enrolments (state, seq);
CREATE INDEX enrolments_by_end ON enrolments (expires_at);

-- One key an authority.
CREATE TABLE recipients (
    ca          UUID    NOT NULL PRIMARY KEY,
    key_id      UUID    NOT NULL,
    certificate BYTEA   NOT NULL,
    not_after   BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);
