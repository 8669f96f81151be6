-- Agents, the targets they deploy to, and what came of it. Times are microseconds since 1970 UTC.

-- A token enrols one agent, once. Only its SHA-256 is kept. labels: JSON object, given to the agent.
CREATE TABLE agent_tokens (
    id         INTEGER PRIMARY KEY,
    uuid       BLOB NOT NULL UNIQUE,
    hash       BLOB NOT NULL UNIQUE,
    labels     TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER,
    agent      BLOB
);
CREATE INDEX agent_tokens_by_end ON agent_tokens (expires_at);

-- spki_sha256: of the key the agent shows itself with. labels: JSON object; agent_labels has them one by one.
-- addresses: JSON array.
CREATE TABLE agents (
    uuid         BLOB PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    labels       TEXT NOT NULL,
    spki_sha256  BLOB NOT NULL UNIQUE,
    not_after    INTEGER NOT NULL,
    hostname     TEXT NOT NULL,
    os           TEXT NOT NULL,
    arch         TEXT NOT NULL,
    version      TEXT NOT NULL,
    addresses    TEXT NOT NULL,
    revision     INTEGER NOT NULL,
    enrolled_at  INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    retired_at   INTEGER
);
CREATE INDEX agents_by_seen ON agents (last_seen_at, uuid) WHERE retired_at IS NULL;

CREATE TABLE agent_labels (
    agent BLOB NOT NULL,
    label TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (agent, label)
);
CREATE INDEX agent_labels_by_value ON agent_labels (label, value, agent);

-- selector: JSON object of labels an agent must have.
CREATE TABLE agent_groups (
    name        TEXT PRIMARY KEY,
    selector    TEXT NOT NULL,
    description TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
);

-- config: the target as JSON without passwords. secrets: the target with them, sealed; NULL where there are none.
CREATE TABLE deploy_targets (
    uuid       BLOB PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    agent      BLOB NOT NULL,
    kind       TEXT NOT NULL,
    config     TEXT NOT NULL,
    secrets    BLOB,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX deploy_targets_by_agent ON deploy_targets (agent, name);

-- One row a job and target, its last try. certificate: the managed one. fingerprint: what was to be deployed; served:
-- what the endpoint showed. state: 0 waiting, 1 deployed, 2 unchanged, 3 failed, 4 rolled back, 5 broken, 6 cancelled.
CREATE TABLE deployments (
    id          INTEGER PRIMARY KEY,
    job         INTEGER NOT NULL,
    target      BLOB NOT NULL,
    agent       BLOB NOT NULL,
    certificate BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    state       INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    error       TEXT,
    served      BLOB,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    UNIQUE (job, target)
);
CREATE INDEX deployments_by_target ON deployments (target, id);
CREATE INDEX deployments_by_certificate ON deployments (certificate, id);
