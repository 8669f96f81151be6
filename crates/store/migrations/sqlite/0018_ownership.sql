-- Rules that say who answers for what scans found. Times are microseconds since 1970 UTC.

-- The first that matches wins, by position and name. body is JSON: what it matches, and whom it names.
CREATE TABLE ownership_rules (
    id         INTEGER PRIMARY KEY,
    uuid       BLOB    NOT NULL UNIQUE,
    name       TEXT    NOT NULL UNIQUE,
    position   INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX ownership_rules_by_position ON ownership_rules (position, name);

-- One row: when a rule was last made, changed or removed, so that watches tell anew whose a certificate is.
CREATE TABLE ownership_changed (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT;
INSERT INTO ownership_changed (id, at) VALUES (1, 0);
