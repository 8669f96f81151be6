-- What deletion and second tries leave behind, and what hooks are still to be told. Times are microseconds since 1970 UTC.

-- ttl_ends_at: when the version ends by its time to live, whatever became of it since; what is taken back before then ends
-- then. Of versions from before this was kept it is the time at which they ended or end.
ALTER TABLE credential_versions ADD COLUMN ttl_ends_at BIGINT;
UPDATE credential_versions SET ttl_ends_at = ends_at WHERE ends_at IS NOT NULL;

-- again_at: the first time that somebody came second.
ALTER TABLE credential_unwraps ADD COLUMN again_at BIGINT;

-- What is due is taken hook by hook, so that a hook that is away holds up its own calls only.
DROP INDEX credential_hook_calls_of;
DROP INDEX credential_hook_calls_due;
CREATE INDEX credential_hook_calls_of ON credential_hook_calls (hook, next_at, id);
