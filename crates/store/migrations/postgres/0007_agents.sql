-- Agents, the targets they deploy to, and what came of it. Times are microseconds since 1970 UTC.

-- A token enrols one agent, once. Only its SHA-256 is kept. labels: JSON object, given to the agent.
CREATE TABLE agent_tokens (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid       UUID   NOT NULL UNIQUE,
    hash       BYTEA  NOT NULL UNIQUE,
    labels     TEXT   NOT NULL,
    created_by TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at    BIGINT,
    agent      UUID
);
CREATE INDEX agent_tokens_by_end ON agent_tokens (expires_at);

-- spki_sha256: of the key the agent shows itself with. labels: JSON object; agent_labels has them one by one.
-- addresses: JSON array.
CREATE TABLE agents (
    uuid         UUID   PRIMARY KEY,
    name         TEXT   COLLATE "C" NOT NULL UNIQUE,
    labels       TEXT   NOT NULL,
    spki_sha256  BYTEA  NOT NULL UNIQUE,
    not_after    BIGINT NOT NULL,
    hostname     TEXT   NOT NULL,
    os           TEXT   NOT NULL,
    arch         TEXT   NOT NULL,
    version      TEXT   NOT NULL,
    addresses    TEXT   NOT NULL,
    revision     BIGINT NOT NULL,
    enrolled_at  BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    retired_at   BIGINT
) WITH (fillfactor = 80);
CREATE INDEX agents_by_seen ON agents (last_seen_at, uuid) WHERE retired_at IS NULL;

CREATE TABLE agent_labels (
    agent UUID NOT NULL,
    label TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (agent, label)
);
CREATE INDEX agent_labels_by_value ON agent_labels (label, value, agent);

-- selector: JSON object of labels an agent must have.
CREATE TABLE agent_groups (
    name        TEXT   COLLATE "C" PRIMARY KEY,
    selector    TEXT   NOT NULL,
    description TEXT   NOT NULL,
    revision    BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL
);

-- config: the target as JSON without passwords. secrets: the target with them, sealed; NULL where there are none.
CREATE TABLE deploy_targets (
    uuid       UUID   PRIMARY KEY,
    name       TEXT   COLLATE "C" NOT NULL UNIQUE,
    agent      UUID   NOT NULL,
    kind       TEXT   COLLATE "C" NOT NULL,
    config     TEXT   NOT NULL,
    secrets    BYTEA,
    revision   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX deploy_targets_by_agent ON deploy_targets (agent, name);

-- One row a job and target, its last try. certificate: the managed one. fingerprint: what was to be deployed; served:
-- what the endpoint showed. state: 0 waiting, 1 deployed, 2 unchanged, 3 failed, 4 rolled back, 5 broken, 6 cancelled.
CREATE TABLE deployments (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job         BIGINT NOT NULL,
    target      UUID   NOT NULL,
    agent       UUID   NOT NULL,
    certificate UUID   NOT NULL,
    fingerprint BYTEA  NOT NULL,
    state       BIGINT NOT NULL,
    attempts    BIGINT NOT NULL,
    error       TEXT,
    served      BYTEA,
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    UNIQUE (job, target)
) WITH (fillfactor = 80);
CREATE INDEX deployments_by_target ON deployments (target, id);
CREATE INDEX deployments_by_certificate ON deployments (certificate, id);
