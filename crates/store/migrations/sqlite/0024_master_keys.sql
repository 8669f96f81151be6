-- The master keys that values are, or may be, sealed under. Times are microseconds since 1970 UTC.

-- id: 8 octets, as they stand in what is sealed. canary: a known text sealed under the key, which proves it.
-- founding: 1 for the first key of a database, of which there is one whatever starts at once.
CREATE TABLE master_keys (
    id         BLOB    PRIMARY KEY,
    canary     BLOB    NOT NULL,
    founding   INTEGER UNIQUE,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
