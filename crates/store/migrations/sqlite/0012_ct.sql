-- Certificate Transparency. Times are microseconds since 1970 UTC; hashes are 32 raw bytes.

-- What is watched: registered domains, mostly. rule is JSON: who may issue for it.
CREATE TABLE ct_domains (
    name       TEXT    PRIMARY KEY,
    rule       TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

-- Where a search service was left for a domain. cursor is the service's own, JSON.
CREATE TABLE ct_searches (
    service     TEXT    NOT NULL,
    domain      TEXT    NOT NULL,
    cursor      TEXT    NOT NULL,
    due_at      INTEGER NOT NULL,
    answered_at INTEGER,
    failures    INTEGER NOT NULL,
    last_error  TEXT,
    PRIMARY KEY (service, domain)
);
CREATE INDEX ct_searches_by_domain ON ct_searches (domain);

-- Where a log's follower is. place is JSON; so is alarm, the last one that is not over.
CREATE TABLE ct_logs (
    log_id      BLOB    PRIMARY KEY,
    name        TEXT    NOT NULL,
    place       TEXT    NOT NULL,
    behind      INTEGER NOT NULL,
    stepped_at  INTEGER NOT NULL,
    last_error  TEXT,
    alarm       TEXT,
    alarmed_at  INTEGER
);

-- One row an issuance, however often it was logged. tbs is empty where the source does not tell it.
-- verdict: 0 none yet, 1 expected, 2 unasked; reason is JSON.
CREATE TABLE ct_issuances (
    id            INTEGER PRIMARY KEY,
    uuid          BLOB    NOT NULL UNIQUE,
    issuer_serial BLOB    NOT NULL,
    tbs           BLOB    NOT NULL,
    issuer        TEXT    NOT NULL,
    serial        TEXT    NOT NULL,
    names         TEXT    NOT NULL,
    not_before    INTEGER NOT NULL,
    not_after     INTEGER NOT NULL,
    spki_sha256   BLOB,
    sha256        BLOB,
    source        TEXT    NOT NULL,
    logged_at     INTEGER,
    found_at      INTEGER NOT NULL,
    verdict       INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    UNIQUE (issuer_serial, tbs)
);
CREATE INDEX ct_issuances_by_tbs ON ct_issuances (tbs);
CREATE INDEX ct_issuances_by_verdict ON ct_issuances (verdict, id);
CREATE INDEX ct_issuances_by_end ON ct_issuances (not_after, id);

-- The evidence, where the source gives it.
CREATE TABLE ct_issuance_ders (
    issuance_id INTEGER PRIMARY KEY,
    der         BLOB NOT NULL
);

CREATE TABLE ct_issuance_domains (
    domain      TEXT    NOT NULL,
    issuance_id INTEGER NOT NULL,
    PRIMARY KEY (domain, issuance_id)
) WITHOUT ROWID;
CREATE INDEX ct_issuance_domains_by_issuance ON ct_issuance_domains (issuance_id);
