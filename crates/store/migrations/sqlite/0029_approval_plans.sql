-- What an approval is given for. plan: the plan, JSON. plan_sha256: the hash of its canonical encoding; approvals from before
-- this migration have none and are void. previous: the approval that this one replaces, because the plan changed.
-- barred: who cannot decide, a JSON array of actors. approvals.state 5: void.
ALTER TABLE approvals ADD COLUMN plan TEXT;
ALTER TABLE approvals ADD COLUMN plan_sha256 BLOB;
ALTER TABLE approvals ADD COLUMN previous BLOB;
ALTER TABLE approvals ADD COLUMN barred TEXT NOT NULL DEFAULT '[]';
CREATE INDEX approvals_by_job ON approvals (job_id, id);

-- Who changed the plan of a managed certificate since its last version was issued.
CREATE TABLE plan_changes (
    certificate_id INTEGER NOT NULL,
    actor          TEXT    NOT NULL,
    changed_at     INTEGER NOT NULL,
    PRIMARY KEY (certificate_id, actor)
) WITHOUT ROWID;
