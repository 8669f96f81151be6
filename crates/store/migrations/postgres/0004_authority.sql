-- The certification authority: profiles, what was issued, what was revoked, CRLs. Times are microseconds since 1970 UTC.

CREATE TABLE profiles (
    name       TEXT COLLATE "C" PRIMARY KEY,
    body       TEXT   NOT NULL,
    revision   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Beside its row in certificates. shard 0: the CA's one CRL; otherwise the CRL named in the certificate.
CREATE TABLE issued (
    certificate_id BIGINT PRIMARY KEY,
    uuid           UUID   NOT NULL UNIQUE,
    ca             UUID   NOT NULL,
    serial         BYTEA  NOT NULL,
    spki_sha256    BYTEA  NOT NULL,
    profile        TEXT COLLATE "C" NOT NULL,
    source         TEXT COLLATE "C" NOT NULL,
    requester      TEXT COLLATE "C" NOT NULL,
    issued_at      BIGINT NOT NULL,
    not_after      BIGINT NOT NULL,
    shard          BIGINT NOT NULL,
    UNIQUE (serial, ca)
);
CREATE INDEX issued_by_key ON issued (spki_sha256);
CREATE INDEX issued_by_profile ON issued (profile, issued_at, certificate_id);
CREATE INDEX issued_by_requester ON issued (requester, issued_at, certificate_id);
CREATE INDEX issued_by_time ON issued (issued_at, certificate_id);

-- Idempotency keys, hashed: who asks twice gets the same certificate.
CREATE TABLE issuance_keys (
    key_sha256     BYTEA PRIMARY KEY,
    request_sha256 BYTEA  NOT NULL,
    issued_uuid    UUID   NOT NULL,
    created_at     BIGINT NOT NULL
);
CREATE INDEX issuance_keys_by_time ON issuance_keys (created_at);

-- Public keys for which nothing is issued any more.
CREATE TABLE blocked_keys (
    spki_sha256 BYTEA PRIMARY KEY,
    blocked_at  BIGINT NOT NULL,
    actor       TEXT   NOT NULL
);

-- reason as in RFC 5280 section 5.3.1; 8 (removeFromCRL): the certificate was on hold and is good again.
-- revoked_at is the date in the CRL, recorded_at when we were told; action: the call that did it.
CREATE TABLE revocations (
    certificate_id BIGINT PRIMARY KEY,
    uuid           UUID   NOT NULL,
    ca             UUID   NOT NULL,
    shard          BIGINT NOT NULL,
    serial         BYTEA  NOT NULL,
    reason         BIGINT NOT NULL,
    revoked_at     BIGINT NOT NULL,
    invalidity_at  BIGINT,
    not_after      BIGINT NOT NULL,
    recorded_at    BIGINT NOT NULL,
    actor          TEXT   NOT NULL,
    action         UUID   NOT NULL
);
CREATE INDEX revocations_by_ca ON revocations (ca, not_after);
CREATE INDEX revocations_by_shard ON revocations (ca, shard, not_after);
CREATE INDEX revocations_by_time ON revocations (recorded_at);
CREATE INDEX revocations_by_action ON revocations (action);

-- The newest CRL of each kind: shard 0 is the full one, -1 the delta. changes is moved by every revocation, built is
-- its value when the CRL was made: a CRL is due when they differ, or when refresh_at has come.
CREATE TABLE crls (
    ca          UUID   NOT NULL,
    shard       BIGINT NOT NULL,
    changes     BIGINT NOT NULL,
    built       BIGINT NOT NULL,
    number      BIGINT NOT NULL,
    this_update BIGINT NOT NULL,
    next_update BIGINT NOT NULL,
    refresh_at  BIGINT NOT NULL,
    entries     BIGINT NOT NULL,
    base        BIGINT,
    PRIMARY KEY (ca, shard)
);
-- Apart: changes moves often and must not rewrite megabytes.
CREATE TABLE crl_ders (
    ca     UUID   NOT NULL,
    shard  BIGINT NOT NULL,
    number BIGINT NOT NULL,
    der    BYTEA  NOT NULL,
    PRIMARY KEY (ca, shard)
);
-- Trying to compress megabytes of serial numbers would cost more than making them.
ALTER TABLE crl_ders ALTER COLUMN der SET STORAGE EXTERNAL;

-- Full CRLs that clients may still hold: what a delta may build upon.
CREATE TABLE crl_bases (
    ca          UUID   NOT NULL,
    number      BIGINT NOT NULL,
    this_update BIGINT NOT NULL,
    next_update BIGINT NOT NULL,
    PRIMARY KEY (ca, number)
);

-- The delegated OCSP responder of each CA.
CREATE TABLE ocsp_responders (
    ca          UUID PRIMARY KEY,
    key_id      UUID   NOT NULL,
    certificate BYTEA  NOT NULL,
    not_before  BIGINT NOT NULL,
    not_after   BIGINT NOT NULL
);
