-- Rules that say who answers for what scans found. Times are microseconds since 1970 UTC.

-- The first that matches wins, by position and name. body is JSON: what it matches, and whom it names.
CREATE TABLE ownership_rules (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid       UUID   NOT NULL UNIQUE,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    position   BIGINT NOT NULL,
    body       TEXT   NOT NULL,
    revision   BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX ownership_rules_by_position ON ownership_rules (position, name);

-- One row: when a rule was last made, changed or removed, so that watches tell anew whose a certificate is.
CREATE TABLE ownership_changed (
    id BIGINT PRIMARY KEY,
    at BIGINT NOT NULL
);
INSERT INTO ownership_changed (id, at) VALUES (1, 0);
