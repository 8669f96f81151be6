-- Approvals by several people. subject: the identity of the approval, enrolment or pending change. A vote counts for the plan
-- whose hash it names and for no other.
CREATE TABLE approval_votes (
    subject     UUID   NOT NULL,
    actor       TEXT COLLATE "C" NOT NULL,
    plan_sha256 BYTEA  NOT NULL,
    voted_at    BIGINT NOT NULL,
    note        TEXT,
    PRIMARY KEY (subject, actor)
);
CREATE INDEX approval_votes_by_age ON approval_votes (voted_at);

-- needed: how many people must approve. enrolments.plan: the plan that approval is asked for, JSON.
ALTER TABLE approvals ADD COLUMN needed BIGINT NOT NULL DEFAULT 1;
ALTER TABLE enrolments ADD COLUMN needed BIGINT NOT NULL DEFAULT 1;
ALTER TABLE enrolments ADD COLUMN plan TEXT;
