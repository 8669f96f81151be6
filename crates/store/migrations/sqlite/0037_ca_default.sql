-- Since when an authority is the default, from which is issued where none is named; of several the latest counts.
ALTER TABLE cas ADD COLUMN default_since INTEGER;
