//! Opening of the database with all of Bulla's migrations, and the list of this crate's SQL statements.

use crate::store::Store;
use db::{Connections, Database, Migration, ModuleStatements, Schema, StoreError, StoreOptions, StoreUrl};

const SCHEMA: Schema = Schema { sqlite: SQLITE_MIGRATIONS, postgres: POSTGRES_MIGRATIONS };

impl Store {
    /// Opens the database and migrates its schema. Creates a missing file and directory, readable only by their owner.
    ///
    /// Several processes may open the same database. On SQLite a write transaction waits five seconds for another one; reads never
    /// wait.
    ///
    /// # Errors
    /// [`StoreError::Open`] when it cannot be opened, [`StoreError::TooNew`] when a newer Bulla has migrated it,
    /// [`StoreError::MigrationChanged`] when its schema is not Bulla's.
    #[crate::boxed]
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Self::open_with(url, &StoreOptions::default()).await
    }

    /// Opens the database with options, and otherwise like [`Store::open`].
    ///
    /// # Errors
    /// Same as [`Store::open`].
    #[crate::boxed]
    pub async fn open_with(url: &StoreUrl, options: &StoreOptions) -> Result<Self, StoreError> {
        Database::open(url, options, SCHEMA).await.map(Self::over)
    }

    /// Returns the same limits as [`Database::connections`], for a database that this process has not opened. Uses one connection,
    /// and creates or changes nothing.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn connections_at(url: &StoreUrl, options: &StoreOptions) -> Result<Connections, StoreError> {
        Database::connections_at(url, options).await
    }
}

/// Embeds the SQL migrations from the directories for SQLite and PostgreSQL.
macro_rules! migrations {
    ($($version:literal $name:literal $file:literal,)*) => {
        const SQLITE_MIGRATIONS: &[Migration] = &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../migrations/sqlite/", $file)),
        }),*];

        const POSTGRES_MIGRATIONS: &[Migration] = &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../migrations/postgres/", $file)),
        }),*];
    };
}

migrations! {
    1 "inventory" "0001_inventory.sql",
    2 "ground" "0002_ground.sql",
    3 "keys" "0003_keys.sql",
    4 "authority" "0004_authority.sql",
    5 "acme" "0005_acme.sql",
    6 "lifecycle" "0006_lifecycle.sql",
    7 "agents" "0007_agents.sql",
    8 "access" "0008_access.sql",
    9 "alerts" "0009_alerts.sql",
    10 "issuers" "0010_issuers.sql",
    11 "enrolments" "0011_enrolments.sql",
    12 "ct" "0012_ct.sql",
    13 "watches" "0013_watches.sql",
    14 "source_states" "0014_source_states.sql",
    15 "told" "0015_told.sql",
    16 "ct_monitor" "0016_ct_monitor.sql",
    17 "watch_parts" "0017_watch_parts.sql",
    18 "ownership" "0018_ownership.sql",
    19 "history" "0019_history.sql",
    20 "kept_tags" "0020_kept_tags.sql",
    21 "credentials" "0021_credentials.sql",
    22 "credential_ends" "0022_credential_ends.sql",
    23 "rotation" "0023_rotation.sql",
    24 "master_keys" "0024_master_keys.sql",
    25 "credential_marks" "0025_credential_marks.sql",
    26 "places" "0026_places.sql",
    27 "key_policies" "0027_key_policies.sql",
    28 "proxy_leaves" "0028_proxy_leaves.sql",
    29 "approval_plans" "0029_approval_plans.sql",
    30 "principals" "0030_principals.sql",
    31 "audit_heads" "0031_audit_heads.sql",
    32 "audit_segments" "0032_audit_segments.sql",
    33 "teams" "0033_teams.sql",
    34 "external_key_teams" "0034_external_key_teams.sql",
    35 "approval_votes" "0035_approval_votes.sql",
    36 "pending_changes" "0036_pending_changes.sql",
    37 "ca_default" "0037_ca_default.sql",
    38 "served" "0038_served.sql",
    39 "credential_search" "0039_credential_search.sql",
    40 "credential_endings" "0040_credential_endings.sql",
    41 "listings" "0041_listings.sql",
    42 "search" "0042_search.sql",
    43 "schema_compatibility" "0043_schema_compatibility.sql",
    44 "sign_in" "0044_sign_in.sql",
    45 "security_keys" "0045_security_keys.sql",
    46 "retention" "0046_retention.sql",
    48 "leases" "0048_leases.sql",
    49 "scan_scopes" "0049_scan_scopes.sql",
    50 "version_profiles" "0050_version_profiles.sql",
}

/// The statements of every module, for the test that prepares all of them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[
    ModuleStatements {
        both: crate::inventory::statements::ALL,
        sqlite: crate::inventory::recording::sqlite_statements::ALL,
        postgres: crate::inventory::recording::postgres_statements::ALL,
        bulks: &[],
        composed: crate::inventory::statements::composed,
    },
    crate::inventory::pruning::SENDS,
    ModuleStatements::of(crate::inventory::search::ALL, &[]),
    ModuleStatements::of(crate::keys::ALL, crate::keys::BULKS),
    ModuleStatements::of(crate::master_keys::ALL, &[]),
    ModuleStatements::of(crate::known::ALL, crate::known::BULKS),
    ModuleStatements::of(crate::nodes::ALL, &[]),
    ModuleStatements::of(crate::series::ALL, crate::series::BULKS),
    crate::access::identity::SENDS,
    crate::access::session::SENDS,
    crate::access::sign_in::SENDS,
    crate::access::security_key::SENDS,
    crate::access::role::SENDS,
    crate::access::idempotency::SENDS,
    crate::access::usable::SENDS,
    crate::access::ending::SENDS,
];
