-- Searches for a part of a credential's name are answered by indexes.

-- Every end of a name that begins with a slash: of /a/b/c these are /a/b/c, /b/c and /c. A text that begins with a slash is
-- in a name exactly where it begins one of these, so that such a search is one range of the primary key.
CREATE TABLE credential_tails (
    tail          TEXT    NOT NULL,
    credential_id INTEGER NOT NULL,
    PRIMARY KEY (tail, credential_id)
) STRICT, WITHOUT ROWID;

-- Every three characters of a name that follow each other, for searches for any other text.
CREATE VIRTUAL TABLE credential_trigrams USING fts5 (
    name_key, content = '', columnsize = 0, detail = none, tokenize = 'trigram case_sensitive 1'
);

-- What was deleted has a name_key that begins with another character.
CREATE TRIGGER credential_search_insert AFTER INSERT ON credentials WHEN substr(NEW.name_key, 1, 1) = '/' BEGIN
    INSERT INTO credential_tails (tail, credential_id) SELECT s.tail, NEW.id FROM (
        WITH RECURSIVE t (tail) AS (
            SELECT NEW.name_key UNION ALL
            SELECT substr(t.tail, instr(substr(t.tail, 2), '/') + 1) FROM t WHERE instr(substr(t.tail, 2), '/') > 0)
        SELECT t.tail FROM t) s;
    INSERT INTO credential_trigrams (rowid, name_key) VALUES (NEW.id, NEW.name_key);
END;

CREATE TRIGGER credential_search_delete AFTER DELETE ON credentials WHEN substr(OLD.name_key, 1, 1) = '/' BEGIN
    DELETE FROM credential_tails WHERE credential_id = OLD.id AND tail IN (SELECT s.tail FROM (
        WITH RECURSIVE t (tail) AS (
            SELECT OLD.name_key UNION ALL
            SELECT substr(t.tail, instr(substr(t.tail, 2), '/') + 1) FROM t WHERE instr(substr(t.tail, 2), '/') > 0)
        SELECT t.tail FROM t) s);
    INSERT INTO credential_trigrams (credential_trigrams, rowid, name_key) VALUES ('delete', OLD.id, OLD.name_key);
END;

CREATE TRIGGER credential_search_leave AFTER UPDATE OF name_key ON credentials WHEN substr(OLD.name_key, 1, 1) = '/' BEGIN
    DELETE FROM credential_tails WHERE credential_id = OLD.id AND tail IN (SELECT s.tail FROM (
        WITH RECURSIVE t (tail) AS (
            SELECT OLD.name_key UNION ALL
            SELECT substr(t.tail, instr(substr(t.tail, 2), '/') + 1) FROM t WHERE instr(substr(t.tail, 2), '/') > 0)
        SELECT t.tail FROM t) s);
    INSERT INTO credential_trigrams (credential_trigrams, rowid, name_key) VALUES ('delete', OLD.id, OLD.name_key);
END;

CREATE TRIGGER credential_search_return AFTER UPDATE OF name_key ON credentials
WHEN substr(OLD.name_key, 1, 1) <> '/' AND substr(NEW.name_key, 1, 1) = '/' BEGIN
    INSERT INTO credential_tails (tail, credential_id) SELECT s.tail, NEW.id FROM (
        WITH RECURSIVE t (tail) AS (
            SELECT NEW.name_key UNION ALL
            SELECT substr(t.tail, instr(substr(t.tail, 2), '/') + 1) FROM t WHERE instr(substr(t.tail, 2), '/') > 0)
        SELECT t.tail FROM t) s;
    INSERT INTO credential_trigrams (rowid, name_key) VALUES (NEW.id, NEW.name_key);
END;

INSERT INTO credential_tails (tail, credential_id)
WITH RECURSIVE t (id, tail) AS (
    SELECT c.id, c.name_key FROM credentials c WHERE substr(c.name_key, 1, 1) = '/' UNION ALL
    SELECT t.id, substr(t.tail, instr(substr(t.tail, 2), '/') + 1) FROM t WHERE instr(substr(t.tail, 2), '/') > 0)
SELECT t.tail, t.id FROM t;
INSERT INTO credential_trigrams (rowid, name_key)
SELECT c.id, c.name_key FROM credentials c WHERE substr(c.name_key, 1, 1) = '/' ORDER BY c.id;
