//! Numbered migrations, applied once, in order, with a checksum of what was applied.

use crate::digest::{hex, sha256};
use crate::error::StoreError;
use crate::statement::Sends;
use crate::value::Value;

/// A numbered change of the schema, applied once and in order.
pub struct Migration {
    /// Its number: ascending, from 1.
    pub version: i64,
    /// Its name, for the record of what was applied.
    pub name: &'static str,
    /// Its statements.
    pub sql: &'static str,
}

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

/// Without the statement that makes the table: it cannot be prepared.
pub(crate) const SENDS: Sends = Sends::of(&[MIGRATIONS_APPLIED, MIGRATION_RECORD], &[]);

/// A migration that the database says it has.
pub(crate) struct Applied {
    pub(crate) version: i64,
    pub(crate) checksum: String,
}

/// The migrations still to apply, after checking that those applied are ours.
pub(crate) fn pending<'m>(
    database: &str,
    known: &'m [Migration],
    applied: &[Applied],
) -> Result<&'m [Migration], StoreError> {
    let newest = known.last().map_or(0, |migration| migration.version);
    for row in applied {
        let Some(migration) = known.iter().find(|migration| migration.version == row.version) else {
            return Err(StoreError::TooNew {
                database: database.to_owned(),
                found: row.version,
                known: newest,
            });
        };
        if checksum(migration) != row.checksum {
            return Err(StoreError::MigrationChanged { database: database.to_owned(), version: row.version });
        }
    }
    let done = applied.iter().map(|row| row.version).max().unwrap_or(0);
    let first = known.iter().position(|migration| migration.version > done).unwrap_or(known.len());
    Ok(&known[first..])
}

/// The parameters of [`MIGRATION_RECORD`].
pub(crate) fn record_of(migration: &Migration, now_us: i64) -> Vec<Value> {
    vec![migration.version.into(), migration.name.into(), checksum(migration).into(), now_us.into()]
}

fn checksum(migration: &Migration) -> String {
    hex(&sha256(migration.sql.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Migration] =
        &[Migration { version: 1, name: "one", sql: "a" }, Migration { version: 2, name: "two", sql: "b" }];

    fn applied(versions: &[(i64, &str)]) -> Vec<Applied> {
        versions
            .iter()
            .map(|(version, sql)| Applied { version: *version, checksum: hex(&sha256(sql.as_bytes())) })
            .collect()
    }

    #[test]
    fn what_is_missing_is_applied_in_order() {
        let versions = |rows: &[(i64, &str)]| -> Vec<i64> {
            pending("db", KNOWN, &applied(rows)).unwrap().iter().map(|migration| migration.version).collect()
        };
        assert_eq!(versions(&[]), [1, 2]);
        assert_eq!(versions(&[(1, "a")]), [2]);
        assert_eq!(versions(&[(1, "a"), (2, "b")]), [0; 0]);
    }

    #[test]
    fn a_newer_or_altered_database_is_refused() {
        let error = |rows: &[(i64, &str)]| pending("db", KNOWN, &applied(rows)).err().unwrap();
        assert!(matches!(
            error(&[(1, "a"), (2, "b"), (3, "c")]),
            StoreError::TooNew { found: 3, known: 2, .. }
        ));
        assert!(matches!(error(&[(1, "other")]), StoreError::MigrationChanged { version: 1, .. }));
    }
}
