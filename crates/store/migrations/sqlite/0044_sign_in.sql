-- Signing in to the console: how and when the person of a session proved who they are, one-time links, passwords.
-- Times are microseconds since 1970 UTC.

-- method: oidc, link, password; NULL for a session that an older release began. proved_at: when the person last proved who
-- they are; NULL where that is not known. chain: the client certificates (DER) with which the session was asked for; the
-- session is good while they are.
ALTER TABLE access_sessions ADD COLUMN method TEXT;
ALTER TABLE access_sessions ADD COLUMN proved_at INTEGER;
ALTER TABLE access_sessions ADD COLUMN chain BLOB;

-- code_hash: SHA-256 of the link's code. grants, proved_at, session_end, chain: of the session that asked for the link, or of
-- the client certificate; NULL where a token asked.
CREATE TABLE access_sign_in_links (
    code_hash   BLOB PRIMARY KEY,
    identity    BLOB NOT NULL,
    grants      TEXT NOT NULL,
    proved_at   INTEGER,
    session_end INTEGER,
    chain       BLOB,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX access_sign_in_links_by_identity ON access_sign_in_links (identity, created_at);
CREATE INDEX access_sign_in_links_by_end ON access_sign_in_links (expires_at);

-- hash: argon2id in PHC string format.
CREATE TABLE access_passwords (
    identity BLOB PRIMARY KEY,
    hash     TEXT NOT NULL,
    set_at   INTEGER NOT NULL,
    set_by   TEXT NOT NULL
) WITHOUT ROWID;
