-- Parts of a watch's run that nodes share. Times are microseconds since 1970 UTC.

-- A run over many endpoints is cut into `parts` ranges of its targets, numbered from 0. A part is its holder's until the lease
-- ends; claims counts who has had it. Once done, result says how it ended: JSON. Gone with the end of the run.
CREATE TABLE watch_parts (
    scan         BLOB   NOT NULL,
    part         INTEGER NOT NULL,
    parts        INTEGER NOT NULL,
    watch        BLOB   NOT NULL,
    claims       INTEGER NOT NULL,
    lease_holder BLOB,
    lease_until  INTEGER,
    result       TEXT,
    PRIMARY KEY (scan, part)
);
CREATE INDEX watch_parts_open ON watch_parts (scan, part) WHERE result IS NULL;
CREATE INDEX watch_parts_by_watch ON watch_parts (watch);
CREATE INDEX watch_parts_by_holder ON watch_parts (lease_holder) WHERE lease_holder IS NOT NULL;
