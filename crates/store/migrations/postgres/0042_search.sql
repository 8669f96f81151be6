-- Search by any part of a name: a trigram index over the names of managed certificates, where the extension pg_trgm may be
-- created. Without it, names are found by their beginning and by their end only.
-- A function, because the sessions of this program use no bitmap scans, which an index of this kind needs.
DO $migration$
BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX managed_search_trigrams ON managed_certificates
        USING gin (lower(name) gin_trgm_ops, lower(names) gin_trgm_ops);
    CREATE FUNCTION managed_search(pattern TEXT, most BIGINT) RETURNS SETOF BIGINT
        LANGUAGE sql STABLE PARALLEL SAFE SET enable_bitmapscan = on SET enable_seqscan = off
    AS $body$
        SELECT id FROM managed_certificates
        WHERE lower(name) LIKE pattern ESCAPE '\' OR lower(names) LIKE pattern ESCAPE '\' LIMIT most
    $body$;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'no trigram index: %', SQLERRM;
    CREATE FUNCTION managed_search(pattern TEXT, most BIGINT) RETURNS SETOF BIGINT
        LANGUAGE sql STABLE AS $body$ SELECT id FROM managed_certificates WHERE false $body$;
END
$migration$;
