-- What teams own: each object belongs to one team. kind: 0 a DNS suffix or an address, 1 a profile, 2 an issuer, 3 a target, 4 a path
-- of credentials. team is NULL once the team has given the object up; last_team and moved_at (microseconds since 1970 UTC) say when
-- another team took it over.
CREATE TABLE team_objects (
    kind      BIGINT NOT NULL,
    object    TEXT COLLATE "C" NOT NULL,
    team      TEXT COLLATE "C",
    last_team TEXT COLLATE "C" NOT NULL,
    claimed_at BIGINT NOT NULL,
    moved_at  BIGINT,
    PRIMARY KEY (kind, object)
);
CREATE INDEX team_objects_by_team ON team_objects (team);

-- Rates of teams; NULL for no limit.
CREATE TABLE team_quotas (
    team                 TEXT COLLATE "C" PRIMARY KEY,
    requests_per_second  BIGINT,
    certificates_per_day BIGINT
);

-- Certificates that count against a team's quota. day: days since 1970 UTC.
CREATE TABLE team_days (
    team         TEXT COLLATE "C" NOT NULL,
    day          BIGINT NOT NULL,
    certificates BIGINT NOT NULL,
    PRIMARY KEY (team, day)
);
