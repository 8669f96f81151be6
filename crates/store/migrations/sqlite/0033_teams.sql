-- What teams own: each object belongs to one team. kind: 0 a DNS suffix or an address, 1 a profile, 2 an issuer, 3 a target, 4 a path
-- of credentials. team is NULL once the team has given the object up; last_team and moved_at (microseconds since 1970 UTC) say when
-- another team took it over.
CREATE TABLE team_objects (
    kind      INTEGER NOT NULL,
    object    TEXT NOT NULL,
    team      TEXT,
    last_team TEXT NOT NULL,
    claimed_at INTEGER NOT NULL,
    moved_at  INTEGER,
    PRIMARY KEY (kind, object)
) WITHOUT ROWID;
CREATE INDEX team_objects_by_team ON team_objects (team);

-- Rates of teams; NULL for no limit.
CREATE TABLE team_quotas (
    team                 TEXT PRIMARY KEY,
    requests_per_second  INTEGER,
    certificates_per_day INTEGER
) WITHOUT ROWID;

-- Certificates that count against a team's quota. day: days since 1970 UTC.
CREATE TABLE team_days (
    team         TEXT NOT NULL,
    day          INTEGER NOT NULL,
    certificates INTEGER NOT NULL,
    PRIMARY KEY (team, day)
) WITHOUT ROWID;
