-- Retention of scans. scope: digest of the targets and of the options that change the set of endpoints; NULL: begun by an earlier
-- version. The newest scan of each scope stays.
ALTER TABLE scans ADD COLUMN scope TEXT;
CREATE INDEX scans_by_scope ON scans (scope, id) WHERE scope IS NOT NULL;
