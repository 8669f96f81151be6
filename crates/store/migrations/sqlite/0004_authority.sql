-- The certification authority: profiles, what was issued, what was revoked, CRLs. Times are microseconds since 1970 UTC.

CREATE TABLE profiles (
    name       TEXT    PRIMARY KEY,
    body       TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

-- Beside its row in certificates. shard 0: the CA's one CRL; otherwise the CRL named in the certificate.
CREATE TABLE issued (
    certificate_id INTEGER PRIMARY KEY,
    uuid           BLOB    NOT NULL UNIQUE,
    ca             BLOB    NOT NULL,
    serial         BLOB    NOT NULL,
    spki_sha256    BLOB    NOT NULL,
    profile        TEXT    NOT NULL,
    source         TEXT    NOT NULL,
    requester      TEXT    NOT NULL,
    issued_at      INTEGER NOT NULL,
    not_after      INTEGER NOT NULL,
    shard          INTEGER NOT NULL,
    UNIQUE (serial, ca)
);
CREATE INDEX issued_by_key ON issued (spki_sha256);
CREATE INDEX issued_by_profile ON issued (profile, issued_at, certificate_id);
CREATE INDEX issued_by_requester ON issued (requester, issued_at, certificate_id);
CREATE INDEX issued_by_time ON issued (issued_at, certificate_id);

-- Idempotency keys, hashed: who asks twice gets the same certificate.
CREATE TABLE issuance_keys (
    key_sha256     BLOB    PRIMARY KEY,
    request_sha256 BLOB    NOT NULL,
    issued_uuid    BLOB    NOT NULL,
    created_at     INTEGER NOT NULL
);
CREATE INDEX issuance_keys_by_time ON issuance_keys (created_at);

-- Public keys for which nothing is issued any more.
CREATE TABLE blocked_keys (
    spki_sha256 BLOB    PRIMARY KEY,
    blocked_at  INTEGER NOT NULL,
    actor       TEXT    NOT NULL
);

-- reason as in RFC 5280 section 5.3.1; 8 (removeFromCRL): the certificate was on hold and is good again.
-- revoked_at is the date in the CRL, recorded_at when we were told; action: the call that did it.
CREATE TABLE revocations (
    certificate_id INTEGER PRIMARY KEY,
    uuid           BLOB    NOT NULL,
    ca             BLOB    NOT NULL,
    shard          INTEGER NOT NULL,
    serial         BLOB    NOT NULL,
    reason         INTEGER NOT NULL,
    revoked_at     INTEGER NOT NULL,
    invalidity_at  INTEGER,
    not_after      INTEGER NOT NULL,
    recorded_at    INTEGER NOT NULL,
    actor          TEXT    NOT NULL,
    action         BLOB    NOT NULL
);
CREATE INDEX revocations_by_ca ON revocations (ca, not_after);
CREATE INDEX revocations_by_shard ON revocations (ca, shard, not_after);
CREATE INDEX revocations_by_time ON revocations (recorded_at);
CREATE INDEX revocations_by_action ON revocations (action);

-- The newest CRL of each kind: shard 0 is the full one, -1 the delta. changes is moved by every revocation, built is
-- its value when the CRL was made: a CRL is due when they differ, or when refresh_at has come.
CREATE TABLE crls (
    ca          BLOB    NOT NULL,
    shard       INTEGER NOT NULL,
    changes     INTEGER NOT NULL,
    built       INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    this_update INTEGER NOT NULL,
    next_update INTEGER NOT NULL,
    refresh_at  INTEGER NOT NULL,
    entries     INTEGER NOT NULL,
    base        INTEGER,
    PRIMARY KEY (ca, shard)
);
-- Apart: changes moves often and must not rewrite megabytes.
CREATE TABLE crl_ders (
    ca     BLOB    NOT NULL,
    shard  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    der    BLOB    NOT NULL,
    PRIMARY KEY (ca, shard)
);
-- Full CRLs that clients may still hold: what a delta may build upon.
CREATE TABLE crl_bases (
    ca          BLOB    NOT NULL,
    number      INTEGER NOT NULL,
    this_update INTEGER NOT NULL,
    next_update INTEGER NOT NULL,
    PRIMARY KEY (ca, number)
);

-- The delegated OCSP responder of each CA.
CREATE TABLE ocsp_responders (
    ca          BLOB    PRIMARY KEY,
    key_id      BLOB    NOT NULL,
    certificate BLOB    NOT NULL,
    not_before  INTEGER NOT NULL,
    not_after   INTEGER NOT NULL
);
