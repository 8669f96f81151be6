-- Who can issue, as configured. (Table issuers holds the names of issuers that scans have met.)
CREATE TABLE configured_issuers (
    id INTEGER PRIMARY KEY,
    uuid BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    config TEXT NOT NULL,
    secrets BLOB,
    enabled INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    account_key BLOB,
    account_url TEXT,
    account_directory TEXT
);

-- Apart from the configuration: it changes with every failure, the configuration hardly ever.
CREATE TABLE issuer_health (
    issuer BLOB PRIMARY KEY,
    breaker TEXT NOT NULL,
    last_success_at INTEGER,
    last_error_at INTEGER,
    last_error_code TEXT,
    last_error TEXT
);

-- Orders at issuers: where one stands (url), and what it gave (chain: DER certificates, leaf first), so that the same
-- order asked again after a crash gives the same certificate.
CREATE TABLE issuer_orders (
    issuer BLOB NOT NULL,
    order_key TEXT NOT NULL,
    spki_sha256 BLOB NOT NULL,
    url TEXT,
    chain BLOB,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (issuer, order_key)
);
CREATE INDEX issuer_orders_by_age ON issuer_orders (created_at);

-- What to answer to http-01 validations, so that any server of a cluster can.
CREATE TABLE issuer_challenges (
    token TEXT PRIMARY KEY,
    answer TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX issuer_challenges_by_end ON issuer_challenges (expires_at);
