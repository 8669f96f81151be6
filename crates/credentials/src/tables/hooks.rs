//! Rotation hooks, and their pending notifications.

use uuid::Uuid;

use super::handle::Credentials;
use db::{BulkStatement, Column, Cost, ModuleStatements, Row, StoreError, Tx};
use store::states::CredentialKind;
use store::{SealedColumn, sealed_column};

/// Maximum hooks of a credential store. Operators create hooks one by one, and all hooks are read together.
pub const HOOKS_MAX: i64 = 1_000;

/// Maximum concurrent calls of one hook, so that an unavailable hook delays no other.
const CALLS_OF_ONE: i64 = 8;

/// The column with the encrypted secrets of hooks, for the rotation of the master key.
pub const SEALED_HOOKS: SealedColumn = sealed_column!("credential_hooks", "uuid" Uuid "uuid", "sealed");

/// A rotation hook, with its encrypted secret.
#[derive(Clone, Eq, PartialEq)]
pub struct HookRow {
    /// Id of the hook. The encryption of its secret is bound to this id.
    pub id: Uuid,
    /// Unique name of the hook.
    pub name: String,
    /// URL that receives the notifications.
    pub url: String,
    /// Whether the hook must agree before a value becomes current.
    pub before: bool,
    /// Whether the hook is notified after rotations.
    pub after: bool,
    /// Certificates to trust for this hook, in PEM. They replace the system's roots.
    pub roots: Option<String>,
    /// The encrypted secret.
    pub sealed: Vec<u8>,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub set_at_us: i64,
    /// Actor that made the last change.
    pub set_by: String,
}

/// A rotation that a hook has not acknowledged yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookCall {
    /// Row ID; 0 for a new call.
    pub id: i64,
    /// The hook's name.
    pub hook: String,
    /// The credential's name.
    pub name: String,
    /// Type of the credential, such as `password` or `certificate`.
    pub kind: CredentialKind,
    /// Id of the rotated version.
    pub version: Uuid,
    /// Creation time of the version, µs since 1970-01-01 UTC.
    pub at_us: i64,
    /// Number of failed calls.
    pub tries: i64,
}

/// Result of a hook call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HookOutcome {
    /// See [`HookCall::id`].
    pub id: i64,
    /// Time of the next attempt, µs since 1970-01-01 UTC; `None` if the call was acknowledged.
    pub next_at_us: Option<i64>,
}

const PUT: BulkStatement = db::bulk! {
    "-- credential_hook_put
INSERT INTO credential_hooks (uuid, name, url, ask_before, tell_after, roots, sealed, set_at, set_by)
SELECT ?1{|::uuid}, ?2{|::text}, ?3{|::text}, ?4{|::bigint}, ?5{|::bigint}, ?6{|::text}, ?7{|::bytea}, ?8{|::bigint}, ?9{|::text}
WHERE (SELECT count(*) FROM credential_hooks k WHERE k.name <> ?2) < ?10
ON CONFLICT (name) DO UPDATE SET uuid = excluded.uuid, url = excluded.url, ask_before = excluded.ask_before,
    tell_after = excluded.tell_after, roots = excluded.roots, sealed = excluded.sealed, set_at = excluded.set_at,
    set_by = excluded.set_by"
};
const DELETE: &str = "-- credential_hook_delete
DELETE FROM credential_hooks WHERE name = ?1";
const DELETE_CALLS: &str = "-- credential_hook_calls_forget
DELETE FROM credential_hook_calls WHERE hook = ?1";
const ALL: &str = "-- credential_hooks
SELECT uuid, name, url, ask_before, tell_after, roots, sealed, set_at, set_by FROM credential_hooks ORDER BY name LIMIT ?1";
const CALLS: BulkStatement = db::bulk! { (hook text, name text, kind text, version uuid, at bigint)
    "-- credential_hook_calls_insert
INSERT INTO credential_hook_calls (hook, name, kind, version, at, next_at, tries) VALUES (:hook, :name, :kind,
  :version, :at, :at, 0)
ON CONFLICT (version, hook) DO NOTHING"
};
/// The pending calls of each hook that are due by the time ?1. Costs a few index probes for each hook, regardless of the number of
/// pending calls. The first call of every hook comes before the second call of any hook.
const DUE: BulkStatement = db::bulk! {
    "-- credential_hook_calls_due
WITH RECURSIVE hooks (hook) AS (
    SELECT (SELECT min(f.hook) FROM credential_hook_calls f)
    UNION ALL
    SELECT (SELECT min(n.hook) FROM credential_hook_calls n WHERE n.hook > h.hook) FROM hooks h WHERE h.hook IS NOT NULL
)
SELECT d.id, d.hook, d.name, d.kind, d.version, d.at, d.tries FROM (
    SELECT c.*, row_number() OVER (PARTITION BY c.hook ORDER BY c.next_at, c.id) AS place FROM hooks h
    {JOIN credential_hook_calls c ON c.id IN|CROSS JOIN LATERAL} (
        SELECT {w.id|w.*} FROM credential_hook_calls w WHERE w.hook = h.hook AND w.next_at <= ?1
        ORDER BY w.next_at, w.id LIMIT ?3){| c}
) d ORDER BY d.place, d.next_at, d.id LIMIT ?2"
};
const SETTLED: BulkStatement = db::bulk! { (id bigint)
    "-- credential_hook_calls_told
DELETE FROM credential_hook_calls WHERE id = {any id}"
};
const RETRY: BulkStatement = db::bulk! { (id bigint, next_at bigint)
    "-- credential_hook_calls_again
UPDATE credential_hook_calls SET tries = tries + 1, next_at = :next_at WHERE id = :id"
};

pub(crate) const MODULE_STATEMENTS: ModuleStatements = ModuleStatements {
    both: &[DELETE, DELETE_CALLS, ALL, SEALED_HOOKS.page, SEALED_HOOKS.count, SEALED_HOOKS.heads],
    sqlite: &[],
    postgres: &[],
    bulks: &[&PUT, &DUE, &CALLS, &SETTLED, &RETRY, &SEALED_HOOKS.replace],
    composed: Vec::new,
};

/// Creates a hook, or replaces the hook of that name. Returns false when [`HOOKS_MAX`] other hooks exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn put_hook(tx: &mut Tx, hook: &HookRow) -> Result<bool, StoreError> {
    let parameters = vec![
        hook.id.into(),
        hook.name.as_str().into(),
        hook.url.as_str().into(),
        hook.before.into(),
        hook.after.into(),
        hook.roots.clone().into(),
        hook.sealed.as_slice().into(),
        hook.set_at_us.into(),
        hook.set_by.as_str().into(),
        HOOKS_MAX.into(),
    ];
    let text = tx.text_of(&PUT);
    Ok(tx.execute(text, parameters).await? == 1)
}

/// Deletes a hook and its pending notifications. Returns false if the hook does not exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn delete_hook(tx: &mut Tx, name: &str) -> Result<bool, StoreError> {
    tx.execute(DELETE_CALLS, vec![name.into()]).await?;
    Ok(tx.execute(DELETE, vec![name.into()]).await? == 1)
}

/// Queues hook notifications; each version once for each hook. Uses one statement.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn insert_hook_calls(tx: &mut Tx, calls: &[HookCall]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Text(calls.iter().map(|call| call.hook.clone()).collect()),
        Column::Text(calls.iter().map(|call| call.name.clone()).collect()),
        Column::Text(calls.iter().map(|call| call.kind.to_string()).collect()),
        Column::Uuid(calls.iter().map(|call| call.version).collect()),
        Column::Int(calls.iter().map(|call| call.at_us).collect()),
    ];
    tx.bulk(&CALLS, columns).await.map(drop)
}

/// Records the results of hook calls. Uses two statements.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn record_hook_outcomes(tx: &mut Tx, outcomes: &[HookOutcome]) -> Result<(), StoreError> {
    let delivered = outcomes.iter().filter(|outcome| outcome.next_at_us.is_none());
    tx.bulk(&SETTLED, vec![Column::Int(delivered.map(|outcome| outcome.id).collect())]).await?;
    let retries = || outcomes.iter().filter_map(|outcome| Some((outcome.id, outcome.next_at_us?)));
    let columns = vec![
        Column::Int(retries().map(|(id, _)| id).collect()),
        Column::Int(retries().map(|(_, at)| at).collect()),
    ];
    tx.bulk(&RETRY, columns).await.map(drop)
}

impl Credentials<'_> {
    /// Returns every hook, sorted by name.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn hooks(self) -> Result<Vec<HookRow>, StoreError> {
        let hook = |mut row: Row| {
            Ok(HookRow {
                id: row.uuid()?,
                name: row.text()?,
                url: row.text()?,
                before: row.flag()?,
                after: row.flag()?,
                roots: row.maybe_text()?,
                sealed: row.blob()?,
                set_at_us: row.int()?,
                set_by: row.text()?,
            })
        };
        self.0.rows(Cost::Point, ALL, vec![HOOKS_MAX.into()]).await?.into_iter().map(hook).collect()
    }

    /// Returns at most `limit` due hook notifications: at most 8 for each hook, the oldest ones.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn hook_calls_due(self, now_us: i64, limit: usize) -> Result<Vec<HookCall>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let call = |mut row: Row| {
            Ok(HookCall {
                id: row.int()?,
                hook: row.text()?,
                name: row.text()?,
                kind: row.named("credential_hook_calls.kind")?,
                version: row.uuid()?,
                at_us: row.int()?,
                tries: row.int()?,
            })
        };
        let parameters = vec![now_us.into(), limit.into(), CALLS_OF_ONE.into()];
        self.0.rows(Cost::Point, DUE.of(self.0), parameters).await?.into_iter().map(call).collect()
    }
}
