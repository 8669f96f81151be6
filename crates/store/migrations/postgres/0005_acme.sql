-- The ACME server. Times are microseconds since 1970 UTC. Ids of orders and authorizations are UUIDv7: their order is
-- that of time, so old ones are deleted by a range of ids and need no index by age.

-- status: 0 valid, 1 deactivated by its owner, 2 revoked by the operator. contacts: one a line.
CREATE TABLE acme_accounts (
    id           UUID   PRIMARY KEY,
    thumbprint   BYTEA  NOT NULL UNIQUE,
    jwk          TEXT   NOT NULL,
    status       BIGINT NOT NULL,
    contacts     TEXT   NOT NULL,
    terms_agreed BIGINT NOT NULL,
    external_key UUID,
    profile      TEXT   NOT NULL,
    address      TEXT   NOT NULL,
    preauthorized_until BIGINT,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL
);
CREATE INDEX acme_accounts_by_external_key ON acme_accounts (external_key) WHERE external_key IS NOT NULL;

-- Keys an account had before: records of dns-persist-01 made with them stay good.
CREATE TABLE acme_account_keys (
    account     UUID   NOT NULL,
    thumbprint  BYTEA  NOT NULL,
    replaced_at BIGINT NOT NULL,
    PRIMARY KEY (account, thumbprint)
);

-- For external account binding; secret is sealed. profiles and names: one a line, none for any.
CREATE TABLE acme_external_keys (
    id          UUID   PRIMARY KEY,
    kid         TEXT   COLLATE "C" NOT NULL UNIQUE,
    secret      BYTEA  NOT NULL,
    label       TEXT   NOT NULL,
    reusable    BIGINT NOT NULL,
    profiles    TEXT   NOT NULL,
    names       TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    created_by  TEXT   NOT NULL,
    expires_at  BIGINT,
    disabled_at BIGINT,
    used_at     BIGINT,
    uses        BIGINT NOT NULL
);

-- status: 0 pending, 1 processing, 2 valid, 3 invalid. names: one a line, as asked for. authorizations: their ids, 16
-- octets each, in the same order. claimed_until: somebody works on it until then; afterwards whoever comes first does.
CREATE TABLE acme_orders (
    id             UUID   PRIMARY KEY,
    account        UUID   NOT NULL,
    profile        TEXT   NOT NULL,
    status         BIGINT NOT NULL,
    names          TEXT   NOT NULL,
    authorizations BYTEA  NOT NULL,
    not_before     BIGINT,
    not_after      BIGINT,
    created_at     BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL,
    replaces       TEXT   COLLATE "C",
    csr            BYTEA,
    certificate    UUID,
    error          TEXT,
    claimed_until  BIGINT
) WITH (fillfactor = 70);
CREATE INDEX acme_orders_by_account ON acme_orders (account, id);
CREATE INDEX acme_orders_by_replaced ON acme_orders (replaces) WHERE replaces IS NOT NULL;
CREATE INDEX acme_orders_claimed ON acme_orders (claimed_until) WHERE claimed_until IS NOT NULL;

-- Of an authorization's challenges one can be answered, so it stands here and needs no row: methods are those offered
-- (a set of bits), method is the one answered (-1: no proof was asked for), error why it failed.
-- status: 0 pending, 1 valid, 2 invalid, 3 deactivated, 4 revoked.
CREATE TABLE acme_authorizations (
    id             UUID   PRIMARY KEY,
    account        UUID   NOT NULL,
    profile        TEXT   NOT NULL,
    identifier     TEXT   COLLATE "C" NOT NULL,
    wildcard       BIGINT NOT NULL,
    status         BIGINT NOT NULL,
    token          BYTEA  NOT NULL,
    methods        BIGINT NOT NULL,
    method         BIGINT,
    created_at     BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL,
    validated_at   BIGINT,
    reusable_until BIGINT,
    error          TEXT,
    claimed_until  BIGINT
) WITH (fillfactor = 70);
CREATE INDEX acme_authorizations_valid ON acme_authorizations (account, identifier) WHERE status = 1;
CREATE INDEX acme_authorizations_claimed ON acme_authorizations (claimed_until) WHERE claimed_until IS NOT NULL;

-- Limits of single accounts (UUID), networks (10.0.0.0/8) or names; allowed of 0 forbids, NULL lifts the limit.
CREATE TABLE acme_limit_overrides (
    id         UUID   PRIMARY KEY,
    kind       TEXT   COLLATE "C" NOT NULL,
    subject    TEXT   COLLATE "C" NOT NULL,
    allowed    BIGINT,
    seconds    BIGINT NOT NULL,
    note       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT   NOT NULL,
    UNIQUE (kind, subject)
);
