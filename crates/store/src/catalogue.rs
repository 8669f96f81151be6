//! Every SQL statement of Bulla. Reads are one text for both databases; writes differ and have a file each.
//!
//! A statement begins with a comment that names it: that name stands in errors and in the server's own logs. Parameters
//! are `?1`, `?2`, …; [`for_postgres`] turns them into `$1`, `$2`, …

use crate::engine::tx::Bulk;

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

/// One migration from both folders.
macro_rules! migrations {
    ($($version:literal $name:literal $file:literal,)*) => {
        pub(crate) const SQLITE_MIGRATIONS: &[Migration] = &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../migrations/sqlite/", $file)),
        }),*];

        pub(crate) const POSTGRES_MIGRATIONS: &[Migration] = &[$(Migration {
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

/// What a module sends: statements of both databases, of one of them, and over many rows.
pub(crate) struct Sends {
    pub(crate) both: &'static [&'static str],
    pub(crate) sqlite: &'static [&'static str],
    pub(crate) postgres: &'static [&'static str],
    pub(crate) bulks: &'static [&'static Bulk],
    /// Statements put together from parts, every form of them.
    pub(crate) composed: fn() -> Vec<String>,
}

const fn sends(both: &'static [&'static str], bulks: &'static [&'static Bulk]) -> Sends {
    Sends { both, sqlite: &[], postgres: &[], bulks, composed: Vec::new }
}

/// Every module's statements, for the test that prepares them all on both databases.
pub(crate) const MODULES: &[Sends] = &[
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
        postgres: crate::clouds::POSTGRES,
        bulks: &[],
        composed: crate::clouds::composed,
    },
    sends(crate::keys::ALL, crate::keys::BULKS),
    sends(crate::master_keys::ALL, &[]),
    sends(&[], crate::kept_tags::BULKS),
    sends(crate::known::ALL, crate::known::BULKS),
    Sends {
        both: crate::cas::ALL,
        sqlite: crate::cas::SQLITE,
        postgres: crate::cas::POSTGRES,
        bulks: crate::cas::BULKS,
        composed: Vec::new,
    },
    sends(crate::profiles::ALL, &[]),
    crate::proxy_leaves::SENDS,
    sends(crate::issued::insert::ALL, crate::issued::insert::BULKS),
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
    sends(crate::revocations::crls::ALL, crate::revocations::crls::BULKS),
    sends(crate::access::ALL, crate::access::BULKS),
    sends(crate::issuers::ALL, crate::issuers::BULKS),
    sends(crate::engine::leases::ALL, &[]),
    sends(crate::enrolments::ALL, &[]),
    crate::credentials::SENDS,
    crate::credentials::ROTATION_SENDS,
    crate::credentials::WRAP_SENDS,
    crate::credentials::ACCESS_SENDS,
    crate::credentials::HOOK_SENDS,
    crate::ct::SENDS,
    sends(crate::told::ALL, crate::told::BULKS),
    sends(crate::history::ALL, crate::history::BULKS),
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
    sends(crate::approvals::ALL, crate::approvals::BULKS),
    sends(crate::people::ALL, crate::people::BULKS),
    sends(crate::ownership::ALL, crate::ownership::BULKS),
    Sends {
        both: crate::alerts::ALL,
        sqlite: crate::alerts::SQLITE,
        postgres: crate::alerts::POSTGRES,
        bulks: crate::alerts::BULKS,
        composed: Vec::new,
    },
    Sends {
        both: crate::engine::audit::ALL,
        sqlite: crate::engine::audit::SQLITE,
        postgres: crate::engine::audit::POSTGRES,
        bulks: crate::engine::audit::BULKS,
        composed: crate::engine::audit::composed,
    },
    Sends {
        both: crate::engine::outbox::ALL,
        sqlite: crate::engine::outbox::SQLITE,
        postgres: crate::engine::outbox::POSTGRES,
        bulks: crate::engine::outbox::BULKS,
        composed: Vec::new,
    },
];

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
