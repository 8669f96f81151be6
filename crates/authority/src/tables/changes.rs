//! Changes that wait for approval because a profile that requires approval depends on what they change.

use coded::coded;
use db::{Bulk, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::{SealedColumn, sealed_column};
use uuid::Uuid;

store::handle! {
    /// Changes that wait for approval.
    Changes
}

coded! {
    /// The state of a pending change.
    pub enum ChangeState: "state of a pending change" {
        /// The change waits for approvals.
        Open = 0 => "open",
        /// It has its approvals and is being applied.
        Approved = 1 => "approved",
        /// The change was rejected.
        Rejected = 2 => "rejected",
        /// The object changed after approval was asked for, or the change no longer fits it.
        Void = 3 => "void",
        /// The change was applied.
        Applied = 4 => "applied",
    }
}

/// The changes themselves, for the rotation of the master key.
pub const SEALED_CHANGES: SealedColumn = sealed_column!("pending_changes", "uuid" Uuid "uuid", "sealed");

/// A change that is about to wait.
#[derive(Clone, Debug)]
pub struct NewChange {
    /// Its identity.
    pub id: Uuid,
    /// The action, as in the audit log: `profile.put`.
    pub action: String,
    /// The object of the change: `profile/vip`.
    pub object: String,
    /// The profiles that require approval and depend on the object, JSON.
    pub profiles: String,
    /// How many people must approve it.
    pub needed: u32,
    /// The plan, JSON.
    pub plan: String,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: [u8; 32],
    /// The change, sealed to [`SEALED_CHANGES`].
    pub sealed: Vec<u8>,
    /// Actor that requested it.
    pub requested_by: String,
    /// Time of the request, µs.
    pub requested_at_us: i64,
    /// Expiry, µs.
    pub expires_at_us: i64,
}

/// A pending change as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeRow {
    /// See [`NewChange::id`].
    pub id: Uuid,
    /// See [`NewChange::action`].
    pub action: String,
    /// See [`NewChange::object`].
    pub object: String,
    /// See [`NewChange::profiles`].
    pub profiles: String,
    /// See [`NewChange::needed`].
    pub needed: u32,
    /// Its state. An open one whose time is over has lapsed.
    pub state: ChangeState,
    /// See [`NewChange::plan`].
    pub plan: String,
    /// See [`NewChange::plan_sha256`].
    pub plan_sha256: [u8; 32],
    /// See [`NewChange::sealed`]; `None` once the change is decided or expired.
    pub sealed: Option<Vec<u8>>,
    /// See [`NewChange::requested_by`].
    pub requested_by: String,
    /// See [`NewChange::requested_at_us`].
    pub requested_at_us: i64,
    /// See [`NewChange::expires_at_us`].
    pub expires_at_us: i64,
    /// Actor that decided.
    pub decided_by: Option<String>,
    /// When, µs.
    pub decided_at_us: Option<i64>,
    /// The note of the decision, or why the change is void.
    pub note: Option<String>,
    /// People who approved this plan.
    pub given: u32,
}

macro_rules! select {
    ($name:literal $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT uuid, action, object, profiles, needed, state, plan, plan_sha256, sealed, requested_by, requested_at, \
             expires_at, decided_by, decided_at, note, (SELECT count(*) FROM approval_votes v WHERE v.subject = c.uuid \
             AND v.plan_sha256 = c.plan_sha256) FROM pending_changes c ",
            $rest
        )
    };
}

const CHANGE: &str = select!("pending_change" "WHERE uuid = ?1");
const PAGE: &str = db::with_codes!([ChangeState::{Open}] select!("pending_changes" "WHERE state = ?1 \
    AND (state <> {ChangeState::Open} OR expires_at > ?3) AND uuid < ?2 ORDER BY uuid DESC LIMIT ?4"));

const INSERT: Bulk = db::bulk! {
    (uuid uuid, action text, object text, profiles text, needed bigint, plan text, plan_sha256 bytea, sealed bytea,
     requested_by text, requested_at bigint, expires_at bigint, open_max bigint)
    db::with_codes!([ChangeState::{Open}] "-- pending_change_insert
INSERT INTO pending_changes (uuid, action, object, profiles, needed, state, plan, plan_sha256, sealed, requested_by,
  requested_at, expires_at)
SELECT :uuid, :action, :object, :profiles, :needed, {ChangeState::Open}, :plan, :plan_sha256, :sealed, :requested_by,
  :requested_at, :expires_at
WHERE (SELECT count(*) FROM pending_changes WHERE state = {ChangeState::Open} AND expires_at > :requested_at) < :open_max
RETURNING needed")
};

/// Moves a change from state ?2 to ?3; ?7 tells whether the change itself is kept.
const DECIDE: &str = "-- pending_change_decide
UPDATE pending_changes SET state = ?3, decided_by = ?4, decided_at = ?5, note = ?6,
                           sealed = CASE WHEN CAST(?7 AS BIGINT) = 1 THEN sealed ELSE NULL END
WHERE uuid = ?1 AND state = ?2";

const TRIM: &str = db::with_codes!([ChangeState::{Open}] "-- pending_changes_trim
DELETE FROM pending_changes WHERE expires_at < ?1 AND state = {ChangeState::Open}");

pub(crate) const ALL: &[&str] =
    &[CHANGE, PAGE, DECIDE, TRIM, SEALED_CHANGES.page, SEALED_CHANGES.count, SEALED_CHANGES.heads];
pub(crate) const BULKS: &[&Bulk] = &[&INSERT, &SEALED_CHANGES.replace];

/// Stores a pending change; false while `open_max` others wait.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn insert_change(tx: &mut Tx, new: NewChange, open_max: u32) -> Result<bool, StoreError> {
    let columns = vec![
        Column::Uuid(vec![new.id]),
        Column::Text(vec![new.action]),
        Column::Text(vec![new.object]),
        Column::Text(vec![new.profiles]),
        Column::Int(vec![i64::from(new.needed)]),
        Column::Text(vec![new.plan]),
        Column::Blob(vec![new.plan_sha256.to_vec()]),
        Column::Blob(vec![new.sealed]),
        Column::Text(vec![new.requested_by]),
        Column::Int(vec![new.requested_at_us]),
        Column::Int(vec![new.expires_at_us]),
        Column::Int(vec![i64::from(open_max)]),
    ];
    Ok(tx.bulk(&INSERT, columns).await?.len() == 1)
}

/// A pending change as the transaction sees it.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn change_row(tx: &mut Tx, id: Uuid) -> Result<Option<ChangeRow>, StoreError> {
    tx.row(CHANGE, vec![id.into()]).await?.map(row_of).transpose()
}

/// A step of a pending change.
#[derive(Clone, Debug)]
pub struct ChangeDecision {
    /// Which.
    pub id: Uuid,
    /// The present state.
    pub from: ChangeState,
    /// The state it gets. Only an approved change keeps what it will do.
    pub to: ChangeState,
    /// Actor that decided.
    pub by: String,
    /// When, µs.
    pub at_us: i64,
    /// A note.
    pub note: Option<String>,
}

/// Takes a step; false when the change is in another state.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn decide_change(tx: &mut Tx, step: ChangeDecision) -> Result<bool, StoreError> {
    let kept = i64::from(step.to == ChangeState::Approved);
    let parameters = vec![
        step.id.into(),
        step.from.code().into(),
        step.to.code().into(),
        step.by.into(),
        step.at_us.into(),
        step.note.map_or(Value::Null, Value::from),
        kept.into(),
    ];
    Ok(tx.execute(DECIDE, parameters).await? == 1)
}

impl Changes<'_> {
    /// A pending change.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn get(self, id: Uuid) -> Result<Option<ChangeRow>, StoreError> {
        self.0.row(CHANGE, vec![id.into()]).await?.map(row_of).transpose()
    }

    /// A page of changes in a state, the newest first. Open ones that lapsed are left out.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn page(
        self,
        state: ChangeState,
        now_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ChangeRow>, StoreError> {
        let start = key_or(after, "changes", &[Value::Text(Uuid::max().to_string())])?;
        let Some(Value::Text(start)) = start.into_iter().next() else { return Err(StoreError::BadCursor) };
        let start: Uuid = start.parse().map_err(|_| StoreError::BadCursor)?;
        let (limit, ask) = limit_of(limit);
        let parameters = vec![state.code().into(), start.into(), now_us.into(), ask.into()];
        let rows = self.0.rows(Cost::Walk, PAGE, parameters).await?;
        page(rows, limit, "changes", |row| {
            let change = row_of(row)?;
            let key = vec![Value::Text(change.id.to_string())];
            Ok((change, key))
        })
    }

    /// Deletes open changes that lapsed before `before_us`; returns how many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn trim(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(TRIM, vec![before_us.into()]).await
    }
}

fn count(row: &mut Row) -> Result<u32, StoreError> {
    Ok(u32::try_from(row.int()?).unwrap_or(u32::MAX))
}

fn row_of(mut row: Row) -> Result<ChangeRow, StoreError> {
    Ok(ChangeRow {
        id: row.uuid()?,
        action: row.text()?,
        object: row.text()?,
        profiles: row.text()?,
        needed: count(&mut row)?,
        state: row.coded("pending_changes.state")?,
        plan: row.text()?,
        plan_sha256: row.hash()?,
        sealed: row.maybe_blob()?,
        requested_by: row.text()?,
        requested_at_us: row.int()?,
        expires_at_us: row.int()?,
        decided_by: row.maybe_text()?,
        decided_at_us: row.maybe_int()?,
        note: row.maybe_text()?,
        given: count(&mut row)?,
    })
}
