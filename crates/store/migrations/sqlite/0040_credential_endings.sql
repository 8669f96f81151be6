-- Credentials whose newest version ends or has ended, for the list of those that can be taken back.
CREATE INDEX credentials_current_ending ON credentials (current_ends_at, id) WHERE current_ends_at IS NOT NULL;
