-- Tags that clouds and clusters give to the certificates they keep, by the place that keeps them, as endpoints name it.
-- sha256 is the certificate's; NULL where there is none yet. tags is a JSON object. A place without tags has no row.
CREATE TABLE kept_tags (
    protocol TEXT NOT NULL,
    host     TEXT NOT NULL,
    sha256   BLOB,
    tags     TEXT NOT NULL,
    PRIMARY KEY (protocol, host)
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_tags_by_certificate ON kept_tags (sha256, protocol, host);
