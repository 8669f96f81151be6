-- Private keys at rest, and the certification authorities that use them. Times are microseconds since 1970 UTC.

-- provider: sealed (the key stands in sealed, encrypted), or the name of what holds it (locator says where).
CREATE TABLE keys (
    seq            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id             UUID   NOT NULL UNIQUE,
    key_type       TEXT   NOT NULL,
    spki           BYTEA  NOT NULL,
    spki_sha256    BYTEA  NOT NULL UNIQUE,
    provider       TEXT   NOT NULL,
    sealed         BYTEA,
    locator        TEXT,
    label          TEXT   NOT NULL,
    created_at     BIGINT NOT NULL,
    blocked_at     BIGINT,
    blocked_reason TEXT
);

-- state: pending (its request waits for an external parent), active, retiring, retired. sha256: its certificate's.
-- parent_id: the authority here that signed it; none for roots and below external parents.
CREATE TABLE cas (
    seq           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            UUID   NOT NULL UNIQUE,
    name          TEXT   COLLATE "C" NOT NULL UNIQUE,
    key_id        UUID   NOT NULL,
    state         TEXT   NOT NULL,
    parent_id     UUID,
    sha256        BYTEA,
    specification TEXT   NOT NULL,
    request       BYTEA,
    created_at    BIGINT NOT NULL,
    retiring_at   BIGINT,
    retired_at    BIGINT
);
CREATE INDEX cas_by_key ON cas (key_id);

-- role: own (its certificate), cross (for the same name and key, by another issuer), above (certificates of an
-- external parent and what is above it, in order).
CREATE TABLE ca_certificates (
    ca_id      UUID   NOT NULL,
    sha256     BYTEA  NOT NULL,
    role       TEXT   NOT NULL,
    position   BIGINT NOT NULL,
    issuer_ca  UUID,
    der        BYTEA  NOT NULL,
    not_after  BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (ca_id, sha256)
);

-- Grows with every change of the two tables above: what caches ask.
CREATE TABLE ca_generation (
    id    BIGINT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO ca_generation (id, value) VALUES (1, 1);
