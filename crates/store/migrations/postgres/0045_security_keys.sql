-- Security keys (WebAuthn) of users: the second factor after a password, passkeys, and signatures of approvers.
-- Times are microseconds since 1970 UTC.

-- credential_id: chosen by the authenticator. public_key: COSE_Key. rp_id: the host name that the key was registered for; it
-- signs for no other. sign_count: the last counter that the authenticator showed, 0 where it has none. user_verified: whether
-- it verified the user at registration. backup_eligible, backed_up: whether it can be copied to, and is on, other devices.
-- transports: how browsers reach it, JSON.
CREATE TABLE access_security_keys (
    id              UUID   PRIMARY KEY,
    identity        UUID   NOT NULL,
    name            TEXT   NOT NULL,
    credential_id   BYTEA  NOT NULL UNIQUE,
    public_key      BYTEA  NOT NULL,
    rp_id           TEXT   NOT NULL,
    sign_count      BIGINT NOT NULL,
    user_verified   BIGINT NOT NULL,
    backup_eligible BIGINT NOT NULL,
    backed_up       BIGINT NOT NULL,
    aaguid          UUID   NOT NULL,
    transports      TEXT   NOT NULL,
    created_at      BIGINT NOT NULL,
    last_used_at    BIGINT
);
CREATE INDEX access_security_keys_by_identity ON access_security_keys (identity, created_at);

-- Ceremonies that have begun: each is used once. secret_hash: SHA-256 of the secret that the browser has to give back.
-- identity: zeros where nobody is known yet. purpose: register, sign-in, confirm, approve. session: the hash of the session
-- that it belongs to. after_password: whether the password was given in it. subject, plan_sha256, nonce: of the approval that
-- is to be signed.
CREATE TABLE access_key_ceremonies (
    secret_hash    BYTEA  PRIMARY KEY,
    identity       UUID   NOT NULL,
    purpose        TEXT   NOT NULL,
    challenge      BYTEA  NOT NULL,
    rp_id          TEXT   NOT NULL,
    origin         TEXT   NOT NULL,
    session        BYTEA,
    after_password BIGINT NOT NULL,
    name           TEXT,
    subject        UUID,
    plan_sha256    BYTEA,
    nonce          BYTEA,
    created_at     BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL
);
CREATE INDEX access_key_ceremonies_by_identity ON access_key_ceremonies (identity, created_at);
CREATE INDEX access_key_ceremonies_by_end ON access_key_ceremonies (expires_at);

-- Signatures of approvers by a security key, for the plan with this hash. signature: all that verifying it needs, JSON.
CREATE TABLE approval_signatures (
    subject      UUID NOT NULL,
    actor        TEXT COLLATE "C" NOT NULL,
    plan_sha256  BYTEA NOT NULL,
    security_key UUID NOT NULL,
    signature    TEXT NOT NULL,
    signed_at    BIGINT NOT NULL,
    PRIMARY KEY (subject, actor, plan_sha256)
);
CREATE INDEX approval_signatures_by_age ON approval_signatures (signed_at);
