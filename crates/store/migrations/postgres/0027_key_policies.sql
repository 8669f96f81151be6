-- Policies over the places of migration 26: who may open which private keys. Times are microseconds since 1970 UTC.

-- formula: which nodes satisfy it. generation: its newest pair, to which keys are sealed. changed: see key_places.
-- removed_at: nodes are told that it is gone.
CREATE TABLE key_policies (
    uuid       UUID   PRIMARY KEY,
    name       TEXT   COLLATE "C" NOT NULL,
    formula    TEXT   NOT NULL,
    generation BIGINT NOT NULL,
    revision   BIGINT NOT NULL,
    changed    BIGINT NOT NULL,
    created_by TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    removed_at BIGINT
);
CREATE UNIQUE INDEX key_policies_by_name ON key_policies (name) WHERE removed_at IS NULL;
CREATE INDEX key_policies_by_change ON key_policies (changed);
CREATE INDEX key_policies_removed ON key_policies (removed_at) WHERE removed_at IS NOT NULL;

-- A policy's pairs: the newest seals, all that are here open. seed: the private half, sealed under the master key, for
-- nodes that come later and for sealing anew. uuid: what the seed is bound to.
CREATE TABLE key_policy_generations (
    uuid       UUID   PRIMARY KEY,
    policy     UUID   NOT NULL,
    generation BIGINT NOT NULL,
    public     BYTEA  NOT NULL,
    seed       BYTEA  NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (policy, generation)
);

-- A generation's seed, sealed to a node that satisfies the policy. blob: nothing once it is withdrawn, so that the node
-- is told.
CREATE TABLE key_policy_wraps (
    policy     UUID   NOT NULL,
    generation BIGINT NOT NULL,
    node       UUID   NOT NULL,
    blob       BYTEA,
    changed    BIGINT NOT NULL,
    removed_at BIGINT,
    PRIMARY KEY (policy, generation, node)
);
CREATE INDEX key_policy_wraps_by_change ON key_policy_wraps (node, changed);
CREATE INDEX key_policy_wraps_by_number ON key_policy_wraps (changed);
CREATE INDEX key_policy_wraps_live ON key_policy_wraps (policy, generation, node) WHERE removed_at IS NULL;
CREATE INDEX key_policy_wraps_removed ON key_policy_wraps (removed_at) WHERE removed_at IS NOT NULL;

-- Private keys, sealed to a generation of a policy: whoever wrote them saw the key, this server did not. blob: nothing
-- once it is withdrawn.
CREATE TABLE sealed_keys (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    spki_sha256 BYTEA  NOT NULL UNIQUE,
    spki        BYTEA  NOT NULL,
    name        TEXT   COLLATE "C" NOT NULL,
    kind        TEXT   NOT NULL,
    policy      UUID   NOT NULL,
    generation  BIGINT NOT NULL,
    blob        BYTEA,
    changed     BIGINT NOT NULL,
    created_by  TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    removed_at  BIGINT
);
CREATE INDEX sealed_keys_by_name ON sealed_keys (name, id) WHERE removed_at IS NULL;
CREATE INDEX sealed_keys_by_policy ON sealed_keys (policy, generation, spki_sha256) WHERE removed_at IS NULL;
CREATE INDEX sealed_keys_by_change ON sealed_keys (changed);
CREATE INDEX sealed_keys_removed ON sealed_keys (removed_at) WHERE removed_at IS NOT NULL;
