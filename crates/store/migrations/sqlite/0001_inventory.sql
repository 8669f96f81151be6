-- The inventory. Times are microseconds since 1970 UTC; hashes are 32 raw bytes.
-- No foreign keys: rows are only ever added, by one transaction that has just read or written what it refers to.

-- A scan's id is its start in microseconds (one more when taken): newest last.
CREATE TABLE scans (
    id               INTEGER PRIMARY KEY,
    uuid             BLOB    NOT NULL UNIQUE,
    started_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    state            TEXT    NOT NULL,
    spec             TEXT    NOT NULL,
    summary          TEXT,
    observations     INTEGER NOT NULL DEFAULT 0,
    answered         INTEGER NOT NULL DEFAULT 0,
    changes          INTEGER NOT NULL DEFAULT 0,
    new_certificates INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX scans_unfinished ON scans (id) WHERE state <> 'finished';

-- Counts are kept by the writer, so that the list costs the same at any size.
CREATE TABLE issuers (
    id           INTEGER PRIMARY KEY,
    name_sha256  BLOB    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    certificates INTEGER NOT NULL DEFAULT 0,
    endpoints    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX issuers_by_endpoints ON issuers (endpoints, id);

CREATE TABLE certificates (
    id            INTEGER PRIMARY KEY,
    sha256        BLOB    NOT NULL UNIQUE,
    issuer_id     INTEGER NOT NULL,
    subject       TEXT    NOT NULL,
    serial        TEXT    NOT NULL,
    not_before    INTEGER NOT NULL,
    not_after     INTEGER NOT NULL,
    key_algorithm TEXT    NOT NULL,
    key_bits      INTEGER NOT NULL,
    spki_sha256   BLOB    NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL
);

-- Apart from the facts: last_seen_at moves at every scan and must not rewrite the DER.
CREATE TABLE certificate_ders (
    certificate_id INTEGER PRIMARY KEY,
    der            BLOB NOT NULL
);

-- name_reversed: the name backwards, so that a suffix is a prefix.
CREATE TABLE certificate_names (
    certificate_id INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    name_reversed  TEXT    NOT NULL,
    PRIMARY KEY (certificate_id, position)
) WITHOUT ROWID;
CREATE INDEX certificate_names_by_suffix ON certificate_names (name_reversed, certificate_id);

-- A chain as sent; sha256 is that of its members' fingerprints, one after the other.
CREATE TABLE chains (
    id     INTEGER PRIMARY KEY,
    sha256 BLOB NOT NULL UNIQUE
);
CREATE TABLE chain_members (
    chain_id       INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    certificate_id INTEGER NOT NULL,
    PRIMARY KEY (chain_id, position)
) WITHOUT ROWID;
CREATE INDEX chain_members_by_certificate ON chain_members (certificate_id, chain_id, position);

-- The current state. leaf_* and chain_id are the last ones seen, kept while the endpoint is silent;
-- leaf_not_after is the largest integer when none was ever seen, so that those sort last.
CREATE TABLE endpoints (
    id               INTEGER PRIMARY KEY,
    host             TEXT    NOT NULL,
    port             INTEGER NOT NULL,
    protocol         TEXT    NOT NULL,
    server_name      TEXT    NOT NULL,
    address          TEXT    NOT NULL,
    first_seen_at    INTEGER NOT NULL,
    last_observed_at INTEGER NOT NULL,
    last_answered_at INTEGER,
    last_changed_at  INTEGER NOT NULL,
    last_scan_id     INTEGER NOT NULL,
    outcome          TEXT    NOT NULL,
    answering        INTEGER NOT NULL,
    severity         INTEGER,
    leaf_id          INTEGER,
    leaf_issuer_id   INTEGER,
    leaf_not_after   INTEGER NOT NULL,
    chain_id         INTEGER,
    UNIQUE (host, port, protocol, server_name, address)
);
CREATE INDEX endpoints_by_expiry ON endpoints (leaf_not_after, id);
CREATE INDEX endpoints_by_issuer ON endpoints (leaf_issuer_id, leaf_not_after, id);
CREATE INDEX endpoints_by_chain ON endpoints (chain_id, id);

-- Append-only. change_kind: 0 none, 1 new, 2 gone, 3 certificate changed, 4 outcome changed, 5 returned.
CREATE TABLE observations (
    id               INTEGER PRIMARY KEY,
    scan_id          INTEGER NOT NULL,
    endpoint_id      INTEGER NOT NULL,
    observed_at      INTEGER NOT NULL,
    outcome          TEXT    NOT NULL,
    answered         INTEGER NOT NULL,
    address          TEXT,
    tls_version      INTEGER,
    cipher_suite     INTEGER,
    leaf_id          INTEGER,
    chain_id         INTEGER,
    trust            TEXT    NOT NULL,
    severity         INTEGER,
    findings         TEXT    NOT NULL,
    detail           TEXT    NOT NULL,
    change_kind      INTEGER NOT NULL,
    previous_leaf_id INTEGER,
    previous_outcome TEXT,
    UNIQUE (scan_id, endpoint_id)
);
CREATE INDEX observations_by_endpoint ON observations (endpoint_id, observed_at, scan_id);
CREATE INDEX observations_changed ON observations (observed_at, endpoint_id, scan_id) WHERE change_kind <> 0;

-- Counts kept by the writer: endpoints, certificates, observations, answering, severity.N.
CREATE TABLE totals (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
