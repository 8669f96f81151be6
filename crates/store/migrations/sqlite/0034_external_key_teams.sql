-- The team that accounts of an external key act for; none before this migration.
ALTER TABLE acme_external_keys ADD COLUMN team TEXT;
