-- The ACME server. Times are microseconds since 1970 UTC. Ids of orders and authorizations are UUIDv7: their order is
-- that of time, so old ones are deleted by a range of ids and need no index by age.

-- status: 0 valid, 1 deactivated by its owner, 2 revoked by the operator. contacts: one a line.
CREATE TABLE acme_accounts (
    id BLOB PRIMARY KEY,
    thumbprint BLOB NOT NULL UNIQUE,
    jwk TEXT NOT NULL,
    status INTEGER NOT NULL,
    contacts TEXT NOT NULL,
    terms_agreed INTEGER NOT NULL,
    external_key BLOB,
    profile TEXT NOT NULL,
    address TEXT NOT NULL,
    preauthorized_until INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX acme_accounts_by_external_key ON acme_accounts (external_key) WHERE external_key IS NOT NULL;

-- Keys an account had before: records of dns-persist-01 made with them stay good.
CREATE TABLE acme_account_keys (
    account BLOB NOT NULL,
    thumbprint BLOB NOT NULL,
    replaced_at INTEGER NOT NULL,
    PRIMARY KEY (account, thumbprint)
) WITHOUT ROWID;

-- For external account binding; secret is sealed. profiles and names: one a line, none for any.
CREATE TABLE acme_external_keys (
    id BLOB PRIMARY KEY,
    kid TEXT NOT NULL UNIQUE,
    secret BLOB NOT NULL,
    label TEXT NOT NULL,
    reusable INTEGER NOT NULL,
    profiles TEXT NOT NULL,
    names TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    disabled_at INTEGER,
    used_at INTEGER,
    uses INTEGER NOT NULL
) WITHOUT ROWID;

-- status: 0 pending, 1 processing, 2 valid, 3 invalid. names: one a line, as asked for. authorizations: their ids, 16
-- octets each, in the same order. claimed_until: somebody works on it until then; afterwards whoever comes first does.
CREATE TABLE acme_orders (
    id BLOB PRIMARY KEY,
    account BLOB NOT NULL,
    profile TEXT NOT NULL,
    status INTEGER NOT NULL,
    names TEXT NOT NULL,
    authorizations BLOB NOT NULL,
    not_before INTEGER,
    not_after INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    replaces TEXT ,
    csr BLOB,
    certificate BLOB,
    error TEXT,
    claimed_until INTEGER
) WITHOUT ROWID;
CREATE INDEX acme_orders_by_account ON acme_orders (account, id);
CREATE INDEX acme_orders_by_replaced ON acme_orders (replaces) WHERE replaces IS NOT NULL;
CREATE INDEX acme_orders_claimed ON acme_orders (claimed_until) WHERE claimed_until IS NOT NULL;

-- Of an authorization's challenges one can be answered, so it stands here and needs no row: methods are those offered
-- (a set of bits), method is the one answered (-1: no proof was asked for), error why it failed.
-- status: 0 pending, 1 valid, 2 invalid, 3 deactivated, 4 revoked.
CREATE TABLE acme_authorizations (
    id BLOB PRIMARY KEY,
    account BLOB NOT NULL,
    profile TEXT NOT NULL,
    identifier TEXT NOT NULL,
    wildcard INTEGER NOT NULL,
    status INTEGER NOT NULL,
    token BLOB NOT NULL,
    methods INTEGER NOT NULL,
    method INTEGER,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    validated_at INTEGER,
    reusable_until INTEGER,
    error TEXT,
    claimed_until INTEGER
) WITHOUT ROWID;
CREATE INDEX acme_authorizations_valid ON acme_authorizations (account, identifier) WHERE status = 1;
CREATE INDEX acme_authorizations_claimed ON acme_authorizations (claimed_until) WHERE claimed_until IS NOT NULL;

-- Limits of single accounts (UUID), networks (10.0.0.0/8) or names; allowed of 0 forbids, NULL lifts the limit.
CREATE TABLE acme_limit_overrides (
    id BLOB PRIMARY KEY,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    allowed INTEGER,
    seconds INTEGER NOT NULL,
    note TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    UNIQUE (kind, subject)
) WITHOUT ROWID;
