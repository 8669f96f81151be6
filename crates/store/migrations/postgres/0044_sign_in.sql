-- Signing in to the console: how and when the person of a session proved who they are, one-time links, passwords.
-- Times are microseconds since 1970 UTC.

-- method: oidc, link, password; NULL for a session that an older release began. proved_at: when the person last proved who
-- they are; NULL where that is not known. chain: the client certificates (DER) with which the session was asked for; the
-- session is good while they are.
ALTER TABLE access_sessions ADD COLUMN method TEXT;
ALTER TABLE access_sessions ADD COLUMN proved_at BIGINT;
ALTER TABLE access_sessions ADD COLUMN chain BYTEA;

-- code_hash: SHA-256 of the link's code. grants, proved_at, session_end, chain: of the session that asked for the link, or of
-- the client certificate; NULL where a token asked.
CREATE TABLE access_sign_in_links (
    code_hash   BYTEA  PRIMARY KEY,
    identity    UUID   NOT NULL,
    grants      TEXT   NOT NULL,
    proved_at   BIGINT,
    session_end BIGINT,
    chain       BYTEA,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL
);
CREATE INDEX access_sign_in_links_by_identity ON access_sign_in_links (identity, created_at);
CREATE INDEX access_sign_in_links_by_end ON access_sign_in_links (expires_at);

-- hash: argon2id in PHC string format.
CREATE TABLE access_passwords (
    identity UUID   PRIMARY KEY,
    hash     TEXT   NOT NULL,
    set_at   BIGINT NOT NULL,
    set_by   TEXT   NOT NULL
);
