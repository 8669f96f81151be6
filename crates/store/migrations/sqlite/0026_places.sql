-- Places where private keys may be: sites with their attributes, and the key service nodes at them. Times are
-- microseconds since 1970 UTC.

-- One row. last_change: the number of the last change that nodes read. Whoever changes something counts on from it and
-- holds this row until the commit, so that numbers are seen in order. signer: the key of statements, in keys.
CREATE TABLE key_places (
    id          INTEGER PRIMARY KEY,
    last_change INTEGER NOT NULL,
    signer      BLOB
) STRICT;
INSERT INTO key_places (id, last_change) VALUES (1, 0);

-- attributes: JSON object of texts.
CREATE TABLE key_sites (
    uuid       BLOB    PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    attributes TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A token makes one node at a site, once. Only its SHA-256 is kept. attributes: JSON object, the node's own.
CREATE TABLE key_node_tokens (
    id         INTEGER PRIMARY KEY,
    uuid       BLOB    NOT NULL UNIQUE,
    hash       BLOB    NOT NULL UNIQUE,
    site       BLOB    NOT NULL,
    attributes TEXT    NOT NULL,
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER,
    node       BLOB
) STRICT;
CREATE INDEX key_node_tokens_by_end ON key_node_tokens (expires_at);
CREATE INDEX key_node_tokens_by_site ON key_node_tokens (site);

-- attributes: the node's own, beside its site's. kem: the public key to which it opens what is sealed for it.
-- spki_sha256: of the key it shows itself with. statement: JSON, signed; sign_at: when the next one is due.
-- changed: see key_places. hostile: 1 for one that was retired because it is not trusted any more.
CREATE TABLE key_nodes (
    uuid        BLOB    PRIMARY KEY,
    name        TEXT    NOT NULL UNIQUE,
    site        BLOB    NOT NULL,
    attributes  TEXT    NOT NULL,
    address     TEXT    NOT NULL,
    kem         BLOB    NOT NULL,
    spki_sha256 BLOB    NOT NULL UNIQUE,
    not_after   INTEGER NOT NULL,
    statement   TEXT    NOT NULL,
    sign_at     INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    changed     INTEGER NOT NULL,
    enrolled_at INTEGER NOT NULL,
    retired_at  INTEGER,
    hostile     INTEGER NOT NULL
) STRICT;
CREATE INDEX key_nodes_by_site ON key_nodes (site, name);
CREATE INDEX key_nodes_by_change ON key_nodes (changed);
CREATE INDEX key_nodes_to_sign ON key_nodes (sign_at) WHERE retired_at IS NULL;

-- Beside key_nodes, as it is written four times a second: how long a node is there without another word of it, and
-- whether the others were told that it is (1).
CREATE TABLE key_node_leases (
    node     BLOB    PRIMARY KEY,
    until_at INTEGER NOT NULL,
    present  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
