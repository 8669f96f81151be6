-- Watches: scans that the server makes by itself. Times are microseconds since 1970 UTC, lengths microseconds.

-- spec is JSON: what to look at, and how. planned_at is the place on the interval's grid, next_run_at that with its jitter.
-- While a run is under way run_began_at says since when, run_scan which scan it fills, and lease_holder until lease_until
-- who makes it; claims counts who has had it. last_counts is JSON.
CREATE TABLE watches (
    id            INTEGER PRIMARY KEY,
    uuid          BLOB    NOT NULL UNIQUE,
    name          TEXT    NOT NULL UNIQUE,
    group_name    TEXT    NOT NULL,
    spec          TEXT    NOT NULL,
    interval_us   INTEGER NOT NULL,
    jitter_us     INTEGER NOT NULL,
    enabled       INTEGER NOT NULL,
    revision      INTEGER NOT NULL,
    planned_at    INTEGER NOT NULL,
    next_run_at   INTEGER NOT NULL,
    claims        INTEGER NOT NULL,
    lease_holder  BLOB,
    lease_until   INTEGER,
    run_scan      BLOB,
    run_began_at  INTEGER,
    last_scan     BLOB,
    last_began_at INTEGER,
    last_ended_at INTEGER,
    last_outcome  TEXT,
    last_error    TEXT,
    last_counts   TEXT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
);
CREATE INDEX watches_by_time ON watches (next_run_at, id) WHERE enabled = 1;
CREATE INDEX watches_by_run ON watches (run_scan) WHERE run_scan IS NOT NULL;
CREATE INDEX watches_by_holder ON watches (lease_holder) WHERE lease_holder IS NOT NULL;
