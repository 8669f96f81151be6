-- Leaves of the proxies that look into TLS, each minted once for all who share this database. Times are microseconds since
-- 1970 UTC.

-- id: 64 hexadecimal digits, a digest of all that a leaf depends on. sealed: the chain, sealed under the master key; nothing
-- while the first is being minted. leaf_key: the key it stands over. ends_at: its end; before there is one, that of the lease.
-- holder, until_at: who mints it (the next one), and how long nobody else does.
CREATE TABLE proxy_leaves (
    id       TEXT   COLLATE "C" PRIMARY KEY,
    sealed   BYTEA,
    leaf_key TEXT   COLLATE "C",
    ends_at  BIGINT NOT NULL,
    made_at  BIGINT NOT NULL,
    holder   UUID,
    until_at BIGINT NOT NULL
);
CREATE INDEX proxy_leaves_by_end ON proxy_leaves (ends_at);
CREATE INDEX proxy_leaves_by_age ON proxy_leaves (made_at);

-- id: SHA-256 of the SubjectPublicKeyInfo, 64 hexadecimal digits. sealed: the private key (PKCS#8), sealed under the master
-- key. ends_at: when no leaf stands over it any more.
CREATE TABLE proxy_leaf_keys (
    id      TEXT   COLLATE "C" PRIMARY KEY,
    sealed  BYTEA  NOT NULL,
    ends_at BIGINT NOT NULL
);
CREATE INDEX proxy_leaf_keys_by_end ON proxy_leaf_keys (ends_at);
