-- What was measured, in sketches by series and stretch of time (telemetry::sketch), and the drifts that people were told of.
-- Times are microseconds. A stretch is five minutes of one node; past two hours those of all nodes are one hour of the node 0.
-- The stretch under way is rewritten each minute: room for it in the same page.
CREATE TABLE history_sketches (
    from_at BIGINT           NOT NULL,
    series  TEXT COLLATE "C" NOT NULL,
    node    UUID             NOT NULL,
    sketch  TEXT             NOT NULL,
    PRIMARY KEY (from_at, series, node)
) WITH (fillfactor = 70);

CREATE TABLE history_drifts (
    series   TEXT COLLATE "C" PRIMARY KEY,
    began_at BIGINT NOT NULL
);
