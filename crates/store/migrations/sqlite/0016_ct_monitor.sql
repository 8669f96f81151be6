-- The monitor: which domains are watched by whom, who asks, since when something is wrong. Times are microseconds.

-- services are the names of those that watch it, each between bars; empty: all.
ALTER TABLE ct_domains ADD COLUMN enabled  INTEGER NOT NULL DEFAULT 1;
ALTER TABLE ct_domains ADD COLUMN services TEXT    NOT NULL DEFAULT '';

-- baseline_at: when the service had told all it knew for the first time.
ALTER TABLE ct_searches ADD COLUMN baseline_at   INTEGER;
ALTER TABLE ct_searches ADD COLUMN failing_since INTEGER;
ALTER TABLE ct_searches ADD COLUMN lease_holder  BLOB;
ALTER TABLE ct_searches ADD COLUMN lease_until   INTEGER;
CREATE INDEX ct_searches_by_due ON ct_searches (service, due_at);

ALTER TABLE ct_logs ADD COLUMN failing_since INTEGER;
ALTER TABLE ct_logs ADD COLUMN behind_since  INTEGER;

-- Issuances by exact name, reversed: those that are expected speak for their renewals.
CREATE TABLE ct_issuance_names (
    name_reversed TEXT    NOT NULL,
    issuance_id   INTEGER NOT NULL,
    PRIMARY KEY (name_reversed, issuance_id)
) WITHOUT ROWID;
CREATE INDEX ct_issuance_names_by_issuance ON ct_issuance_names (issuance_id);
