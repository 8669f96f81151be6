-- The profile and the policy under which a version was issued. NULL: the version is older than these columns.
ALTER TABLE managed_versions ADD COLUMN profile TEXT;
ALTER TABLE managed_versions ADD COLUMN policy TEXT;
