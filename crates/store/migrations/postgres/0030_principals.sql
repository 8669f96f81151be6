-- By what else an actor is known: the owner of a token, a subject at an OIDC provider, an e-mail address, a client certificate,
-- its key and its names. Actors that share a mark are one person. Rows stay when an identity goes.
CREATE TABLE principals (
    actor TEXT COLLATE "C" NOT NULL,
    mark  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (actor, mark)
);

-- The hash of the plan that consent to an enrolment is asked for; enrolments from before this migration have none.
ALTER TABLE enrolments ADD COLUMN plan_sha256 BYTEA;
