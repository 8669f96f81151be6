//! Tables of credentials: names, encrypted versions, and permissions.
//!
//! The statement of an operation also checks its permission. A revoked permission therefore has no effect from the next statement
//! on, and the check costs no round trip.

mod access;
mod current;
mod databases;
mod deletion;
mod found;
mod handle;
mod hooks;
mod leases;
mod list;
mod permissions;
mod requester;
mod rotation;
mod search;
mod tokens;
mod version;
mod wraps;
mod write;

use std::collections::BTreeSet;

use uuid::Uuid;

use found::{found_of, unexpired};
use list::{count, list, listed};
use requester::may;
use version::{columns, readable, row_of};

use db::{BulkStatement, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Value, key_or, limit_of};
pub use handle::Credentials;
use store::states::CredentialKind;
use store::{SealedColumn, sealed_column};

pub use access::{AccessChangeRow, AccessDifference, AccessRow, AccessSource};
pub use current::{NAMES_UNBOUNDED, SEALED_BYTES_MAX};
pub use databases::{
    CONNECTIONS_MAX, ConnectionRow, ConnectionTls, ConnectionUse, ConnectionUsers, ROLES_MAX, RoleRow,
    SEALED_CONNECTIONS, connection_use, delete_connection, delete_role, lock_connection, put_connection,
    put_role,
};
pub use deletion::{
    DeletedCredential, ExpiredVersions, OldVersionScan, VersionsChange, change_credential_versions,
    destroy_expired_versions, restore_credential,
};
pub use found::FoundCredential;
pub use hooks::{
    HOOKS_MAX, HookCall, HookOutcome, HookRow, SEALED_HOOKS, delete_hook, insert_hook_calls, put_hook,
    record_hook_outcomes,
};
pub use leases::{
    LEASES_AT_ONCE, LEASES_OF_ONE_MAX, LeaseRetry, LeaseRow, LeaseSelection, LeaseState, activate_lease,
    delay_leases, delete_leases, end_due_leases, end_leases, end_leases_of_identity, forget_lease,
    has_failed_leases, insert_lease, renew_lease, retry_leases,
};
pub use permissions::{
    CredentialReaders, PermissionRow, PermissionSettings, PermissionsFingerprint, delete_permission,
    insert_permission, update_permission,
};
pub use requester::{Bounds, CredentialOperation, NameBounds, Requester};
pub use rotation::{
    ChangeStep, DueRotation, PlannedNames, PlannedRotation, PlanningPolicy, ROTATION_POLICIES_MAX,
    ROTATIONS_NOW_MAX, RotationFailure, RotationPolicyRow, RotationStep, fail_rotations,
    plan_rotation_policy, plan_rotations, put_rotation_policy, remove_rotation_policy,
    rotation_policy_with_hook, rotation_range, rotations_now, step_rotations,
};
pub use search::SearchLimits;
pub use version::CredentialRow;
pub use wraps::{NewWrap, SEALED_WRAPS, Unwrapped, WRAPS_OF_ONE_MAX, insert_wrap, unwrap};
pub use write::{
    NewCredentialVersion, Put, delete_credential, delete_credential_version, lock_credential_metadata,
    put_credential_versions, set_credential_metadata, set_transitional_version,
};

pub(crate) use access::MODULE_STATEMENTS as ACCESS_STATEMENTS;
pub(crate) use databases::MODULE_STATEMENTS as DATABASE_STATEMENTS;
pub(crate) use hooks::MODULE_STATEMENTS as HOOK_STATEMENTS;
pub(crate) use leases::MODULE_STATEMENTS as LEASE_STATEMENTS;
pub(crate) use rotation::MODULE_STATEMENTS as ROTATION_STATEMENTS;
pub(crate) use wraps::MODULE_STATEMENTS as WRAP_STATEMENTS;

/// Maximum names that are scanned for the children of a path when the caller is limited to some names.
const CHILDREN_READ_MAX: usize = 10_000;

/// The column with the encrypted values, for the rotation of the master key.
pub const SEALED_CREDENTIALS: SealedColumn =
    sealed_column!("credential_versions", "uuid" Uuid "uuid", "sealed");

/// A version of a credential without its encrypted value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CredentialVersionRow {
    /// Id of the credential, the same for all its versions.
    pub credential: Uuid,
    /// The name, with the capitalization in which it was first written.
    pub name: String,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Id of the version.
    pub version: Uuid,
    /// Number of the version, counted from 1 for each name.
    pub number: u64,
    /// Creation time of the version, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// End of the version, µs since 1970-01-01 UTC. The version cannot be read after this time.
    pub ends_at_us: Option<i64>,
    /// Public properties of the value, as JSON.
    pub facts: Option<String>,
    /// Expiry of the version's certificate, µs since 1970-01-01 UTC.
    pub not_after_us: Option<i64>,
    /// Whether this is the transitional version of a CA.
    pub transitional: bool,
    /// Name (lower case) of the credential that signed the certificate.
    pub signed_by: Option<String>,
}

/// A name with its versions, without encrypted values.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ListedVersions {
    /// Creation time of the name, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Number of the newest version ever stored.
    pub last_number: u64,
    /// Metadata of the newest remaining version, as JSON.
    pub metadata: Option<String>,
    /// The versions, newest first. Empty if the name does not exist.
    pub versions: Vec<CredentialVersionRow>,
}

/// Result of a lookup of a version by its number.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NumberedVersion {
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Number of the newest version ever stored.
    pub last_number: u64,
    /// The version; `None` if it was destroyed or never existed.
    pub version: Option<CredentialRow>,
}

macro_rules! version_columns {
    () => {
        "c.uuid, c.name, c.kind, v.uuid, v.number, v.created_at, v.ends_at, v.facts, v.not_after, v.transitional, v.signed_by"
    };
}

/// The newest version of each name, transitional or not.
const NEWEST: BulkStatement = db::bulk! {
    concat!(
        "-- credentials_newest\nSELECT ",
        columns!(),
        " FROM credentials c JOIN credential_versions v ON v.uuid = c.current WHERE c.name_key {among ?1 text} AND ",
        readable!("?2")
    )
};

const VERSIONS: &str = concat!(
    "-- credential_versions\nSELECT ",
    columns!(),
    " FROM credentials c JOIN credential_versions v ON v.credential_id = c.id WHERE c.name_key = ?1 AND ",
    readable!("?5"),
    " AND ",
    may!("1", "?2", "?3"),
    " ORDER BY v.id DESC LIMIT ?4"
);

const VERSION: &str = concat!(
    "-- credential_version\nSELECT ",
    columns!(),
    " FROM credential_versions v JOIN credentials c ON c.id = v.credential_id WHERE v.uuid = ?1 AND ",
    readable!("?4"),
    " AND c.deleted_at IS NULL AND ",
    may!("1", "?2", "?3")
);

/// All versions of a name, including expired ones, and the metadata of its newest version.
const LISTED: &str = concat!(
    "-- credential_versions_listed\nSELECT c.created_at, c.last_number, CASE WHEN v.uuid = c.current THEN v.metadata END, ",
    version_columns!(),
    " FROM credentials c JOIN credential_versions v ON v.credential_id = c.id WHERE c.name_key = ?1 AND ",
    may!("1", "?2", "?3"),
    " ORDER BY v.id DESC LIMIT ?4"
);

/// Returns a name with its version number ?4, even if the version has expired. If there is no such version, the last version before
/// it is returned. Number 0 selects the newest version ever stored, or the active version of a CA that is being replaced. Newer
/// rows have higher numbers, so the search from the newest version needs only a few steps.
const NUMBERED: &str = concat!(
    "-- credential_numbered\nSELECT c.kind, c.last_number, c.transitional_id, v.id, ",
    columns!(),
    " FROM credentials c LEFT JOIN credential_versions v ON v.id = CASE
    WHEN ?4 = 0 AND c.active_id IS NOT NULL AND c.transitional_id IS NOT NULL THEN c.active_id
    ELSE (SELECT w.id FROM credential_versions w WHERE w.credential_id = c.id
          AND w.number <= CASE ?4 WHEN 0 THEN c.last_number ELSE ?4 END ORDER BY w.id DESC LIMIT 1) END
WHERE c.name_key = ?1 AND ",
    may!("1", "?2", "?3")
);

const NAME_OF: &str = "-- credential_name
SELECT name FROM credentials WHERE uuid = ?1 AND deleted_at IS NULL";

const FOUND: &str = concat!(
    "-- credential_found
SELECT c.name, c.current_at, c.current_not_after FROM credentials c WHERE c.name_key = ?1 AND ",
    unexpired!("?4"),
    " AND ",
    may!("1", "?2", "?3")
);

/// Names in a range whose newest certificate expires by the time ?5; 0 disables this filter. The range begins at ?1 and ends
/// before ?2.
const NAMES_IN_RANGE: &str = concat!(
    "-- credentials_under
SELECT c.name, c.current_at, c.current_not_after FROM credentials c
WHERE c.name_key >= ?1 AND c.name_key < ?2 AND (?5 = 0 OR c.current_not_after <= ?5) AND ",
    unexpired!("?7"),
    " AND ",
    may!("1", "?3", "?4"),
    " ORDER BY c.name_key LIMIT ?6"
);

/// The first name of each child of a path. Costs one index probe for each child, independent of the number of names below it. ?1:
/// the path with its slash; ?2: the path with the character after the slash instead of the slash.
const CHILDREN: BulkStatement = db::bulk! {
    concat!(
        "-- credential_children
WITH RECURSIVE level (key) AS (
    SELECT (SELECT min(c.name_key) FROM credentials c WHERE c.name_key >= ?1 AND c.name_key < ?2 AND ",
        unexpired!("?5"),
        " AND ",
        may!("1", "?3", "?4"),
        ")
    UNION ALL
    SELECT (SELECT min(c.name_key) FROM credentials c
            WHERE c.name_key > l.key AND c.name_key < ?2
              AND c.name_key >= CASE {instr|strpos}(substr(l.key, length(?1) + 1), '/') WHEN 0 THEN l.key
                  ELSE substr(l.key, 1, length(?1) + {instr|strpos}(substr(l.key, length(?1) + 1), '/') - 1) || '0' END AND ",
        unexpired!("?5"),
        " AND ",
        may!("1", "?3", "?4"),
        ")
    FROM level l WHERE l.key IS NOT NULL
)
SELECT l.key, c.name FROM level l JOIN credentials c ON c.name_key = l.key ORDER BY l.key LIMIT ?6"
    )
};

const CERTIFICATES: &str = concat!(
    "-- credential_certificates\nSELECT ",
    version_columns!(),
    " FROM credentials c JOIN credential_versions v ON v.credential_id = c.id
WHERE c.kind = 'certificate' AND c.deleted_at IS NULL AND ",
    readable!("?5"),
    " AND c.id > ?3 AND c.id <= (
    SELECT max(m.id) FROM (
        SELECT e.id FROM credentials e WHERE e.kind = 'certificate' AND e.id > ?3 ORDER BY e.id LIMIT ?4) AS m) AND ",
    may!("1", "?1", "?2"),
    " ORDER BY c.id, v.id DESC"
);

/// Certificates that the credentials in the list signed, and whether the caller may write each certificate.
const SIGNED: BulkStatement = db::bulk! {
    concat!(
        "-- credentials_signed\nSELECT c.name, CASE WHEN ",
        may!("2", "?2", "?3"),
        " THEN 1 ELSE 0 END FROM credentials c WHERE c.signed_by {among ?1 text} AND c.deleted_at IS NULL ORDER BY c.name_key"
    )
};

const LAST_CERTIFICATE: &str = "-- credential_certificates_last
SELECT max(id) FROM (SELECT id FROM credentials WHERE kind = 'certificate' AND id > ?1 ORDER BY id LIMIT ?2) AS m";

pub(crate) const MODULE_STATEMENTS: ModuleStatements = ModuleStatements {
    both: &[
        VERSIONS,
        current::VERSIONS_BYTES,
        VERSION,
        NAME_OF,
        FOUND,
        NAMES_IN_RANGE,
        search::LIKE,
        LISTED,
        NUMBERED,
        CERTIFICATES,
        LAST_CERTIFICATE,
        SEALED_CREDENTIALS.page,
        SEALED_CREDENTIALS.count,
        SEALED_CREDENTIALS.heads,
        write::LOCK_VERSION,
        write::DELETE_VERSIONS,
        write::DELETE,
        write::DELETE_VERSION,
        write::ANY_VERSION,
        write::TRANSITION,
        write::METADATA,
        write::NOTED,
        write::SOFT_DELETE,
        deletion::DELETED,
        deletion::DELETED_NAMED,
        deletion::ENDED_NAMES,
        deletion::ENDED_NAMED,
        deletion::RESTORE,
        deletion::ENDED,
        deletion::OLD,
        permissions::INSERT,
        permissions::UPDATE,
        permissions::DELETE,
        permissions::BY_ID,
        permissions::BY_PATH,
        permissions::AT,
        permissions::PAGE,
        permissions::MAY,
        permissions::MARK,
        tokens::END,
        tokens::ENDED,
        tokens::TIDY,
    ],
    sqlite: &[search::WITH_TRIGRAMS],
    postgres: &[],
    bulks: &[
        &search::WITH_PATH,
        &current::CURRENT,
        &current::CURRENT_BOUNDED,
        &NEWEST,
        &SIGNED,
        &CHILDREN,
        &deletion::DELETED_BEFORE,
        &deletion::DELETE_SOME_VERSIONS,
        &permissions::READERS,
        &SEALED_CREDENTIALS.replace,
        &write::NAMES,
        &write::LOCK,
        &write::VERSIONS,
        &write::SETTLE,
        &write::PRUNE,
        &deletion::LOCK,
        &deletion::DELETE_ENDED,
        &deletion::DELETE_OLD,
        &deletion::DELETE_EMPTY,
        &deletion::END,
        &deletion::END_OLDER,
        &deletion::RESTORE_VERSIONS,
        &deletion::DELETE_NUMBERED,
    ],
    composed: Vec::new,
};

impl Credentials<'_> {
    /// Returns the newest version of each of these names (lower case), transitional or not, in no order and without a check of
    /// permissions. Uses one statement.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn newest(self, names: &[String], now_us: i64) -> Result<Vec<CredentialRow>, StoreError> {
        let rows = self.0.rows(Cost::Point, NEWEST.of(self.0), vec![list(names), now_us.into()]).await?;
        rows.into_iter().map(row_of).collect()
    }

    /// Returns the newest versions of a name (lower case), newest first. Reads no more rows than it returns.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn versions(
        self,
        requester: &Requester,
        name: &str,
        limit: usize,
        now_us: i64,
    ) -> Result<Vec<CredentialRow>, StoreError> {
        let [everything, actor] = requester.name_access_parameters(name);
        let parameters = vec![name.into(), everything, actor, count(limit), now_us.into()];
        let rows = self.0.rows(Cost::Walk, VERSIONS, parameters).await?;
        rows.into_iter().map(row_of).collect()
    }

    /// Returns the newest versions of a name (lower case) without their values, newest first, including expired ones.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn version_listing(
        self,
        requester: &Requester,
        name: &str,
        limit: usize,
    ) -> Result<ListedVersions, StoreError> {
        let [everything, actor] = requester.name_access_parameters(name);
        let rows =
            self.0.rows(Cost::Walk, LISTED, vec![name.into(), everything, actor, count(limit)]).await?;
        let mut listed = ListedVersions::default();
        for mut row in rows {
            (listed.created_at_us, listed.last_number) = (row.int()?, row.number()?);
            listed.metadata = listed.metadata.or(row.maybe_text()?);
            listed.versions.push(credential_version_row(row)?);
        }
        Ok(listed)
    }

    /// Returns the version of a name (lower case) with this number, expired or not. Without a number: the newest version ever
    /// stored, or the active version of a CA that is being replaced. `None` when the name does not exist or the caller is not
    /// permitted to read it.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn numbered(
        self,
        requester: &Requester,
        name: &str,
        number: Option<u64>,
    ) -> Result<Option<NumberedVersion>, StoreError> {
        let [everything, actor] = requester.name_access_parameters(name);
        let wanted = number.map_or(0, |number| i64::try_from(number).unwrap_or(i64::MAX));
        let parameters = vec![name.into(), everything, actor, wanted.into()];
        let Some(mut row) = self.0.row(NUMBERED, parameters).await? else { return Ok(None) };
        let (kind, last_number) = (row.named("credentials.kind")?, row.number()?);
        let changes = row.maybe_int()?.is_some();
        let version = match row.maybe_int()? {
            Some(_) => Some(row_of(row)?),
            None => None,
        };
        // If the requested version was destroyed, the statement returns the previous version. Without a number, the result is the
        // newest version ever stored, or the active version of a CA that is being replaced.
        let version = version.filter(|version| match number {
            Some(number) => version.number == number,
            None => version.number == last_number || changes,
        });
        Ok(Some(NumberedVersion { kind, last_number, version }))
    }

    /// Returns a version by its id.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn version(
        self,
        requester: &Requester,
        version: Uuid,
        now_us: i64,
    ) -> Result<Option<CredentialRow>, StoreError> {
        let [everything, actor] = requester.listing_parameters();
        let parameters = vec![version.into(), everything, actor, now_us.into()];
        let found = self.0.row(VERSION, parameters).await?.map(row_of).transpose()?;
        Ok(found.filter(|row| requester.lists(&row.name)))
    }

    /// Returns the name of a credential by its id.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn name(self, credential: Uuid) -> Result<Option<String>, StoreError> {
        self.0.row(NAME_OF, vec![credential.into()]).await?.map(|mut row| row.text()).transpose()
    }

    /// Returns a name (lower case) as a search result, if it exists and the caller may read it. Uses one index probe.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn found(
        self,
        requester: &Requester,
        name: &str,
        now_us: i64,
    ) -> Result<Option<FoundCredential>, StoreError> {
        let [everything, actor] = requester.name_access_parameters(name);
        let parameters = vec![name.into(), everything, actor, now_us.into()];
        self.0.row(FOUND, parameters).await?.map(found_of).transpose()
    }

    /// Returns names (lower case) in the range from `from` to before `before` that the caller may read, sorted by name, at most
    /// `limit`. With `ends_by_us`, only names whose newest certificate expires by that time.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn names_in_range(
        self,
        requester: &Requester,
        (from, before): (&str, &str),
        ends_by_us: Option<i64>,
        limit: usize,
        now_us: i64,
    ) -> Result<Vec<FoundCredential>, StoreError> {
        let [everything, actor] = requester.listing_parameters();
        let ends = ends_by_us.unwrap_or(0).into();
        let parameters =
            vec![from.into(), before.into(), everything, actor, ends, count(limit), now_us.into()];
        let rows = self.0.rows(Cost::Walk, NAMES_IN_RANGE, parameters).await?;
        listed(requester, rows.into_iter().map(found_of), |found| &found.name)
    }

    /// Returns the children of a path (lower case, with its slash at the end), sorted and as first written, at most `limit`. A child
    /// is `name` for a credential, and `name/` for a path with children. Leaves out children below which the caller may read
    /// nothing.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn children(
        self,
        requester: &Requester,
        path: &str,
        limit: usize,
        now_us: i64,
    ) -> Result<Vec<String>, StoreError> {
        let before = format!("{}0", path.strip_suffix('/').unwrap_or(path));
        if requester.is_restricted() {
            let found =
                self.names_in_range(requester, (path, &before), None, CHILDREN_READ_MAX, now_us).await?;
            let child = |found: FoundCredential| {
                let rest = found.name.get(path.len()..).unwrap_or_default();
                rest.split_inclusive('/').next().unwrap_or_default().to_owned()
            };
            let children: BTreeSet<String> = found.into_iter().map(child).collect();
            return Ok(children.into_iter().take(limit).collect());
        }
        let [everything, actor] = requester.listing_parameters();
        let parameters =
            vec![path.into(), before.as_str().into(), everything, actor, now_us.into(), count(limit)];
        let rows = self.0.rows(Cost::Walk, CHILDREN.of(self.0), parameters).await?;
        let child = |mut row: Row| {
            row.skip()?;
            let name = row.text()?;
            let rest = name.get(path.len()..).unwrap_or_default();
            Ok(rest.split_inclusive('/').next().unwrap_or_default().to_owned())
        };
        rows.into_iter().map(child).collect()
    }

    /// Returns every version of a page of certificates without its value. Credentials are in creation order, versions newest first.
    /// `limit` counts credentials, including those that the caller is not permitted to read.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn certificates(
        self,
        requester: &Requester,
        after: Option<&Cursor>,
        limit: usize,
        now_us: i64,
    ) -> Result<Page<CredentialVersionRow>, StoreError> {
        let start = key_or(after, "credential-certificates", &[Value::Int(0)])?;
        let (limit, _) = limit_of(limit);
        let [everything, actor] = requester.listing_parameters();
        let range = vec![start[0].clone(), (limit as i64).into()];
        let last = self.0.row(LAST_CERTIFICATE, range.clone()).await?;
        let last = last.map(|mut row| row.maybe_int()).transpose()?.flatten();
        let mut parameters = vec![everything, actor];
        parameters.extend(range);
        parameters.push(now_us.into());
        let rows = self.0.rows(Cost::Walk, CERTIFICATES, parameters).await?;
        let rows = listed(requester, rows.into_iter().map(credential_version_row), |version| &version.name)?;
        let next = last.map(|last| Cursor::new("credential-certificates", &[Value::Int(last)]));
        Ok(Page { rows, next })
    }

    /// Returns the names of the current certificates that these credentials (lower case) signed, sorted, and whether the caller may
    /// write them. Uses one statement.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn signed_by(
        self,
        requester: &Requester,
        names: &[String],
    ) -> Result<Vec<(String, bool)>, StoreError> {
        let [everything, actor] = requester.listing_parameters();
        let rows = self.0.rows(Cost::Walk, SIGNED.of(self.0), vec![list(names), everything, actor]).await?;
        let read = |mut row: Row| {
            let (name, may_write) = (row.text()?, row.flag()?);
            let within = requester.lists(&name);
            Ok((name, may_write && within))
        };
        rows.into_iter().map(read).collect()
    }
}

fn credential_version_row(mut row: Row) -> Result<CredentialVersionRow, StoreError> {
    Ok(CredentialVersionRow {
        credential: row.uuid()?,
        name: row.text()?,
        kind: row.named("credentials.kind")?,
        version: row.uuid()?,
        number: row.number()?,
        created_at_us: row.int()?,
        ends_at_us: row.maybe_int()?,
        facts: row.maybe_text()?,
        not_after_us: row.maybe_int()?,
        transitional: row.flag()?,
        signed_by: row.maybe_text()?,
    })
}

/// Every statement of these tables, for the test that prepares all statements on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[
    MODULE_STATEMENTS,
    ROTATION_STATEMENTS,
    WRAP_STATEMENTS,
    ACCESS_STATEMENTS,
    HOOK_STATEMENTS,
    DATABASE_STATEMENTS,
    LEASE_STATEMENTS,
];
