-- Certificate Transparency. Times are microseconds since 1970 UTC; hashes are 32 raw bytes.

-- What is watched: registered domains, mostly. rule is JSON: who may issue for it.
CREATE TABLE ct_domains (
    name       TEXT COLLATE "C"  PRIMARY KEY,
    rule       TEXT    NOT NULL,
    revision   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Where a search service was left for a domain. cursor is the service's own, JSON.
CREATE TABLE ct_searches (
    service     TEXT COLLATE "C"  NOT NULL,
    domain      TEXT COLLATE "C"  NOT NULL,
    cursor      TEXT    NOT NULL,
    due_at      BIGINT NOT NULL,
    answered_at BIGINT,
    failures    BIGINT NOT NULL,
    last_error  TEXT,
    PRIMARY KEY (service, domain)
);
CREATE INDEX ct_searches_by_domain ON ct_searches (domain);

-- Where a log's follower is. place is JSON; so is alarm, the last one that is not over.
CREATE TABLE ct_logs (
    log_id      BYTEA    PRIMARY KEY,
    name        TEXT COLLATE "C"  NOT NULL,
    place       TEXT    NOT NULL,
    behind      BIGINT NOT NULL,
    stepped_at  BIGINT NOT NULL,
    last_error  TEXT,
    alarm       TEXT,
    alarmed_at  BIGINT
);

-- One row an issuance, however often it was logged. tbs is empty where the source does not tell it.
-- verdict: 0 none yet, 1 expected, 2 unasked; reason is JSON.
CREATE TABLE ct_issuances (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid          UUID    NOT NULL UNIQUE,
    issuer_serial BYTEA    NOT NULL,
    tbs           BYTEA    NOT NULL,
    issuer        TEXT    NOT NULL,
    serial        TEXT    NOT NULL,
    names         TEXT    NOT NULL,
    not_before    BIGINT NOT NULL,
    not_after     BIGINT NOT NULL,
    spki_sha256   BYTEA,
    sha256        BYTEA,
    source        TEXT    NOT NULL,
    logged_at     BIGINT,
    found_at      BIGINT NOT NULL,
    verdict       BIGINT NOT NULL,
    reason        TEXT    NOT NULL,
    UNIQUE (issuer_serial, tbs)
);
CREATE INDEX ct_issuances_by_tbs ON ct_issuances (tbs);
CREATE INDEX ct_issuances_by_verdict ON ct_issuances (verdict, id);
CREATE INDEX ct_issuances_by_end ON ct_issuances (not_after, id);

-- The evidence, where the source gives it.
CREATE TABLE ct_issuance_ders (
    issuance_id BIGINT PRIMARY KEY,
    der         BYTEA NOT NULL
);

CREATE TABLE ct_issuance_domains (
    domain      TEXT COLLATE "C"  NOT NULL,
    issuance_id BIGINT NOT NULL,
    PRIMARY KEY (domain, issuance_id)
);
CREATE INDEX ct_issuance_domains_by_issuance ON ct_issuance_domains (issuance_id);
