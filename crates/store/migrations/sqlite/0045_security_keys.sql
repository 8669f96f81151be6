-- Security keys (WebAuthn) of users: the second factor after a password, passkeys, and signatures of approvers.
-- Times are microseconds since 1970 UTC.

-- credential_id: chosen by the authenticator. public_key: COSE_Key. rp_id: the host name that the key was registered for; it
-- signs for no other. sign_count: the last counter that the authenticator showed, 0 where it has none. user_verified: whether
-- it verified the user at registration. backup_eligible, backed_up: whether it can be copied to, and is on, other devices.
-- transports: how browsers reach it, JSON.
CREATE TABLE access_security_keys (
    id              BLOB    PRIMARY KEY,
    identity        BLOB    NOT NULL,
    name            TEXT    NOT NULL,
    credential_id   BLOB    NOT NULL UNIQUE,
    public_key      BLOB    NOT NULL,
    rp_id           TEXT    NOT NULL,
    sign_count      INTEGER NOT NULL,
    user_verified   INTEGER NOT NULL,
    backup_eligible INTEGER NOT NULL,
    backed_up       INTEGER NOT NULL,
    aaguid          BLOB    NOT NULL,
    transports      TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    last_used_at    INTEGER
) WITHOUT ROWID;
CREATE INDEX access_security_keys_by_identity ON access_security_keys (identity, created_at);

-- Ceremonies that have begun: each is used once. secret_hash: SHA-256 of the secret that the browser has to give back.
-- identity: zeros where nobody is known yet. purpose: register, sign-in, confirm, approve. session: the hash of the session
-- that it belongs to. after_password: whether the password was given in it. subject, plan_sha256, nonce: of the approval that
-- is to be signed.
CREATE TABLE access_key_ceremonies (
    secret_hash    BLOB    PRIMARY KEY,
    identity       BLOB    NOT NULL,
    purpose        TEXT    NOT NULL,
    challenge      BLOB    NOT NULL,
    rp_id          TEXT    NOT NULL,
    origin         TEXT    NOT NULL,
    session        BLOB,
    after_password INTEGER NOT NULL,
    name           TEXT,
    subject        BLOB,
    plan_sha256    BLOB,
    nonce          BLOB,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX access_key_ceremonies_by_identity ON access_key_ceremonies (identity, created_at);
CREATE INDEX access_key_ceremonies_by_end ON access_key_ceremonies (expires_at);

-- Signatures of approvers by a security key, for the plan with this hash. signature: all that verifying it needs, JSON.
CREATE TABLE approval_signatures (
    subject      BLOB NOT NULL,
    actor        TEXT NOT NULL,
    plan_sha256  BLOB NOT NULL,
    security_key BLOB NOT NULL,
    signature    TEXT NOT NULL,
    signed_at    INTEGER NOT NULL,
    PRIMARY KEY (subject, actor, plan_sha256)
) WITHOUT ROWID;
CREATE INDEX approval_signatures_by_age ON approval_signatures (signed_at);
