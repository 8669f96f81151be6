//! Storage of changes that wait for approval because they affect a profile that requires approval.

use coded::coded;
use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::{SealedColumn, sealed_column};
use uuid::Uuid;

store::handle! {
    /// Table of the changes that wait for approval.
    Changes
}

coded! {
    /// State of a change that needs approval.
    pub enum ChangeState: "state of a pending change" {
        /// The change waits for approvals.
        Open = 0 => "open",
        /// The change has all its approvals and is being applied.
        Approved = 1 => "approved",
        /// The change was rejected.
        Rejected = 2 => "rejected",
        /// The object was modified after the request, or the change no longer applies to it.
        Void = 3 => "void",
        /// The change was applied.
        Applied = 4 => "applied",
    }
}

/// Column with the encrypted changes, for the rotation of the master key.
pub const SEALED_CHANGES: SealedColumn = sealed_column!("pending_changes", "uuid" Uuid "uuid", "sealed");

/// A change to store until it is approved.
#[derive(Clone, Debug)]
pub struct NewChange {
    /// Identifier of the change.
    pub id: Uuid,
    /// The action, such as `profile.put`.
    pub action: String,
    /// The object of the change, such as `profile/vip`.
    pub object: String,
    /// Profiles that require approval and depend on the object, JSON.
    pub profiles: String,
    /// Number of people who must approve the change.
    pub needed: u32,
    /// Plan to approve, JSON.
    pub plan: String,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: [u8; 32],
    /// The change, encrypted for the column [`SEALED_CHANGES`].
    pub sealed: Vec<u8>,
    /// Actor that requested the change.
    pub requested_by: String,
    /// Time of the request in microseconds.
    pub requested_at_us: i64,
    /// Expiry time in microseconds.
    pub expires_at_us: i64,
}

/// A stored change with its state, decision and number of approvals.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeRow {
    /// Identifier of the change.
    pub id: Uuid,
    /// The action, such as `profile.put`.
    pub action: String,
    /// The object of the change, such as `profile/vip`.
    pub object: String,
    /// Profiles that require approval and depend on the object, JSON.
    pub profiles: String,
    /// Number of people who must approve the change.
    pub needed: u32,
    /// State of the change. An open change expires at `expires_at_us`.
    pub state: ChangeState,
    /// Plan to approve, JSON.
    pub plan: String,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: [u8; 32],
    /// The change, encrypted for the column [`SEALED_CHANGES`]; `None` once the change is rejected, void or applied.
    pub sealed: Option<Vec<u8>>,
    /// Actor that requested the change.
    pub requested_by: String,
    /// Time of the request in microseconds.
    pub requested_at_us: i64,
    /// Expiry time in microseconds.
    pub expires_at_us: i64,
    /// Actor that approved or rejected the change.
    pub decided_by: Option<String>,
    /// Time of the decision in microseconds.
    pub decided_at_us: Option<i64>,
    /// Note of the decision, or the reason why the change is void.
    pub note: Option<String>,
    /// Number of people who have approved this plan.
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

const INSERT: BulkStatement = db::bulk! {
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

/// Moves a change from state ?2 to ?3. ?7 determines whether the encrypted change is kept.
const DECIDE: &str = "-- pending_change_decide
UPDATE pending_changes SET state = ?3, decided_by = ?4, decided_at = ?5, note = ?6,
                           sealed = CASE WHEN CAST(?7 AS BIGINT) = 1 THEN sealed ELSE NULL END
WHERE uuid = ?1 AND state = ?2";

const TRIM: &str = db::with_codes!([ChangeState::{Open}] "-- pending_changes_trim
DELETE FROM pending_changes WHERE expires_at < ?1 AND state = {ChangeState::Open}");

pub(crate) const ALL: &[&str] =
    &[CHANGE, PAGE, DECIDE, TRIM, SEALED_CHANGES.page, SEALED_CHANGES.count, SEALED_CHANGES.heads];
pub(crate) const BULKS: &[&BulkStatement] = &[&INSERT, &SEALED_CHANGES.replace];

/// Stores a pending change. Returns false if `open_max` changes are already waiting.
///
/// # Errors
/// Fails if the database fails.
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

/// Returns the change with this identifier, read within the transaction; `None` if it does not exist.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn change_row(tx: &mut Tx, id: Uuid) -> Result<Option<ChangeRow>, StoreError> {
    tx.row(CHANGE, vec![id.into()]).await?.map(row_of).transpose()
}

/// A state transition of a pending change.
#[derive(Clone, Debug)]
pub struct ChangeDecision {
    /// Identifier of the change to decide.
    pub id: Uuid,
    /// State that the change must have. In any other state, nothing is changed.
    pub from: ChangeState,
    /// New state. Only an approved change keeps its encrypted contents.
    pub to: ChangeState,
    /// Actor that approved or rejected the change.
    pub by: String,
    /// Time of the decision in microseconds.
    pub at_us: i64,
    /// Note of the decision.
    pub note: Option<String>,
}

/// Applies a state transition. Returns false if the change is in another state.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn decide_change(tx: &mut Tx, step: ChangeDecision) -> Result<bool, StoreError> {
    let approved = i64::from(step.to == ChangeState::Approved);
    let parameters = vec![
        step.id.into(),
        step.from.code().into(),
        step.to.code().into(),
        step.by.into(),
        step.at_us.into(),
        step.note.map_or(Value::Null, Value::from),
        approved.into(),
    ];
    Ok(tx.execute(DECIDE, parameters).await? == 1)
}

impl Changes<'_> {
    /// Returns the change with this identifier; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn get(self, id: Uuid) -> Result<Option<ChangeRow>, StoreError> {
        self.0.row(CHANGE, vec![id.into()]).await?.map(row_of).transpose()
    }

    /// Returns a page of changes in a state, newest first. Expired open changes are omitted.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
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
        let (limit, row_limit) = limit_of(limit);
        let parameters = vec![state.code().into(), start.into(), now_us.into(), row_limit.into()];
        let rows = self.0.rows(Cost::Walk, PAGE, parameters).await?;
        page(rows, limit, "changes", |row| {
            let change = row_of(row)?;
            let key = vec![Value::Text(change.id.to_string())];
            Ok((change, key))
        })
    }

    /// Deletes open changes that expired before `before_us`. Returns their number.
    ///
    /// # Errors
    /// Fails if the database fails.
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
