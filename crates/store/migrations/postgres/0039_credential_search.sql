-- Searches for a part of a credential's name are answered by indexes.

-- Every end of a name that begins with a slash: of /a/b/c these are /a/b/c, /b/c and /c. A text that begins with a slash is
-- in a name exactly where it begins one of these, so that such a search is one range of the primary key.
CREATE TABLE credential_tails (
    tail          TEXT   COLLATE "C" NOT NULL,
    credential_id BIGINT NOT NULL,
    PRIMARY KEY (tail, credential_id)
);

-- What was deleted has a name_key that begins with another character.
CREATE FUNCTION credential_tails_of(name_key TEXT) RETURNS SETOF TEXT LANGUAGE SQL IMMUTABLE AS $$
    SELECT substr(name_key, place) FROM generate_series(1, length(name_key)) AS place
    WHERE substr(name_key, 1, 1) = '/' AND substr(name_key, place, 1) = '/'
$$;

CREATE FUNCTION credential_tails_follow() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM credential_tails
        WHERE credential_id = OLD.id AND tail IN (SELECT credential_tails_of(OLD.name_key));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO credential_tails (tail, credential_id) SELECT credential_tails_of(NEW.name_key), NEW.id;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER credential_tails_follow AFTER INSERT OR DELETE OR UPDATE OF name_key ON credentials
FOR EACH ROW EXECUTE FUNCTION credential_tails_follow();

INSERT INTO credential_tails (tail, credential_id)
SELECT t.tail, c.id FROM credentials c CROSS JOIN LATERAL credential_tails_of(c.name_key) AS t (tail);

-- Every three characters of a name that follow each other, for searches for any other text. Where the extension is not
-- installed, or this role may not create it, such a search reads all names.
DO $$
DECLARE place TEXT;
BEGIN
    BEGIN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
    EXCEPTION WHEN OTHERS THEN
        RAISE NOTICE 'pg_trgm cannot be created: %', SQLERRM;
    END;
    SELECT n.nspname INTO place FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm';
    IF place IS NOT NULL THEN
        EXECUTE format('CREATE INDEX credentials_trigrams ON credentials USING gin (name_key %I.gin_trgm_ops)', place);
    END IF;
END
$$;
