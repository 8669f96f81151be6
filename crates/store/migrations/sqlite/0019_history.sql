-- What was measured, in sketches by series and stretch of time (telemetry::sketch), and the drifts that people were told of.
-- Times are microseconds. A stretch is five minutes of one node; past two hours those of all nodes are one hour of the node 0.
CREATE TABLE history_sketches (
    from_at INTEGER NOT NULL,
    series  TEXT    NOT NULL,
    node    BLOB    NOT NULL,
    sketch  TEXT    NOT NULL,
    PRIMARY KEY (from_at, series, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE history_drifts (
    series   TEXT    PRIMARY KEY,
    began_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
