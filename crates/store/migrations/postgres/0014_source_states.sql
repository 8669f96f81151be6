-- What sources of certificates (cloud accounts, clusters) showed when they were last listed; the text is theirs.
CREATE TABLE source_states (
    source     TEXT COLLATE "C" PRIMARY KEY,
    state      TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
