-- Credentials that end, are deleted for a while, and are found by one probe.

-- active_id: the newest version that is not in transition; transitional_id: the newest that is. current_ends_at: when the
-- newest version ends by itself. last_number: the number of the newest version there ever was. A deleted credential keeps
-- its row until its time is over, under a name_key that no name has: deleted:UUID:NAME_KEY.
ALTER TABLE credentials ADD COLUMN active_id BIGINT;
ALTER TABLE credentials ADD COLUMN transitional_id BIGINT;
ALTER TABLE credentials ADD COLUMN current_ends_at BIGINT;
ALTER TABLE credentials ADD COLUMN last_number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE credentials ADD COLUMN deleted_at BIGINT;
CREATE INDEX credentials_deleted ON credentials (deleted_at, id) WHERE deleted_at IS NOT NULL;
CREATE INDEX credentials_deleted_name ON credentials (substr(name_key, 46)) WHERE deleted_at IS NOT NULL;

-- number: the versions of a name are counted from 1. ends_at: from then on it is read no more, by its time to live or
-- because it was deleted; until it is destroyed it can be taken back. signed_by: name_key of what signed this version.
ALTER TABLE credential_versions ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE credential_versions ADD COLUMN ends_at BIGINT;
ALTER TABLE credential_versions ADD COLUMN signed_by TEXT COLLATE "C";
CREATE INDEX credential_versions_ending ON credential_versions (ends_at, id) WHERE ends_at IS NOT NULL;
DROP INDEX credential_versions_of;
CREATE INDEX credential_versions_of ON credential_versions (credential_id, id);

UPDATE credential_versions v SET number = n.number
FROM (SELECT id, row_number() OVER (PARTITION BY credential_id ORDER BY id) AS number FROM credential_versions) n
WHERE n.id = v.id;
UPDATE credential_versions v SET signed_by = c.signed_by FROM credentials c WHERE c.id = v.credential_id;
UPDATE credentials c SET
    active_id = (SELECT max(a.id) FROM credential_versions a WHERE a.credential_id = c.id AND a.transitional = 0),
    transitional_id = (SELECT max(t.id) FROM credential_versions t WHERE t.credential_id = c.id AND t.transitional = 1),
    last_number = COALESCE((SELECT max(n.number) FROM credential_versions n WHERE n.credential_id = c.id), 0);
