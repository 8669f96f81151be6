-- The life of managed certificates. Times are microseconds since 1970 UTC; hashes are 32 raw bytes.

-- One row a certificate under management, with the facts of its current version, so that a page is one read.
-- not_after is the largest integer before the first issuance, so that those sort last. revision moves with every
-- change: an update names the one it has read. Created order is id order.
CREATE TABLE managed_certificates (
    id           INTEGER   PRIMARY KEY,
    uuid         BLOB     NOT NULL UNIQUE,
    name         TEXT     NOT NULL UNIQUE,
    state        INTEGER   NOT NULL,
    revision     INTEGER   NOT NULL,
    profile      TEXT     NOT NULL,
    issuer       TEXT     NOT NULL,
    owner        TEXT    ,
    team         TEXT    ,
    environment  TEXT    ,
    policy       TEXT    ,
    key_location INTEGER   NOT NULL,
    agent        BLOB,
    key_type     TEXT     NOT NULL,
    names        TEXT     NOT NULL,
    tags         TEXT     NOT NULL,
    targets      TEXT     NOT NULL,
    options      TEXT     NOT NULL,
    version_id   INTEGER,
    fingerprint  BLOB,
    not_before   INTEGER   NOT NULL,
    not_after    INTEGER   NOT NULL,
    revoked      INTEGER   NOT NULL,
    failures     INTEGER   NOT NULL,
    last_error   TEXT,
    created_at   INTEGER   NOT NULL,
    updated_at   INTEGER   NOT NULL
);
CREATE INDEX managed_by_expiry ON managed_certificates (not_after, id);
CREATE INDEX managed_by_state ON managed_certificates (state, not_after, id);
CREATE INDEX managed_by_profile ON managed_certificates (profile, not_after, id);
CREATE INDEX managed_by_issuer ON managed_certificates (issuer, not_after, id);
CREATE INDEX managed_by_owner ON managed_certificates (owner, not_after, id) WHERE owner IS NOT NULL;
CREATE INDEX managed_by_team ON managed_certificates (team, not_after, id) WHERE team IS NOT NULL;
CREATE INDEX managed_by_environment ON managed_certificates (environment, not_after, id) WHERE environment IS NOT NULL;
CREATE INDEX managed_by_policy ON managed_certificates (policy, id) WHERE policy IS NOT NULL;
CREATE INDEX managed_by_agent ON managed_certificates (agent, not_after, id) WHERE agent IS NOT NULL;

-- name_reversed: the name backwards, so that a suffix is a prefix.
CREATE TABLE managed_names (
    certificate_id INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    name_reversed  TEXT   NOT NULL,
    PRIMARY KEY (certificate_id, position)
);
CREATE INDEX managed_names_by_suffix ON managed_names (name_reversed, certificate_id);

CREATE TABLE managed_tags (
    certificate_id INTEGER NOT NULL,
    tag            TEXT   NOT NULL,
    value          TEXT   NOT NULL,
    PRIMARY KEY (certificate_id, tag)
);
CREATE INDEX managed_tags_by_value ON managed_tags (tag, value, certificate_id);

-- What was issued; append-only but for its revocation. One version a run, so a run that is repeated issues once.
-- chain: DER, one certificate after the other, leaf first.
CREATE TABLE managed_versions (
    id             INTEGER PRIMARY KEY,
    certificate_id INTEGER NOT NULL,
    job_id         INTEGER UNIQUE,
    fingerprint    BLOB  NOT NULL,
    serial         TEXT   NOT NULL,
    spki_sha256    BLOB  NOT NULL,
    not_before     INTEGER NOT NULL,
    not_after      INTEGER NOT NULL,
    issuer         TEXT   NOT NULL,
    key_id         BLOB,
    chain          BLOB  NOT NULL,
    issued_at      INTEGER NOT NULL,
    revoked_at     INTEGER,
    revoked_reason INTEGER
);
CREATE INDEX managed_versions_by_certificate ON managed_versions (certificate_id, id);
CREATE INDEX managed_versions_by_fingerprint ON managed_versions (fingerprint);
CREATE INDEX managed_versions_by_key ON managed_versions (spki_sha256);

-- Counts kept by the transactions that move certificates, so that a summary costs the same at any size. Kinds: state
-- (bucket: its number) and expiry (bucket: day since 1970 of not_after). Slots keep writers off each other's rows.
CREATE TABLE managed_totals (
    kind   TEXT   NOT NULL,
    bucket INTEGER NOT NULL,
    slot   INTEGER NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (kind, bucket, slot)
);

-- What issuers suggest about renewal (ARI); check_at is when to ask again.
CREATE TABLE managed_suggestions (
    certificate_id INTEGER PRIMARY KEY,
    check_at       INTEGER NOT NULL,
    starts_at      INTEGER,
    ends_at        INTEGER,
    explanation    TEXT
);
CREATE INDEX managed_suggestions_due ON managed_suggestions (check_at, certificate_id);

-- Runs. kind: 0 issuance, 1 renewal, 2 deployment, 3 revocation. state: 0 queued, 1 running, 2 awaiting approval,
-- 3 awaiting CSR, 4 done, 5 failed, 6 cancelled. approval: 0 not needed, 1 needed, 2 given. The next renewal of a
-- certificate is a queued run with a time to come: the schedule is this table, and what is due needs no row made for it.
CREATE TABLE jobs (
    id              INTEGER PRIMARY KEY,
    certificate_id  INTEGER NOT NULL,
    kind            INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    approval        INTEGER NOT NULL,
    issuer          TEXT   NOT NULL,
    agent           BLOB,
    version_id      INTEGER,
    reason          TEXT   NOT NULL,
    requested_by    TEXT   NOT NULL,
    attempts        INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    deadline_at     INTEGER NOT NULL,
    lease_holder    BLOB,
    lease_until     INTEGER,
    csr             BLOB,
    key_id          BLOB,
    detail          TEXT,
    last_error      TEXT,
    created_at      INTEGER NOT NULL,
    started_at      INTEGER,
    finished_at     INTEGER
);
-- One open run of issuance or renewal a certificate: what renews twice fails here.
CREATE UNIQUE INDEX jobs_open ON jobs (certificate_id) WHERE kind <= 1 AND state <= 3;
CREATE INDEX jobs_claimable ON jobs (issuer, next_attempt_at, id) WHERE state = 0 AND approval <> 1 AND kind <= 1;
CREATE INDEX jobs_revoking ON jobs (next_attempt_at, id) WHERE state = 0 AND kind = 3;
CREATE INDEX jobs_gated ON jobs (next_attempt_at, id) WHERE state = 0 AND approval = 1;
CREATE INDEX jobs_of_agent ON jobs (agent, next_attempt_at, id) WHERE agent IS NOT NULL AND state IN (0, 1, 3);
CREATE INDEX jobs_leased ON jobs (lease_until, id) WHERE state = 1;
CREATE INDEX jobs_waiting ON jobs (deadline_at, id) WHERE state IN (2, 3);
CREATE INDEX jobs_deploying ON jobs (deadline_at, id) WHERE kind = 2 AND state <= 1;
CREATE INDEX jobs_by_certificate ON jobs (certificate_id, id);
CREATE INDEX jobs_by_state ON jobs (state, id);

-- state: 0 open, 1 approved, 2 rejected, 3 expired, 4 withdrawn.
CREATE TABLE approvals (
    id             INTEGER PRIMARY KEY,
    uuid           BLOB   NOT NULL UNIQUE,
    job_id         INTEGER NOT NULL,
    certificate_id INTEGER NOT NULL,
    state          INTEGER NOT NULL,
    reason         TEXT   NOT NULL,
    requested_by   TEXT   NOT NULL,
    requested_at   INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    decided_by     TEXT,
    decided_at     INTEGER,
    note           TEXT
);
CREATE INDEX approvals_by_state ON approvals (state, id);
CREATE UNIQUE INDEX approvals_open ON approvals (job_id) WHERE state = 0;
CREATE INDEX approvals_expiring ON approvals (expires_at, id) WHERE state = 0;
CREATE INDEX approvals_by_certificate ON approvals (certificate_id, id);

CREATE TABLE policies (
    name       TEXT   PRIMARY KEY,
    body       TEXT   NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

-- What a certificate does against a policy's rule, at the last look.
CREATE TABLE policy_violations (
    certificate_id INTEGER NOT NULL,
    policy         TEXT   NOT NULL,
    rule           TEXT   NOT NULL,
    severity       INTEGER NOT NULL,
    message        TEXT   NOT NULL,
    found_at       INTEGER NOT NULL,
    PRIMARY KEY (certificate_id, policy, rule)
);
CREATE INDEX policy_violations_by_policy ON policy_violations (policy, certificate_id, rule);
CREATE INDEX policy_violations_by_severity ON policy_violations (severity, certificate_id, policy, rule);

-- kind: owner or team.
CREATE TABLE people (
    kind       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    body       TEXT   NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
);

-- What was found and is not to be managed; by the leaf's fingerprint.
CREATE TABLE dismissals (
    fingerprint BLOB  PRIMARY KEY,
    actor       TEXT   NOT NULL,
    note        TEXT   NOT NULL,
    at          INTEGER NOT NULL
);
