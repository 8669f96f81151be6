//! What the engine is told about the tables when a database is opened: every migration and every statement.

use crate::store::Store;
use db::{Connections, Database, Migration, Schema, Sends, StoreError, StoreOptions, StoreUrl};

const SCHEMA: Schema =
    Schema { sqlite: SQLITE_MIGRATIONS, postgres: POSTGRES_MIGRATIONS, statements: MODULES };

impl Store {
    /// Opens the database, making the file and its folder when missing (readable by their owner only), and brings its
    /// schema up to date.
    ///
    /// Several processes may have the same database open. On SQLite a transaction that writes waits five seconds for
    /// another's; reading never waits.
    ///
    /// # Errors
    /// [`StoreError::Open`] when it cannot be opened, [`StoreError::TooNew`] when a newer Bulla has migrated it,
    /// [`StoreError::MigrationChanged`] when its schema is not ours.
    #[crate::boxed]
    pub async fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Self::open_with(url, &StoreOptions::default()).await
    }

    /// [`Store::open`] with options.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[crate::boxed]
    pub async fn open_with(url: &StoreUrl, options: &StoreOptions) -> Result<Self, StoreError> {
        Database::open(url, options, SCHEMA).await.map(Self::over)
    }

    /// [`Database::connections`] of a database that is not opened, with these options: over one connection, and nothing
    /// in it is made or changed.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn connections_at(url: &StoreUrl, options: &StoreOptions) -> Result<Connections, StoreError> {
        Database::connections_at(url, options).await
    }
}

/// One migration from both folders.
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
}

/// Every module's statements, for the test that prepares them all on both databases.
const MODULES: &[Sends] = &[
    Sends {
        both: crate::inventory::statements::ALL,
        sqlite: crate::inventory::recording::sqlite_statements::ALL,
        postgres: crate::inventory::recording::postgres_statements::ALL,
        bulks: &[],
        composed: crate::inventory::statements::composed,
    },
    crate::acme::SENDS,
    Sends {
        both: crate::agents::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: crate::agents::BULKS,
        composed: crate::agents::composed,
    },
    Sends {
        both: crate::places::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: crate::places::BULKS,
        composed: crate::places::composed,
    },
    Sends {
        both: crate::clouds::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: &[],
        composed: crate::clouds::composed,
    },
    Sends::of(crate::keys::ALL, crate::keys::BULKS),
    Sends::of(crate::master_keys::ALL, &[]),
    Sends::of(&[], crate::kept_tags::BULKS),
    Sends::of(crate::known::ALL, crate::known::BULKS),
    Sends {
        both: crate::cas::ALL,
        sqlite: crate::cas::SQLITE,
        postgres: crate::cas::POSTGRES,
        bulks: crate::cas::BULKS,
        composed: Vec::new,
    },
    Sends::of(crate::profiles::ALL, &[]),
    crate::proxy_leaves::SENDS,
    Sends::of(crate::issued::insert::ALL, crate::issued::insert::BULKS),
    Sends {
        both: crate::issued::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: crate::issued::BULKS,
        composed: crate::issued::composed,
    },
    Sends {
        both: crate::revocations::ALL,
        sqlite: &[],
        postgres: crate::revocations::POSTGRES,
        bulks: crate::revocations::BULKS,
        composed: crate::revocations::composed,
    },
    Sends::of(crate::revocations::crls::ALL, crate::revocations::crls::BULKS),
    Sends::of(crate::access::ALL, crate::access::BULKS),
    Sends::of(crate::issuers::ALL, crate::issuers::BULKS),
    Sends::of(crate::enrolments::ALL, &[]),
    crate::credentials::SENDS,
    crate::credentials::ROTATION_SENDS,
    crate::credentials::WRAP_SENDS,
    crate::credentials::ACCESS_SENDS,
    crate::credentials::HOOK_SENDS,
    crate::ct::SENDS,
    Sends::of(crate::told::ALL, crate::told::BULKS),
    Sends::of(crate::history::ALL, crate::history::BULKS),
    Sends {
        both: crate::watches::ALL,
        sqlite: crate::watches::SQLITE,
        postgres: crate::watches::POSTGRES,
        bulks: crate::watches::BULKS,
        composed: Vec::new,
    },
    Sends {
        both: crate::watch_parts::ALL,
        sqlite: crate::watch_parts::SQLITE,
        postgres: crate::watch_parts::POSTGRES,
        bulks: crate::watch_parts::BULKS,
        composed: Vec::new,
    },
    Sends {
        both: crate::managed::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: crate::managed::BULKS,
        composed: crate::managed::composed,
    },
    Sends {
        both: crate::jobs::ALL,
        sqlite: crate::jobs::SQLITE,
        postgres: crate::jobs::POSTGRES,
        bulks: crate::jobs::BULKS,
        composed: crate::jobs::composed,
    },
    Sends {
        both: crate::policies::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: crate::policies::BULKS,
        composed: crate::policies::composed,
    },
    Sends::of(crate::approvals::ALL, crate::approvals::BULKS),
    Sends::of(crate::people::ALL, crate::people::BULKS),
    Sends::of(crate::ownership::ALL, crate::ownership::BULKS),
    Sends {
        both: crate::alerts::ALL,
        sqlite: crate::alerts::SQLITE,
        postgres: crate::alerts::POSTGRES,
        bulks: crate::alerts::BULKS,
        composed: Vec::new,
    },
];
