-- Who can issue, as configured. (Table issuers holds the names of issuers that scans have met.)
CREATE TABLE configured_issuers (
    id                BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid              UUID    NOT NULL UNIQUE,
    name              TEXT    COLLATE "C" NOT NULL UNIQUE,
    kind              TEXT    NOT NULL,
    config            TEXT    NOT NULL,
    secrets           BYTEA,
    enabled           BIGINT  NOT NULL,
    revision          BIGINT  NOT NULL,
    created_at        BIGINT  NOT NULL,
    updated_at        BIGINT  NOT NULL,
    account_key       UUID,
    account_url       TEXT,
    account_directory TEXT
);

-- Apart from the configuration: it changes with every failure, the configuration hardly ever.
CREATE TABLE issuer_health (
    issuer          UUID    PRIMARY KEY,
    breaker         TEXT    NOT NULL,
    last_success_at BIGINT,
    last_error_at   BIGINT,
    last_error_code TEXT,
    last_error      TEXT
) WITH (fillfactor = 50);

-- Orders at issuers: where one stands (url), and what it gave (chain: DER certificates, leaf first), so that the same
-- order asked again after a crash gives the same certificate.
CREATE TABLE issuer_orders (
    issuer      UUID    NOT NULL,
    order_key   TEXT    COLLATE "C" NOT NULL,
    spki_sha256 BYTEA   NOT NULL,
    url         TEXT,
    chain       BYTEA,
    created_at  BIGINT  NOT NULL,
    PRIMARY KEY (issuer, order_key)
);
CREATE INDEX issuer_orders_by_age ON issuer_orders (created_at);

-- What to answer to http-01 validations, so that any server of a cluster can.
CREATE TABLE issuer_challenges (
    token      TEXT   COLLATE "C" PRIMARY KEY,
    answer     TEXT   NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX issuer_challenges_by_end ON issuer_challenges (expires_at);
