//! Tables of rotation: the policy of each name, its due time, and the current step of a CA replacement.
//!
//! Each name with a policy has a row with its due time, so due names are read as a range of an index. A rotation round writes these
//! rows from write events, so that writers of versions have no extra cost.

use coded::coded;
use uuid::Uuid;

use super::handle::Credentials;
use super::list::list;
use super::requester::{Requester, may};
use db::{
    BulkStatement, Column, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or,
    limit_of, page, with_limit,
};
use store::states::CredentialKind;

/// Maximum policies. All of them are compared to find the most specific one for each planned name.
pub const ROTATION_POLICIES_MAX: i64 = 1_000;

/// Maximum names that one call makes due.
pub const ROTATIONS_NOW_MAX: i64 = 10_000;

/// The rotation policy of a name or path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotationPolicyRow {
    /// A name, or a path that ends in `/*`, as written.
    pub path: String,
    /// The path in lower case.
    pub path_key: String,
    /// Age at which a value is rotated, s.
    pub every_s: Option<i64>,
    /// Remaining lifetime at which a certificate is rotated, s.
    pub before_expiry_s: Option<i64>,
    /// Remaining part of the lifetime at which a certificate is rotated, in percent.
    pub before_expiry_percent: Option<i64>,
    /// Time for which both certificates of a CA are trusted before the next step, s.
    pub overlap_s: i64,
    /// Name of the hook that must agree to a new value, or is notified about it.
    pub hook: Option<String>,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub set_at_us: i64,
    /// Actor that made the last change.
    pub set_by: String,
}

/// A policy whose names are still being planned.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanningPolicy {
    /// See [`RotationPolicyRow::path_key`].
    pub path_key: String,
    /// The name (lower case) up to which planning is done.
    pub planned_to: String,
    /// Whether the policy was removed. Its row is deleted once all names are planned without it.
    pub removed: bool,
    /// Time when the policy was set or removed, µs since 1970-01-01 UTC. Detects concurrent changes.
    pub set_at_us: i64,
}

coded! {
    /// The current step of a CA replacement.
    pub enum ChangeStep: "rotation step" {
        /// The replacement has not begun.
        None = 0 => "none",
        /// The replacement has begun. This step is stored before the new version is generated, so that the version is later
        /// recognized as part of the replacement.
        Begun = 1 => "begun",
        /// Both versions are trusted, and the old one signs.
        Trusted = 2 => "trusted",
        /// The new version signs. Certificates that the old version signed are being regenerated.
        Signs = 3 => "signs",
        /// All certificates of the CA are signed by the new version.
        Followed = 4 => "followed",
    }
}

/// A name that is due for rotation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DueRotation {
    /// The name in lower case.
    pub name_key: String,
    /// The version for which the rotation was planned.
    pub version: Uuid,
    /// The newest version.
    pub current: Option<Uuid>,
    /// The current step of a CA replacement.
    pub step: ChangeStep,
    /// Number of consecutive failures.
    pub failures: i64,
    /// The due time, µs since 1970-01-01 UTC.
    pub due_at_us: i64,
    /// See [`RotationPolicyRow::overlap_s`].
    pub overlap_s: i64,
    /// See [`RotationPolicyRow::hook`].
    pub hook: Option<String>,
}

/// The planned rotation of a name, for display.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedRotation {
    /// The name, with the capitalization in which it was first written.
    pub name: String,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Path of the policy that applies, in lower case.
    pub path_key: String,
    /// The due time, µs since 1970-01-01 UTC.
    pub due_at_us: i64,
    /// See [`DueRotation::step`].
    pub step: ChangeStep,
    /// Number of consecutive failures.
    pub failures: i64,
    /// Reason of the last failure.
    pub error: Option<String>,
    /// Whether the value was set and not generated, so that a new value cannot be generated.
    pub set_by_hand: bool,
}

/// The next step of a CA replacement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotationStep {
    /// The name in lower case.
    pub name_key: String,
    /// The newest version.
    pub version: Uuid,
    /// The next step.
    pub step: ChangeStep,
    /// Due time of the next step, µs since 1970-01-01 UTC.
    pub due_at_us: i64,
}

/// A failed rotation, with the time of the next attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RotationFailure {
    /// The name in lower case.
    pub name_key: String,
    /// The version that the rotation was planned for.
    pub version: Uuid,
    /// Error message of the failed attempt.
    pub error: String,
    /// Time of the next attempt, µs since 1970-01-01 UTC.
    pub due_at_us: i64,
}

/// SQL condition: the policy `q` covers a name.
macro_rules! reaches {
    ($name:literal) => {
        concat!(
            "q.removed = 0 AND (q.path_key = ",
            $name,
            " OR substr(",
            $name,
            ", 1, length(q.prefix)) = q.prefix)"
        )
    };
}

/// Plans rotations of the names ?1, if their type is one of ?2 and their version has changed since they were last planned. With
/// ?3, plans names whose version is unchanged too. A CA replacement in progress keeps its due time. Versions with a time to live
/// and deleted versions are never due. A time before expiry is capped at half of the lifetime: a new certificate would otherwise
/// be due immediately, again and again.
const PLAN: BulkStatement = db::bulk! {
    concat!(
        "-- credential_rotations_plan
INSERT INTO credential_rotations (name_key, path_key, version, base_at, not_after, due_at, step, asked, failures)
SELECT w.name_key, w.path_key, w.version, w.base_at, w.not_after,
       CASE WHEN w.ends_at IS NOT NULL THEN NULL WHEN w.by_age IS NULL THEN w.by_end WHEN w.by_end IS NULL OR w.by_age < w.by_end THEN w.by_age
            ELSE w.by_end END, 0, 0, 0
FROM (
    SELECT b.name_key, b.path_key, b.version, b.base_at, b.not_after, b.ends_at, b.base_at + p.every_s * 1000000 AS by_age,
           CASE WHEN p.before_s * 1000000 > (b.not_after - b.base_at) / 2 THEN b.not_after - (b.not_after - b.base_at) / 2
                WHEN p.before_s IS NOT NULL THEN b.not_after - p.before_s * 1000000
                ELSE b.not_after - (b.not_after - b.base_at) / 100 * p.before_percent END AS by_end
    FROM (
        SELECT c.name_key, c.current AS version, c.current_not_after AS not_after, c.current_ends_at AS ends_at,
               CASE WHEN o.not_after = c.current_not_after THEN o.base_at ELSE c.current_at END AS base_at,
               (SELECT q.path_key FROM credential_rotation_policies q WHERE ",
        reaches!("c.name_key"),
        " ORDER BY q.prefix IS NOT NULL, length(q.path_key) DESC LIMIT 1) AS path_key
        FROM credentials c LEFT JOIN credential_rotations o ON o.name_key = c.name_key
        WHERE c.name_key {among ?1 text} AND c.current IS NOT NULL AND c.kind {among ?2 text} AND (CAST(?3 AS BIGINT) = 1 OR o.version IS NULL OR o.version <> c.current OR o.due_at IS NULL
               OR c.current_ends_at IS NOT NULL)
    ) b JOIN credential_rotation_policies p ON p.path_key = b.path_key
) w WHERE 1 = 1
ON CONFLICT (name_key) DO UPDATE SET
    path_key = excluded.path_key, version = excluded.version, base_at = excluded.base_at, not_after = excluded.not_after,
    due_at = CASE WHEN credential_rotations.step <> 0
                    OR credential_rotations.asked = 1 AND credential_rotations.version = excluded.version
             THEN credential_rotations.due_at ELSE excluded.due_at END,
    asked = CASE WHEN credential_rotations.version = excluded.version THEN credential_rotations.asked ELSE 0 END,
    failures = CASE WHEN credential_rotations.version = excluded.version THEN credential_rotations.failures ELSE 0 END,
    error = CASE WHEN credential_rotations.version = excluded.version THEN credential_rotations.error END"
    )
};

/// Deletes the plans of those names of the list ?1 that are deleted, have a type other than ?2, or have no policy.
const UNPLAN: BulkStatement = db::bulk! {
    concat!(
        "-- credential_rotations_unplan
DELETE FROM credential_rotations WHERE name_key {among ?1 text} AND (NOT EXISTS (SELECT 1 FROM credentials c WHERE c.name_key = credential_rotations.name_key AND c.kind {among ?2 text})
    OR NOT EXISTS (SELECT 1 FROM credential_rotation_policies q WHERE ",
        reaches!("credential_rotations.name_key"),
        ")) RETURNING name_key, failures"
    )
};

/// Deletes the plans of destroyed names.
const GONE: BulkStatement = db::bulk! { (name_key text)
    "-- credential_rotations_gone
DELETE FROM credential_rotations WHERE name_key = {any name_key} RETURNING name_key, failures"
};

/// Names whose last rotation failed, but which have a new version since then.
const RECOVERED: BulkStatement = db::bulk! {
    "-- credential_rotations_healed
SELECT r.name_key FROM credential_rotations r JOIN credentials c ON c.name_key = r.name_key
WHERE r.name_key {among ?1 text} AND r.failures > 0 AND r.version <> c.current"
};

const NAMES: &str = "-- credential_rotation_names
SELECT name_key FROM credentials WHERE name_key > ?1 AND name_key >= ?2 AND name_key < ?3 ORDER BY name_key LIMIT ?4";

const DUE: &str = "-- credential_rotations_due
SELECT r.name_key, r.version, c.current, r.step, r.failures, r.due_at, p.overlap_s, p.hook
FROM credential_rotations r JOIN credential_rotation_policies p ON p.path_key = r.path_key AND p.removed = 0
JOIN credentials c ON c.name_key = r.name_key
WHERE r.due_at IS NOT NULL AND r.due_at <= ?1 ORDER BY r.due_at, r.name_key LIMIT ?2";

const LIST: &str = concat!(
    "-- credential_rotations
SELECT c.name, c.kind, r.path_key, r.due_at, r.step, r.failures, r.error,
       CASE WHEN v.parameters IS NULL THEN 1 ELSE 0 END, r.name_key
FROM credential_rotations r JOIN credentials c ON c.name_key = r.name_key
JOIN credential_versions v ON v.uuid = c.current
WHERE r.due_at IS NOT NULL AND (r.due_at, r.name_key) > (?1, ?2) AND r.name_key >= ?3 AND r.name_key < ?4 AND ",
    may!("1", "?5", "?6"),
    " ORDER BY r.due_at, r.name_key LIMIT ?7"
);

const NOW: &str = concat!(
    "-- credential_rotations_now
UPDATE credential_rotations SET due_at = ?1, asked = 1 WHERE name_key IN (
    SELECT c.name_key FROM credential_rotations c
    WHERE c.name_key >= ?2 AND c.name_key < ?3 AND c.step = 0
    AND EXISTS (SELECT 1 FROM credentials k WHERE k.name_key = c.name_key AND k.current_ends_at IS NULL) AND (c.due_at IS NULL OR c.due_at > ?1) AND ",
    may!("2", "?4", "?5"),
    " ORDER BY c.name_key LIMIT ?6)"
);

const FAIL: BulkStatement = db::bulk! { (name_key text, version uuid, error text, due_at bigint)
    "-- credential_rotations_fail
UPDATE credential_rotations SET failures = failures + 1, error = :error, due_at = :due_at, asked = 0
WHERE name_key = :name_key AND version = :version
RETURNING name_key, failures"
};

const STEP: BulkStatement = db::bulk! { (name_key text, version uuid, step bigint, due_at bigint)
    "-- credential_rotations_step
UPDATE credential_rotations SET version = :version, step = :step, due_at = :due_at, asked = 0, failures = 0,
  error = NULL WHERE name_key = :name_key"
};

macro_rules! policy_columns {
    () => {
        "path, path_key, every_s, before_s, before_percent, overlap_s, hook, set_at, set_by"
    };
}

const PUT: &str = "-- credential_rotation_policy_put
INSERT INTO credential_rotation_policies (path, path_key, prefix, every_s, before_s, before_percent, overlap_s, hook,
                                          planned_to, removed, set_at, set_by)
SELECT ?1, ?2, CAST(?3 AS TEXT), CAST(?4 AS BIGINT), CAST(?5 AS BIGINT), CAST(?6 AS BIGINT), CAST(?7 AS BIGINT),
       CAST(?8 AS TEXT), '', 0, CAST(?9 AS BIGINT), ?10
WHERE (SELECT count(*) FROM credential_rotation_policies WHERE path_key <> ?2) < ?11
ON CONFLICT (path_key) DO UPDATE SET path = excluded.path, every_s = excluded.every_s, before_s = excluded.before_s,
    before_percent = excluded.before_percent, overlap_s = excluded.overlap_s, hook = excluded.hook, planned_to = '',
    removed = 0, set_at = excluded.set_at, set_by = excluded.set_by";
const REMOVE: &str = "-- credential_rotation_policy_remove
UPDATE credential_rotation_policies SET removed = 1, planned_to = '', set_at = ?2, set_by = ?3
WHERE path_key = ?1 AND removed = 0";
const POLICIES: &str = concat!(
    "-- credential_rotation_policies\nSELECT ",
    policy_columns!(),
    " FROM (SELECT q.*, q.path_key AS name_key FROM credential_rotation_policies q) c
WHERE c.removed = 0 AND c.path_key > ?1 AND ",
    may!("1", "?2", "?3"),
    " ORDER BY c.path_key LIMIT ?4"
);
const PLANNING: &str = "-- credential_rotation_policies_planning
SELECT path_key, planned_to, removed, set_at FROM credential_rotation_policies
WHERE planned_to IS NOT NULL ORDER BY path_key LIMIT 1";
const PLANNED: &str = "-- credential_rotation_policy_planned
UPDATE credential_rotation_policies SET planned_to = CAST(?3 AS TEXT) WHERE path_key = ?1 AND set_at = ?2";
const FORGET: &str = "-- credential_rotation_policy_forget
DELETE FROM credential_rotation_policies WHERE path_key = ?1 AND set_at = ?2 AND removed = 1";
const USES: &str = "-- credential_rotation_policy_uses
SELECT path FROM credential_rotation_policies WHERE hook = ?1 AND removed = 0 ORDER BY path_key LIMIT 1";

const HOOKS_OF: BulkStatement = db::bulk! {
    "-- credential_rotation_hooks_of
SELECT r.name_key, p.hook FROM credential_rotations r
JOIN credential_rotation_policies p ON p.path_key = r.path_key AND p.removed = 0
WHERE p.hook IS NOT NULL AND r.name_key {among ?1 text}"
};

pub(crate) const MODULE_STATEMENTS: ModuleStatements = ModuleStatements {
    both: &[NAMES, DUE, LIST, NOW, PUT, REMOVE, POLICIES, PLANNING, PLANNED, FORGET, USES],
    sqlite: &[],
    postgres: &[],
    bulks: &[&PLAN, &UNPLAN, &RECOVERED, &HOOKS_OF, &FAIL, &STEP, &GONE],
    composed: Vec::new,
};

/// Returns the range of names that a path (lower case) covers: its first name, and the end, which is not part of it.
#[must_use]
pub fn rotation_range(path_key: &str) -> (String, String) {
    match path_key.strip_suffix('*') {
        // `0` is the character after the slash: an upper bound of all names below the path.
        Some(prefix) => (prefix.to_owned(), format!("{}0", prefix.trim_end_matches('/'))),
        // `!` sorts before every character that a name may contain.
        None => (path_key.to_owned(), format!("{path_key}!")),
    }
}

/// Selection of the names that [`plan_rotations`] plans.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlannedNames {
    /// Names whose current version is not planned yet.
    Changed,
    /// All names, even if they are already planned.
    All,
}

/// Plans rotations of the credentials with these names (lower case) and types. Deletes the plans of credentials that are deleted,
/// have another type or have no policy. Returns the names whose failed rotation is resolved: the credential has a new version, or
/// its plan was deleted. Uses three statements; none without names.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn plan_rotations(
    tx: &mut Tx,
    names: &[String],
    kinds: &[CredentialKind],
    planned: PlannedNames,
) -> Result<Vec<String>, StoreError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut recovered = Vec::new();
    for mut row in tx.rows(tx.text_of(&RECOVERED), vec![list(names)]).await? {
        recovered.push(row.text()?);
    }
    let kinds = serde_json::json!(kinds).to_string();
    let parameters =
        vec![list(names), kinds.as_str().into(), Value::Int((planned == PlannedNames::All).into())];
    tx.execute(tx.text_of(&PLAN), parameters).await?;
    recovered.extend(failed_names(tx.rows(tx.text_of(&UNPLAN), vec![list(names), kinds.into()]).await?)?);
    recovered.sort_unstable();
    recovered.dedup();
    Ok(recovered)
}

/// Deletes the plans of deleted names (lower case). Returns the names that had failures. Uses one statement.
pub(super) async fn delete_rotations(tx: &mut Tx, names: Vec<String>) -> Result<Vec<String>, StoreError> {
    failed_names(tx.bulk(&GONE, vec![Column::Text(names)]).await?)
}

/// Returns the names with failures. Each row has a name and its number of consecutive failures.
fn failed_names(rows: Vec<Row>) -> Result<Vec<String>, StoreError> {
    let mut failed = Vec::new();
    for mut row in rows {
        let name = row.text()?;
        if row.int()? > 0 {
            failed.push(name);
        }
    }
    Ok(failed)
}

/// Plans the next names of a changed policy, at most `most`: see [`plan_rotations`].
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn plan_rotation_policy(
    tx: &mut Tx,
    policy: &PlanningPolicy,
    kinds: &[CredentialKind],
    most: usize,
) -> Result<Vec<String>, StoreError> {
    let (from, before) = rotation_range(&policy.path_key);
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let parameters = vec![policy.planned_to.as_str().into(), from.into(), before.into(), limit.into()];
    let mut names = Vec::new();
    for mut row in tx.rows(NAMES, parameters).await? {
        names.push(row.text()?);
    }
    let recovered = plan_rotations(tx, &names, kinds, PlannedNames::All).await?;
    let last = names.last().filter(|_| names.len() == most).cloned();
    if last.is_none() && policy.removed {
        tx.execute(FORGET, vec![policy.path_key.as_str().into(), policy.set_at_us.into()]).await?;
    } else {
        let parameters = vec![policy.path_key.as_str().into(), policy.set_at_us.into(), last.into()];
        tx.execute(PLANNED, parameters).await?;
    }
    Ok(recovered)
}

/// Records failed rotations. Returns the names that failed for the first time. Uses one statement.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn fail_rotations(tx: &mut Tx, failed: &[RotationFailure]) -> Result<Vec<String>, StoreError> {
    let columns = vec![
        Column::Text(failed.iter().map(|one| one.name_key.clone()).collect()),
        Column::Uuid(failed.iter().map(|one| one.version).collect()),
        Column::Text(failed.iter().map(|one| one.error.clone()).collect()),
        Column::Int(failed.iter().map(|one| one.due_at_us).collect()),
    ];
    let mut first = Vec::new();
    for mut row in tx.bulk(&FAIL, columns).await? {
        let name = row.text()?;
        if row.int()? == 1 {
            first.push(name);
        }
    }
    Ok(first)
}

/// Records the next steps of CA replacements. Uses one statement.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn step_rotations(tx: &mut Tx, steps: &[RotationStep]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Text(steps.iter().map(|one| one.name_key.clone()).collect()),
        Column::Uuid(steps.iter().map(|one| one.version).collect()),
        Column::Int(steps.iter().map(|one| one.step.code()).collect()),
        Column::Int(steps.iter().map(|one| one.due_at_us).collect()),
    ];
    tx.bulk(&STEP, columns).await.map(drop)
}

/// Makes the rotations planned for a path (lower case) due now, if the caller may write the names and their rotation has not begun.
/// Returns their number, at most [`ROTATIONS_NOW_MAX`].
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn rotations_now(
    tx: &mut Tx,
    requester: &Requester,
    path_key: &str,
    now_us: i64,
) -> Result<u64, StoreError> {
    let (from, before) = rotation_range(path_key);
    let [everything, actor] = requester.name_access_parameters(path_key);
    let parameters =
        vec![now_us.into(), from.into(), before.into(), everything, actor, ROTATIONS_NOW_MAX.into()];
    tx.execute(NOW, parameters).await
}

/// Sets a policy, or replaces the policy of the same path. Returns false when [`ROTATION_POLICIES_MAX`] other policies exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn put_rotation_policy(tx: &mut Tx, policy: &RotationPolicyRow) -> Result<bool, StoreError> {
    let prefix = policy.path_key.strip_suffix('*').map(str::to_owned);
    let parameters = vec![
        policy.path.as_str().into(),
        policy.path_key.as_str().into(),
        prefix.into(),
        policy.every_s.into(),
        policy.before_expiry_s.into(),
        policy.before_expiry_percent.into(),
        policy.overlap_s.into(),
        policy.hook.clone().into(),
        policy.set_at_us.into(),
        policy.set_by.as_str().into(),
        ROTATION_POLICIES_MAX.into(),
    ];
    Ok(tx.execute(PUT, parameters).await? == 1)
}

/// Removes the policy of a path (lower case). Returns false when the path has none.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn remove_rotation_policy(
    tx: &mut Tx,
    path_key: &str,
    at_us: i64,
    by: &str,
) -> Result<bool, StoreError> {
    Ok(tx.execute(REMOVE, vec![path_key.into(), at_us.into(), by.into()]).await? == 1)
}

/// Returns the path of a policy that uses this hook, if any.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn rotation_policy_with_hook(tx: &mut Tx, hook: &str) -> Result<Option<String>, StoreError> {
    tx.row(USES, vec![hook.into()]).await?.map(|mut row| row.text()).transpose()
}

impl Credentials<'_> {
    /// Returns the policies at paths that the caller may read, sorted by path, after `after` (a path in lower case). The caller filters
    /// the rows by `Requester::lists`.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn rotation_policies(
        self,
        requester: &Requester,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<RotationPolicyRow>, StoreError> {
        const LISTING: &str = "credential-rotation-policies";
        let mut parameters = key_or(after, LISTING, &[Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        parameters.extend(requester.listing_parameters());
        let rows = self.0.rows(Cost::Walk, POLICIES, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, LISTING, |row| {
            let policy = policy_of(row)?;
            let key = vec![Value::Text(policy.path_key.clone())];
            Ok((policy, key))
        })
    }

    /// Returns the rotations planned below a path (lower case) that the caller may read, earliest first. The caller filters the rows by
    /// `Requester::lists`.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn rotations(
        self,
        requester: &Requester,
        path_key: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PlannedRotation>, StoreError> {
        const LISTING: &str = "credential-rotations";
        let mut parameters = key_or(after, LISTING, &[Value::Int(i64::MIN), Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        let (from, before) = rotation_range(path_key);
        parameters.extend([from.into(), before.into()]);
        parameters.extend(requester.listing_parameters());
        let rows = self.0.rows(Cost::Walk, LIST, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, LISTING, |mut row| {
            let planned = PlannedRotation {
                name: row.text()?,
                kind: row.named("credentials.kind")?,
                path_key: row.text()?,
                due_at_us: row.int()?,
                step: row.coded("credential_rotations.step")?,
                failures: row.int()?,
                error: row.maybe_text()?,
                set_by_hand: row.flag()?,
            };
            let key = vec![Value::Int(planned.due_at_us), Value::Text(row.text()?)];
            Ok((planned, key))
        })
    }

    /// Returns due rotations, the longest overdue first.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn rotations_due(self, now_us: i64, most: usize) -> Result<Vec<DueRotation>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.0.rows(Cost::Point, DUE, vec![now_us.into(), most.into()]).await?;
        let due = |mut row: Row| {
            Ok(DueRotation {
                name_key: row.text()?,
                version: row.uuid()?,
                current: row.maybe_uuid()?,
                step: row.coded("credential_rotations.step")?,
                failures: row.int()?,
                due_at_us: row.int()?,
                overlap_s: row.int()?,
                hook: row.maybe_text()?,
            })
        };
        rows.into_iter().map(due).collect()
    }

    /// Returns the hooks of the policies of these names (lower case), as pairs of name and hook. Uses one statement.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn rotation_hooks_of(self, names: &[String]) -> Result<Vec<(String, String)>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.0.rows(Cost::Point, HOOKS_OF.of(self.0), vec![list(names)]).await?;
        rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?))).collect()
    }

    /// Returns a policy whose names are still being planned, if any.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn policy_being_planned(self) -> Result<Option<PlanningPolicy>, StoreError> {
        let row = self.0.row(PLANNING, Vec::new()).await?;
        let planning = |mut row: Row| {
            Ok(PlanningPolicy {
                path_key: row.text()?,
                planned_to: row.text()?,
                removed: row.flag()?,
                set_at_us: row.int()?,
            })
        };
        row.map(planning).transpose()
    }
}

fn policy_of(mut row: Row) -> Result<RotationPolicyRow, StoreError> {
    Ok(RotationPolicyRow {
        path: row.text()?,
        path_key: row.text()?,
        every_s: row.maybe_int()?,
        before_expiry_s: row.maybe_int()?,
        before_expiry_percent: row.maybe_int()?,
        overlap_s: row.int()?,
        hook: row.maybe_text()?,
        set_at_us: row.int()?,
        set_by: row.text()?,
    })
}
