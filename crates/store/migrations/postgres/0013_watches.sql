-- Watches: scans that the server makes by itself. Times are microseconds since 1970 UTC, lengths microseconds.

-- spec is JSON: what to look at, and how. planned_at is the place on the interval's grid, next_run_at that with its jitter.
-- While a run is under way run_began_at says since when, run_scan which scan it fills, and lease_holder until lease_until
-- who makes it; claims counts who has had it. last_counts is JSON.
CREATE TABLE watches (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid          UUID    NOT NULL UNIQUE,
    name          TEXT COLLATE "C" NOT NULL UNIQUE,
    group_name    TEXT    NOT NULL,
    spec          TEXT    NOT NULL,
    interval_us   BIGINT NOT NULL,
    jitter_us     BIGINT NOT NULL,
    enabled       BIGINT NOT NULL,
    revision      BIGINT NOT NULL,
    planned_at    BIGINT NOT NULL,
    next_run_at   BIGINT NOT NULL,
    claims        BIGINT NOT NULL,
    lease_holder  UUID,
    lease_until   BIGINT,
    run_scan      UUID,
    run_began_at  BIGINT,
    last_scan     UUID,
    last_began_at BIGINT,
    last_ended_at BIGINT,
    last_outcome  TEXT,
    last_error    TEXT,
    last_counts   TEXT,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL
);
CREATE INDEX watches_by_time ON watches (next_run_at, id) WHERE enabled = 1;
CREATE INDEX watches_by_run ON watches (run_scan) WHERE run_scan IS NOT NULL;
CREATE INDEX watches_by_holder ON watches (lease_holder) WHERE lease_holder IS NOT NULL;
