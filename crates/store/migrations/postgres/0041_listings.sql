-- Listings of certificates, counts by group and by hour, publication status. Times are microseconds since 1970 UTC.

CREATE INDEX managed_by_start ON managed_certificates (not_before, id);
CREATE INDEX managed_by_key_type ON managed_certificates (key_type, ends_at, id);
CREATE INDEX managed_versions_by_serial ON managed_versions (serial, certificate_id);
CREATE INDEX policy_violations_by_rule ON policy_violations (rule, certificate_id);
CREATE INDEX deployments_by_state ON deployments (state, id);
CREATE INDEX deployments_by_agent ON deployments (agent, id);
-- In place of revocations_by_time, whose columns it begins with.
CREATE INDEX revocations_by_recording ON revocations (recorded_at, certificate_id);
DROP INDEX revocations_by_time;
CREATE INDEX revocations_by_ca_recording ON revocations (ca, recorded_at, certificate_id);
CREATE INDEX blocked_keys_by_time ON blocked_keys (blocked_at, spki_sha256);

-- Certificates by issuer, owner, team, profile, environment and kind of key; archived ones are not counted. value is empty for
-- none. Kept by the transactions that change certificates, like managed_totals; slots keep writers off each other's rows.
CREATE TABLE managed_groups (
    facet TEXT   COLLATE "C" NOT NULL,
    value TEXT   COLLATE "C" NOT NULL,
    slot  BIGINT NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (facet, value, slot)
) WITH (fillfactor = 70);
INSERT INTO managed_groups (facet, value, slot, count)
SELECT 'issuer', issuer, 0, count(*) FROM managed_certificates WHERE state <> 8 GROUP BY issuer;
INSERT INTO managed_groups (facet, value, slot, count)
SELECT 'profile', profile, 0, count(*) FROM managed_certificates WHERE state <> 8 GROUP BY profile;
INSERT INTO managed_groups (facet, value, slot, count)
SELECT 'algorithm', key_type, 0, count(*) FROM managed_certificates WHERE state <> 8 GROUP BY key_type;
INSERT INTO managed_groups (facet, value, slot, count)
SELECT 'owner', COALESCE(owner, ''), 0, count(*) FROM managed_certificates WHERE state <> 8 GROUP BY COALESCE(owner, '');
INSERT INTO managed_groups (facet, value, slot, count)
SELECT 'team', COALESCE(team, ''), 0, count(*) FROM managed_certificates WHERE state <> 8 GROUP BY COALESCE(team, '');
INSERT INTO managed_groups (facet, value, slot, count)
SELECT 'environment', COALESCE(environment, ''), 0, count(*) FROM managed_certificates WHERE state <> 8
GROUP BY COALESCE(environment, '');

-- What happened in an hour (step 0) and in a day (step 1, UTC): from_at is its start, team is empty for none.
CREATE TABLE series_counts (
    step    BIGINT NOT NULL,
    series  BIGINT NOT NULL,
    from_at BIGINT NOT NULL,
    team    TEXT   COLLATE "C" NOT NULL,
    slot    BIGINT NOT NULL,
    count   BIGINT NOT NULL,
    PRIMARY KEY (step, series, from_at, team, slot)
) WITH (fillfactor = 70);

-- Attempts since the last CRL that failed.
ALTER TABLE crls ADD COLUMN failures BIGINT NOT NULL DEFAULT 0;
ALTER TABLE crls ADD COLUMN failed_at BIGINT;
ALTER TABLE crls ADD COLUMN last_error TEXT;

-- Server processes, and when each last said that it runs.
CREATE TABLE server_nodes (
    id         UUID PRIMARY KEY,
    host       TEXT NOT NULL,
    version    TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
);
