//! Numbered migrations, applied once and in order. A checksum of each applied migration is stored.

use crate::digest::{hex, sha256};
use crate::error::StoreError;
use crate::statement::ModuleStatements;
use crate::value::Value;

/// A numbered schema change, applied once and in order.
pub struct Migration {
    /// Version: ascending, from 1.
    pub version: i64,
    /// Name for the record of applied migrations.
    pub name: &'static str,
    /// SQL statements that change the schema.
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

/// Selects the oldest compatible version from a table that a migration creates.
pub(crate) const OLDEST_COMPATIBLE: &str = "-- schema_oldest_compatible
SELECT oldest FROM schema_compatibility WHERE id = 1";

/// Statements that are prepared to check the schema. The statement that creates the table of migrations is missing, because it
/// cannot be prepared.
pub(crate) const MODULE_STATEMENTS: ModuleStatements =
    ModuleStatements::of(&[MIGRATIONS_APPLIED, MIGRATION_RECORD, OLDEST_COMPATIBLE], &[]);

/// A migration recorded in the database.
pub(crate) struct AppliedMigration {
    pub(crate) version: i64,
    pub(crate) checksum: String,
}

/// Returns the newest version that this build knows.
pub(crate) fn newest(known: &[Migration]) -> i64 {
    known.last().map_or(0, |migration| migration.version)
}

/// Returns whether a newer build has migrated the database. [`OLDEST_COMPATIBLE`] then says whether this build can still use it.
pub(crate) fn has_newer_migration(known: &[Migration], applied: &[AppliedMigration]) -> bool {
    applied.iter().any(|row| row.version > newest(known))
}

/// Returns the migrations still to apply. Checks that the applied migrations are the migrations of this build or of a compatible newer
/// build. `oldest` is the oldest version that works with the database.
pub(crate) fn pending<'m>(
    database: &str,
    known: &'m [Migration],
    applied: &[AppliedMigration],
    oldest: Option<i64>,
) -> Result<&'m [Migration], StoreError> {
    let newest = newest(known);
    for row in applied {
        let Some(migration) = known.iter().find(|migration| migration.version == row.version) else {
            if row.version > newest && oldest.is_some_and(|oldest| oldest <= newest) {
                tracing::warn!(
                    database,
                    found = row.version,
                    known = newest,
                    "a newer Bulla has migrated the database, and this version is compatible with it: upgrade this process too"
                );
                continue;
            }
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

/// Returns the parameters of [`MIGRATION_RECORD`].
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

    fn applied(versions: &[(i64, &str)]) -> Vec<AppliedMigration> {
        versions
            .iter()
            .map(|(version, sql)| AppliedMigration {
                version: *version,
                checksum: hex(&sha256(sql.as_bytes())),
            })
            .collect()
    }

    #[test]
    fn pending_migrations_are_applied_in_order() {
        let versions = |rows: &[(i64, &str)]| -> Vec<i64> {
            pending("db", KNOWN, &applied(rows), None)
                .unwrap()
                .iter()
                .map(|migration| migration.version)
                .collect()
        };
        assert_eq!(versions(&[]), [1, 2]);
        assert_eq!(versions(&[(1, "a")]), [2]);
        assert_eq!(versions(&[(1, "a"), (2, "b")]), [0; 0]);
    }

    #[test]
    fn newer_and_altered_databases_are_rejected() {
        let error = |rows: &[(i64, &str)]| pending("db", KNOWN, &applied(rows), None).err().unwrap();
        assert!(matches!(
            error(&[(1, "a"), (2, "b"), (3, "c")]),
            StoreError::TooNew { found: 3, known: 2, .. }
        ));
        assert!(matches!(error(&[(1, "other")]), StoreError::MigrationChanged { version: 1, .. }));
    }

    #[test]
    fn database_expanded_by_a_newer_build_is_accepted() {
        let ahead = applied(&[(1, "a"), (2, "b"), (3, "c")]);
        assert!(has_newer_migration(KNOWN, &ahead) && !has_newer_migration(KNOWN, &ahead[..2]));
        assert!(pending("db", KNOWN, &ahead, Some(2)).unwrap().is_empty());
        assert!(matches!(
            pending("db", KNOWN, &ahead, Some(3)),
            Err(StoreError::TooNew { found: 3, known: 2, .. })
        ));
        // An unknown migration between known ones is not a compatible extension.
        let altered = applied(&[(1, "a"), (2, "other"), (3, "c")]);
        assert!(matches!(pending("db", KNOWN, &altered, Some(1)), Err(StoreError::MigrationChanged { .. })));
    }
}
