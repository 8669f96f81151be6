-- Retention of observations. Times are microseconds since 1970 UTC.

-- What stays of removed observations, for ever: when each endpoint presented each certificate. certificate_id 0: no certificate.
-- observations: number of removed ones. pruned_at: time of the last removal.
CREATE TABLE pruned_observations (
    endpoint_id    INTEGER NOT NULL,
    certificate_id INTEGER NOT NULL,
    first_seen_at  INTEGER NOT NULL,
    last_seen_at   INTEGER NOT NULL,
    observations   INTEGER NOT NULL,
    pruned_at      INTEGER NOT NULL,
    PRIMARY KEY (endpoint_id, certificate_id)
) WITHOUT ROWID;

-- pruned_at: time of the first removal of an observation of the scan. prune_at: time from which the retention visits the scan again;
-- 0: it has not yet; the largest integer: no observation is left.
ALTER TABLE scans ADD COLUMN pruned_at INTEGER;
ALTER TABLE scans ADD COLUMN prune_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX scans_by_pruning ON scans (prune_at, id);
CREATE INDEX watches_by_last_scan ON watches (last_scan) WHERE last_scan IS NOT NULL;
