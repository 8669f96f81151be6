-- What is verified as served of a managed certificate. Times are microseconds since 1970 UTC.

-- Of all places where a version was verified, the one that ends first, with the earliest end in its chain; NULL: nothing
-- was verified. undeployed_since: since when a version waits to be in place at every target; undeployed_late_at: when
-- people are told of that. ends_at: what counts as the certificate's end; not_after is that of the newest version.
ALTER TABLE managed_certificates ADD COLUMN served_fingerprint BLOB;
ALTER TABLE managed_certificates ADD COLUMN served_not_before INTEGER;
ALTER TABLE managed_certificates ADD COLUMN served_not_after INTEGER;
ALTER TABLE managed_certificates ADD COLUMN undeployed_since INTEGER;
ALTER TABLE managed_certificates ADD COLUMN undeployed_late_at INTEGER;
ALTER TABLE managed_certificates ADD COLUMN ends_at INTEGER
    GENERATED ALWAYS AS (COALESCE(served_not_after, not_after)) VIRTUAL;

DROP INDEX managed_by_expiry;
DROP INDEX managed_by_state;
DROP INDEX managed_by_profile;
DROP INDEX managed_by_issuer;
DROP INDEX managed_by_owner;
DROP INDEX managed_by_team;
DROP INDEX managed_by_environment;
DROP INDEX managed_by_agent;
CREATE INDEX managed_by_end ON managed_certificates (ends_at, id);
CREATE INDEX managed_by_state ON managed_certificates (state, ends_at, id);
CREATE INDEX managed_by_profile ON managed_certificates (profile, ends_at, id);
CREATE INDEX managed_by_issuer ON managed_certificates (issuer, ends_at, id);
CREATE INDEX managed_by_owner ON managed_certificates (owner, ends_at, id) WHERE owner IS NOT NULL;
CREATE INDEX managed_by_team ON managed_certificates (team, ends_at, id) WHERE team IS NOT NULL;
CREATE INDEX managed_by_environment ON managed_certificates (environment, ends_at, id) WHERE environment IS NOT NULL;
CREATE INDEX managed_by_agent ON managed_certificates (agent, ends_at, id) WHERE agent IS NOT NULL;
CREATE INDEX managed_undeployed ON managed_certificates (undeployed_since) WHERE undeployed_since IS NOT NULL;
CREATE INDEX managed_undeployed_late ON managed_certificates (undeployed_late_at) WHERE undeployed_late_at IS NOT NULL;
