-- Search by any part of a name: a trigram index over the names of managed certificates. It holds no copy of the texts.
CREATE VIRTUAL TABLE managed_search USING fts5(
    name, names, content='managed_certificates', content_rowid='id', tokenize='trigram'
);
INSERT INTO managed_search (managed_search) VALUES ('rebuild');

CREATE TRIGGER managed_search_insert AFTER INSERT ON managed_certificates BEGIN
    INSERT INTO managed_search (rowid, name, names) VALUES (new.id, new.name, new.names);
END;
CREATE TRIGGER managed_search_delete AFTER DELETE ON managed_certificates BEGIN
    INSERT INTO managed_search (managed_search, rowid, name, names) VALUES ('delete', old.id, old.name, old.names);
END;
CREATE TRIGGER managed_search_update AFTER UPDATE OF name, names ON managed_certificates
WHEN old.name <> new.name OR old.names <> new.names BEGIN
    INSERT INTO managed_search (managed_search, rowid, name, names) VALUES ('delete', old.id, old.name, old.names);
    INSERT INTO managed_search (rowid, name, names) VALUES (new.id, new.name, new.names);
END;
