//! Every SQL statement of Bulla. Reads are one text for both databases; writes differ and have a file each.
//!
//! A statement begins with a comment that names it: that name stands in errors and in the server's own logs. Parameters
//! are `?1`, `?2`, …; [`for_postgres`] turns them into `$1`, `$2`, …

pub(crate) mod postgres;
pub(crate) mod read;
pub(crate) mod sqlite;

/// The name in a statement's first line.
pub(crate) fn name_of(statement: &str) -> &str {
    statement.lines().next().and_then(|line| line.strip_prefix("-- ")).unwrap_or("a statement").trim()
}

/// The same statement with PostgreSQL's parameter marks. No statement holds a `?` for any other purpose.
pub(crate) fn for_postgres(statement: &str) -> String {
    statement.replace('?', "$")
}

/// A numbered change of the schema, applied once and in order.
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

pub(crate) const SQLITE_MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "inventory",
    sql: include_str!("../../migrations/sqlite/0001_inventory.sql"),
}];

pub(crate) const POSTGRES_MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "inventory",
    sql: include_str!("../../migrations/postgres/0001_inventory.sql"),
}];

pub(crate) const MIGRATIONS_TABLE: &str = "-- schema_migrations
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    BIGINT PRIMARY KEY,
    name       TEXT   NOT NULL,
    checksum   TEXT   NOT NULL,
    applied_at BIGINT NOT NULL
)";

pub(crate) const MIGRATIONS_APPLIED: &str = "-- migrations_applied
SELECT version, checksum FROM schema_migrations ORDER BY version";

pub(crate) const MIGRATION_RECORD: &str = "-- migration_record
INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)";
