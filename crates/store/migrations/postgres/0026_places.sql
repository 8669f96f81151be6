-- Places where private keys may be: sites with their attributes, and the key service nodes at them. Times are
-- microseconds since 1970 UTC.

-- One row. last_change: the number of the last change that nodes read. Whoever changes something counts on from it and
-- holds this row until the commit, so that numbers are seen in order. signer: the key of statements, in keys.
CREATE TABLE key_places (
    id          BIGINT PRIMARY KEY,
    last_change BIGINT NOT NULL,
    signer      UUID
) WITH (fillfactor = 50);
INSERT INTO key_places (id, last_change) VALUES (1, 0);

-- attributes: JSON object of texts.
CREATE TABLE key_sites (
    uuid       UUID   PRIMARY KEY,
    name       TEXT   COLLATE "C" NOT NULL UNIQUE,
    attributes TEXT   NOT NULL,
    revision   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- A token makes one node at a site, once. Only its SHA-256 is kept. attributes: JSON object, the node's own.
CREATE TABLE key_node_tokens (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid       UUID   NOT NULL UNIQUE,
    hash       BYTEA  NOT NULL UNIQUE,
    site       UUID   NOT NULL,
    attributes TEXT   NOT NULL,
    created_by TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at    BIGINT,
    node       UUID
);
CREATE INDEX key_node_tokens_by_end ON key_node_tokens (expires_at);
CREATE INDEX key_node_tokens_by_site ON key_node_tokens (site);

-- attributes: the node's own, beside its site's. kem: the public key to which it opens what is sealed for it.
-- spki_sha256: of the key it shows itself with. statement: JSON, signed; sign_at: when the next one is due.
-- changed: see key_places. hostile: 1 for one that was retired because it is not trusted any more.
CREATE TABLE key_nodes (
    uuid        UUID   PRIMARY KEY,
    name        TEXT   COLLATE "C" NOT NULL UNIQUE,
    site        UUID   NOT NULL,
    attributes  TEXT   NOT NULL,
    address     TEXT   NOT NULL,
    kem         BYTEA  NOT NULL,
    spki_sha256 BYTEA  NOT NULL UNIQUE,
    not_after   BIGINT NOT NULL,
    statement   TEXT   NOT NULL,
    sign_at     BIGINT NOT NULL,
    revision    BIGINT NOT NULL,
    changed     BIGINT NOT NULL,
    enrolled_at BIGINT NOT NULL,
    retired_at  BIGINT,
    hostile     BIGINT NOT NULL
);
CREATE INDEX key_nodes_by_site ON key_nodes (site, name);
CREATE INDEX key_nodes_by_change ON key_nodes (changed);
CREATE INDEX key_nodes_to_sign ON key_nodes (sign_at) WHERE retired_at IS NULL;

-- Beside key_nodes, as it is written four times a second: how long a node is there without another word of it, and
-- whether the others were told that it is (1).
CREATE TABLE key_node_leases (
    node     UUID   PRIMARY KEY,
    until_at BIGINT NOT NULL,
    present  BIGINT NOT NULL
) WITH (fillfactor = 50);
