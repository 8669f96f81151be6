-- A release that meets a migration of a newer one goes on working, if it knows the schema from `oldest` on. Migrations expand: they add
-- tables, indexes, and columns that may be left out. One that contracts, after the last release that used what it removes, raises `oldest`
-- to the version by which that use had ended.
CREATE TABLE schema_compatibility (
    id     BIGINT PRIMARY KEY CHECK (id = 1),
    oldest BIGINT NOT NULL
);
INSERT INTO schema_compatibility (id, oldest) VALUES (1, 43);
