-- The inventory. Times are microseconds since 1970 UTC; hashes are 32 raw bytes. Keys compare by bytes (COLLATE "C"),
-- so that pages come in the same order as on SQLite, whatever the cluster's locale.
-- No foreign keys: rows are only ever added, by one transaction that has just read or written what it refers to.

-- A scan's id is its start in microseconds (one more when taken): newest last, and a time to partition by.
CREATE TABLE scans (
    id               BIGINT  PRIMARY KEY,
    uuid             UUID    NOT NULL UNIQUE,
    started_at       BIGINT  NOT NULL,
    finished_at      BIGINT,
    state            TEXT    NOT NULL,
    spec             TEXT    NOT NULL,
    summary          TEXT,
    observations     BIGINT  NOT NULL DEFAULT 0,
    answered         BIGINT  NOT NULL DEFAULT 0,
    changes          BIGINT  NOT NULL DEFAULT 0,
    new_certificates BIGINT  NOT NULL DEFAULT 0
);
CREATE INDEX scans_unfinished ON scans (id) WHERE state <> 'finished';

-- Counts are kept by the writer, so that the list costs the same at any size.
CREATE TABLE issuers (
    id           BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name_sha256  BYTEA   NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    certificates BIGINT  NOT NULL DEFAULT 0,
    endpoints    BIGINT  NOT NULL DEFAULT 0
);
CREATE INDEX issuers_by_endpoints ON issuers (endpoints, id);

CREATE TABLE certificates (
    id            BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256        BYTEA   NOT NULL UNIQUE,
    issuer_id     BIGINT  NOT NULL,
    subject       TEXT    NOT NULL,
    serial        TEXT    NOT NULL,
    not_before    BIGINT  NOT NULL,
    not_after     BIGINT  NOT NULL,
    key_algorithm TEXT    NOT NULL,
    key_bits      BIGINT  NOT NULL,
    spki_sha256   BYTEA   NOT NULL,
    first_seen_at BIGINT  NOT NULL,
    last_seen_at  BIGINT  NOT NULL
) WITH (fillfactor = 85);

-- Apart from the facts: last_seen_at moves at every scan and must not rewrite the DER.
CREATE TABLE certificate_ders (
    certificate_id BIGINT PRIMARY KEY,
    der            BYTEA  NOT NULL
);

-- name_reversed: the name backwards, so that a suffix is a prefix.
CREATE TABLE certificate_names (
    certificate_id BIGINT  NOT NULL,
    position       INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    name_reversed  TEXT    COLLATE "C" NOT NULL,
    PRIMARY KEY (certificate_id, position)
);
CREATE INDEX certificate_names_by_suffix ON certificate_names (name_reversed, certificate_id);

-- A chain as sent; sha256 is that of its members' fingerprints, one after the other.
CREATE TABLE chains (
    id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256 BYTEA  NOT NULL UNIQUE
);
CREATE TABLE chain_members (
    chain_id       BIGINT  NOT NULL,
    position       INTEGER NOT NULL,
    certificate_id BIGINT  NOT NULL,
    PRIMARY KEY (chain_id, position)
);
CREATE INDEX chain_members_by_certificate ON chain_members (certificate_id, chain_id, position);

-- The current state. leaf_* and chain_id are the last ones seen, kept while the endpoint is silent;
-- leaf_not_after is the largest integer when none was ever seen, so that those sort last.
CREATE TABLE endpoints (
    id               BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host             TEXT    COLLATE "C" NOT NULL,
    port             INTEGER NOT NULL,
    protocol         TEXT    COLLATE "C" NOT NULL,
    server_name      TEXT    COLLATE "C" NOT NULL,
    address          TEXT    COLLATE "C" NOT NULL,
    first_seen_at    BIGINT  NOT NULL,
    last_observed_at BIGINT  NOT NULL,
    last_answered_at BIGINT,
    last_changed_at  BIGINT  NOT NULL,
    last_scan_id     BIGINT  NOT NULL,
    outcome          TEXT    NOT NULL,
    answering        BOOLEAN NOT NULL,
    severity         SMALLINT,
    leaf_id          BIGINT,
    leaf_issuer_id   BIGINT,
    leaf_not_after   BIGINT  NOT NULL,
    chain_id         BIGINT,
    UNIQUE (host, port, protocol, server_name, address)
) WITH (fillfactor = 85);
CREATE INDEX endpoints_by_expiry ON endpoints (leaf_not_after, id);
CREATE INDEX endpoints_by_issuer ON endpoints (leaf_issuer_id, leaf_not_after, id);
CREATE INDEX endpoints_by_chain ON endpoints (chain_id, id);

-- Append-only, a partition for each month in which scans began; beginning a scan makes the partition. An old month is
-- dropped with DROP TABLE observations_YYYY_MM: the current state stays.
-- change_kind: 0 none, 1 new, 2 gone, 3 certificate changed, 4 outcome changed, 5 returned.
CREATE TABLE observations (
    scan_id          BIGINT   NOT NULL,
    endpoint_id      BIGINT   NOT NULL,
    observed_at      BIGINT   NOT NULL,
    outcome          TEXT     NOT NULL,
    answered         BOOLEAN  NOT NULL,
    address          TEXT,
    tls_version      INTEGER,
    cipher_suite     INTEGER,
    leaf_id          BIGINT,
    chain_id         BIGINT,
    trust            TEXT     NOT NULL,
    severity         SMALLINT,
    findings         TEXT     NOT NULL,
    detail           TEXT     NOT NULL,
    change_kind      SMALLINT NOT NULL,
    previous_leaf_id BIGINT,
    previous_outcome TEXT,
    PRIMARY KEY (scan_id, endpoint_id)
) PARTITION BY RANGE (scan_id);
CREATE INDEX observations_by_endpoint ON observations (endpoint_id, observed_at, scan_id);
CREATE INDEX observations_changed ON observations (observed_at, endpoint_id, scan_id) WHERE change_kind <> 0;

-- Counts kept by the writer: endpoints, certificates, observations, answering, severity.N.
CREATE TABLE totals (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value BIGINT NOT NULL
);
