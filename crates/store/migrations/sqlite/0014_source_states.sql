-- What sources of certificates (cloud accounts, clusters) showed when they were last listed; the text is theirs.
CREATE TABLE source_states (
    source     TEXT    NOT NULL PRIMARY KEY,
    state      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
