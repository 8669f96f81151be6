-- What an approval is given for. plan: the plan, JSON. plan_sha256: the hash of its canonical encoding; approvals from before
-- this migration have none and are void. previous: the approval that this one replaces, because the plan changed.
-- barred: who cannot decide, a JSON array of actors. approvals.state 5: void.
ALTER TABLE approvals ADD COLUMN plan TEXT;
ALTER TABLE approvals ADD COLUMN plan_sha256 BYTEA;
ALTER TABLE approvals ADD COLUMN previous UUID;
ALTER TABLE approvals ADD COLUMN barred TEXT NOT NULL DEFAULT '[]';
CREATE INDEX approvals_by_job ON approvals (job_id, id);

-- Who changed the plan of a managed certificate since its last version was issued.
CREATE TABLE plan_changes (
    certificate_id BIGINT NOT NULL,
    actor          TEXT COLLATE "C" NOT NULL,
    changed_at     BIGINT NOT NULL,
    PRIMARY KEY (certificate_id, actor)
);
