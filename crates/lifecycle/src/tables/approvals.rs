//! Rows of approvals.

use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::states::ApprovalState;

store::handle! {
    /// Handle for approvals of runs by a second person.
    Approvals
}

/// An approval of a run, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRow {
    /// Row id of the approval.
    pub id: i64,
    /// Public id of the approval; appears in API paths.
    pub uuid: Uuid,
    /// Row id of the run.
    pub job: i64,
    /// Row id of the certificate.
    pub certificate: i64,
    /// State of the approval: 0 open, 1 approved, 2 rejected, 3 expired, 4 withdrawn, 5 void.
    pub state: ApprovalState,
    /// Reason why approval is needed.
    pub reason: String,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Time of the request, in µs since 1970.
    pub requested_at_us: i64,
    /// Time when the approval expires, in µs since 1970.
    pub expires_at_us: i64,
    /// Actor that approved or rejected the run; `system:approvals` if the approval expired. `None` without a decision.
    pub decided_by: Option<String>,
    /// Time when the approval was decided, expired, withdrawn or voided, in µs since 1970.
    pub decided_at_us: Option<i64>,
    /// Comment by the actor in `decided_by`.
    pub note: Option<String>,
    /// The plan as JSON. `None` for approvals that were created before Bulla stored plans.
    pub plan: Option<String>,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: Option<[u8; 32]>,
    /// Id of the previous approval of the same certificate.
    pub previous: Option<Uuid>,
    /// Actors that cannot approve the plan: the requester of the run, and actors that changed the plan.
    pub barred: Vec<String>,
    /// Number of people who must approve the plan.
    pub needed: u32,
}

/// An approval of a run, with its certificate and the number of approvers so far.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalView {
    /// The approval, as stored.
    pub approval: ApprovalRow,
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Profile of the certificate.
    pub profile: String,
    /// Creation time of the run, in µs since 1970.
    pub job_created_at_us: i64,
    /// Number of people who approved the plan.
    pub given: u32,
}

/// Decision on an open approval.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Row id of the approval.
    pub id: i64,
    /// State after the decision.
    pub state: ApprovalState,
    /// Actor that approves or rejects the run; `system:approvals` for an expired approval.
    pub by: String,
    /// Time of the decision, in µs since 1970.
    pub at_us: i64,
    /// Comment by the actor in `by`.
    pub note: Option<String>,
}

macro_rules! approval_columns {
    () => {
        "a.id, a.uuid, a.job_id, a.certificate_id, a.state, a.reason, a.requested_by, a.requested_at, a.expires_at, \
         a.decided_by, a.decided_at, a.note, a.plan, a.plan_sha256, a.previous, a.barred, a.needed"
    };
}
macro_rules! given {
    () => {
        "(SELECT count(*) FROM approval_votes v WHERE v.subject = a.uuid AND v.plan_sha256 = a.plan_sha256)"
    };
}
const APPROVAL: &str = concat!(
    "-- approval\nSELECT ",
    approval_columns!(),
    ", m.uuid, m.name, m.profile, j.created_at, ",
    given!(),
    " FROM approvals a JOIN managed_certificates m ON m.id = a.certificate_id \
     JOIN jobs j ON j.id = a.job_id WHERE a.uuid = ?1"
);
const APPROVALS: &str = concat!(
    "-- approvals\nSELECT ",
    approval_columns!(),
    ", m.uuid, m.name, m.profile, j.created_at, ",
    given!(),
    " FROM (SELECT * FROM approvals WHERE state = ?1 AND id < ?2 \
     ORDER BY id DESC LIMIT ?3) a JOIN managed_certificates m ON m.id = a.certificate_id \
     JOIN jobs j ON j.id = a.job_id ORDER BY a.id DESC"
);
macro_rules! with_states {
    ($text:expr) => {
        db::with_codes!([ApprovalState::{Open, Approved, Withdrawn, Void}] $text)
    };
}

const APPROVALS_EXPIRED: &str = with_states!(concat!(
    "-- approvals_expired\nSELECT ",
    approval_columns!(),
    " FROM approvals a WHERE a.state = {ApprovalState::Open} AND a.expires_at <= ?1 ORDER BY a.expires_at, a.id LIMIT ?2"
));
const APPROVAL_GIVEN: &str = with_states!(concat!(
    "-- approval_given\nSELECT ",
    approval_columns!(),
    " FROM approvals a WHERE a.job_id = ?1 AND a.state = {ApprovalState::Approved} ORDER BY a.id DESC LIMIT 1"
));
const APPROVALS_BY_UUID: BulkStatement = db::bulk! { (uuid uuid)
    concat!("-- approvals_by_uuid\nSELECT ", approval_columns!(), " FROM approvals a WHERE a.uuid = :uuid")
};
const APPROVALS_INSERT: BulkStatement = db::bulk! {
    (uuid uuid, job bigint, certificate bigint, reason text, requested_by text, requested_at bigint,
     expires_at bigint, plan text, plan_sha256 bytea, previous uuid, barred text, needed bigint)
    with_states!("-- approvals_insert
INSERT INTO approvals (uuid, job_id, certificate_id, state, reason, requested_by, requested_at, expires_at, plan,
  plan_sha256, previous, barred, needed)
VALUES (:uuid, :job, :certificate, {ApprovalState::Open}, :reason, :requested_by, :requested_at, :expires_at, :plan,
  :plan_sha256, :previous, :barred, :needed)
ON CONFLICT DO NOTHING")
};
/// Stores decisions on open approvals, by row id.
const APPROVALS_DECIDE: BulkStatement = db::bulk! { (id bigint, state bigint, by text, at bigint, note text)
    with_states!("-- approvals_decide
UPDATE approvals SET state = :state, decided_by = :by, decided_at = :at, note = :note
WHERE id = :id AND state = {ApprovalState::Open} RETURNING id")
};
/// Withdraws the open approvals of these runs.
const APPROVALS_WITHDRAW: BulkStatement = db::bulk! { (job bigint, at bigint)
    with_states!("-- approvals_withdraw
UPDATE approvals SET state = {ApprovalState::Withdrawn}, decided_at = :at
WHERE job_id = :job AND state = {ApprovalState::Open}")
};

/// Voids the open and approved approvals of these runs.
const APPROVALS_VOID: BulkStatement = db::bulk! { (job bigint, at bigint)
    with_states!("-- approvals_void
UPDATE approvals SET state = {ApprovalState::Void}, decided_at = coalesce(decided_at, :at)
WHERE job_id = :job AND state IN ({ApprovalState::Open}, {ApprovalState::Approved})")
};
/// Open and approved approvals of these runs.
const APPROVALS_ACTIVE: BulkStatement = db::bulk! { (job bigint)
    with_states!(concat!("-- approvals_standing\nSELECT ", approval_columns!(), " FROM approvals a
WHERE a.job_id = :job AND a.state IN ({ApprovalState::Open}, {ApprovalState::Approved})"))
};
/// The newest approval of each certificate.
const APPROVALS_NEWEST: BulkStatement = db::bulk! { (certificate bigint)
    concat!("-- approvals_newest\nSELECT ", approval_columns!(), " FROM approvals a
WHERE a.id = (SELECT b.id FROM approvals b WHERE b.certificate_id = :certificate ORDER BY b.id DESC LIMIT 1)")
};
/// Open approvals in row order.
const APPROVALS_OPEN_AFTER: &str = with_states!(concat!(
    "-- approvals_open_after\nSELECT ",
    approval_columns!(),
    " FROM approvals a WHERE a.state = {ApprovalState::Open} AND a.id > ?1 ORDER BY a.id LIMIT ?2"
));
const CHANGES_NOTE: BulkStatement = db::bulk! { (certificate bigint, actor text, at bigint)
    "-- plan_changes_note
INSERT INTO plan_changes (certificate_id, actor, changed_at) VALUES (:certificate, :actor, :at) ON CONFLICT DO NOTHING"
};
const CHANGES_OF: BulkStatement = db::bulk! { (certificate bigint)
    "-- plan_changes_of
SELECT certificate_id, actor FROM plan_changes WHERE certificate_id = :certificate"
};
const CHANGES_CLEAR: BulkStatement = db::bulk! { (certificate bigint)
    "-- plan_changes_clear
DELETE FROM plan_changes WHERE certificate_id = :certificate"
};
const PLAN_PROFILES: BulkStatement = db::bulk! { (name text)
    "-- plan_profiles
SELECT name, revision, body FROM profiles WHERE name = :name"
};
const PLAN_ISSUERS: BulkStatement = db::bulk! { (name text)
    "-- plan_issuers
SELECT name, revision, config FROM configured_issuers WHERE name = :name"
};
const PLAN_TARGETS: BulkStatement = db::bulk! { (target uuid)
    "-- plan_targets
SELECT uuid, revision, config FROM deploy_targets WHERE uuid = :target"
};
/// Profiles in the list that have certificates from an issuer.
const PROFILES_OF_ISSUER: BulkStatement = db::bulk! { (profile text, issuer text)
    "-- profiles_of_issuer
SELECT p.name FROM profiles p
WHERE p.name = :profile AND EXISTS (SELECT 1 FROM managed_certificates m WHERE m.profile = :profile AND m.issuer = :issuer)"
};
/// Profiles in the list that have certificates for a target.
const PROFILES_OF_TARGET: BulkStatement = db::bulk! { (profile text, pattern text)
    "-- profiles_of_target
SELECT p.name FROM profiles p
WHERE p.name = :profile AND EXISTS (SELECT 1 FROM managed_certificates m WHERE m.profile = :profile AND m.targets LIKE :pattern)"
};

pub(crate) const ALL: &[&str] =
    &[APPROVAL, APPROVALS, APPROVALS_EXPIRED, APPROVALS_OPEN_AFTER, APPROVAL_GIVEN];
pub(crate) const BULKS: &[&BulkStatement] = &[
    &APPROVALS_BY_UUID,
    &APPROVALS_INSERT,
    &APPROVALS_DECIDE,
    &APPROVALS_WITHDRAW,
    &APPROVALS_VOID,
    &APPROVALS_ACTIVE,
    &APPROVALS_NEWEST,
    &CHANGES_NOTE,
    &CHANGES_OF,
    &CHANGES_CLEAR,
    &PLAN_PROFILES,
    &PLAN_ISSUERS,
    &PLAN_TARGETS,
    &PROFILES_OF_ISSUER,
    &PROFILES_OF_TARGET,
];

/// Stores requests for approval. Skips a run that already has one.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_approvals(tx: &mut Tx, new: &[ApprovalRow]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(new.iter().map(|one| one.uuid).collect()),
        Column::Int(new.iter().map(|one| one.job).collect()),
        Column::Int(new.iter().map(|one| one.certificate).collect()),
        Column::Text(new.iter().map(|one| one.reason.clone()).collect()),
        Column::Text(new.iter().map(|one| one.requested_by.clone()).collect()),
        Column::Int(new.iter().map(|one| one.requested_at_us).collect()),
        Column::Int(new.iter().map(|one| one.expires_at_us).collect()),
        Column::MaybeText(new.iter().map(|one| one.plan.clone()).collect()),
        Column::MaybeBlob(new.iter().map(|one| one.plan_sha256.map(|hash| hash.to_vec())).collect()),
        Column::MaybeUuid(new.iter().map(|one| one.previous).collect()),
        Column::Text(new.iter().map(|one| crate::managed::json(&one.barred)).collect()),
        Column::Int(new.iter().map(|one| i64::from(one.needed)).collect()),
    ];
    tx.bulk(&APPROVALS_INSERT, columns).await.map(drop)
}

/// Returns approvals by id, in no particular order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn approvals_by_uuids(tx: &mut Tx, ids: Vec<Uuid>) -> Result<Vec<ApprovalRow>, StoreError> {
    let rows = tx.bulk(&APPROVALS_BY_UUID, vec![Column::Uuid(ids)]).await?;
    rows.into_iter().map(|mut row| approval_row(&mut row)).collect()
}

/// Returns open approvals that have expired.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn expired_approvals(tx: &mut Tx, now_us: i64, limit: i64) -> Result<Vec<ApprovalRow>, StoreError> {
    let rows = tx.rows(APPROVALS_EXPIRED, vec![now_us.into(), limit.into()]).await?;
    rows.into_iter().map(|mut row| approval_row(&mut row)).collect()
}

/// Decides open approvals. Returns the row ids of the approvals that were open.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn decide_approvals(tx: &mut Tx, decisions: &[Decision]) -> Result<Vec<i64>, StoreError> {
    let columns = vec![
        Column::Int(decisions.iter().map(|one| one.id).collect()),
        Column::Int(decisions.iter().map(|one| one.state.code()).collect()),
        Column::Text(decisions.iter().map(|one| one.by.clone()).collect()),
        Column::Int(decisions.iter().map(|one| one.at_us).collect()),
        Column::MaybeText(decisions.iter().map(|one| one.note.clone()).collect()),
    ];
    tx.bulk(&APPROVALS_DECIDE, columns).await?.into_iter().map(|mut row| row.int()).collect()
}

/// Withdraws the open approvals of runs that ended for another reason.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn withdraw_approvals(tx: &mut Tx, jobs: Vec<i64>, at_us: i64) -> Result<(), StoreError> {
    let at = vec![at_us; jobs.len()];
    tx.bulk(&APPROVALS_WITHDRAW, vec![Column::Int(jobs), Column::Int(at)]).await.map(drop)
}

/// Voids the open and approved approvals of these runs, because their plan changed.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn void_approvals(tx: &mut Tx, jobs: Vec<i64>, at_us: i64) -> Result<(), StoreError> {
    let at = vec![at_us; jobs.len()];
    tx.bulk(&APPROVALS_VOID, vec![Column::Int(jobs), Column::Int(at)]).await.map(drop)
}

/// Returns the open and approved approvals of these runs, in no particular order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn active_approvals(tx: &mut Tx, jobs: Vec<i64>) -> Result<Vec<ApprovalRow>, StoreError> {
    let rows = tx.bulk(&APPROVALS_ACTIVE, vec![Column::Int(jobs)]).await?;
    rows.into_iter().map(|mut row| approval_row(&mut row)).collect()
}

/// Returns the newest approval of each of these certificates, in no particular order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn newest_approvals(tx: &mut Tx, certificates: Vec<i64>) -> Result<Vec<ApprovalRow>, StoreError> {
    let rows = tx.bulk(&APPROVALS_NEWEST, vec![Column::Int(certificates)]).await?;
    rows.into_iter().map(|mut row| approval_row(&mut row)).collect()
}

/// Returns open approvals in row order, starting after the row `after`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn open_approvals(tx: &mut Tx, after: i64, limit: i64) -> Result<Vec<ApprovalRow>, StoreError> {
    let rows = tx.rows(APPROVALS_OPEN_AFTER, vec![after.into(), limit.into()]).await?;
    rows.into_iter().map(|mut row| approval_row(&mut row)).collect()
}

/// Records which actor changed the plan of which certificate.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn note_plan_changes(tx: &mut Tx, changes: &[(i64, String)], at_us: i64) -> Result<(), StoreError> {
    let columns = vec![
        Column::Int(changes.iter().map(|change| change.0).collect()),
        Column::Text(changes.iter().map(|change| change.1.clone()).collect()),
        Column::Int(vec![at_us; changes.len()]),
    ];
    tx.bulk(&CHANGES_NOTE, columns).await.map(drop)
}

/// Returns the actors that changed the plans of these certificates since their last version, as pairs of certificate and actor in
/// no particular order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn plan_change_actors(
    tx: &mut Tx,
    certificates: Vec<i64>,
) -> Result<Vec<(i64, String)>, StoreError> {
    let rows = tx.bulk(&CHANGES_OF, vec![Column::Int(certificates)]).await?;
    rows.into_iter().map(|mut row| Ok((row.int()?, row.text()?))).collect()
}

/// Deletes the records of plan changes of these certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn clear_plan_changes(tx: &mut Tx, certificates: Vec<i64>) -> Result<(), StoreError> {
    tx.bulk(&CHANGES_CLEAR, vec![Column::Int(certificates)]).await.map(drop)
}

/// A stored document that a plan refers to: a profile, an issuer or a target.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanDocument<K> {
    /// Name of the profile or issuer, or id of the target.
    pub key: K,
    /// Revision of the document.
    pub revision: i64,
    /// Text of the document.
    pub body: String,
}

/// Returns the current profiles with these names.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn plan_profiles(tx: &mut Tx, names: Vec<String>) -> Result<Vec<PlanDocument<String>>, StoreError> {
    let rows = tx.bulk(&PLAN_PROFILES, vec![Column::Text(names)]).await?;
    rows.into_iter().map(|mut row| document(row.text()?, &mut row)).collect()
}

/// Returns the current configured issuers with these names.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn plan_issuers(tx: &mut Tx, names: Vec<String>) -> Result<Vec<PlanDocument<String>>, StoreError> {
    let rows = tx.bulk(&PLAN_ISSUERS, vec![Column::Text(names)]).await?;
    rows.into_iter().map(|mut row| document(row.text()?, &mut row)).collect()
}

/// Returns the current targets with these ids.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn plan_targets(tx: &mut Tx, targets: Vec<Uuid>) -> Result<Vec<PlanDocument<Uuid>>, StoreError> {
    let rows = tx.bulk(&PLAN_TARGETS, vec![Column::Uuid(targets)]).await?;
    rows.into_iter().map(|mut row| document(row.uuid()?, &mut row)).collect()
}

/// Returns the given profiles that have certificates from this issuer.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn profiles_of_issuer(
    tx: &mut Tx,
    profiles: Vec<String>,
    issuer: &str,
) -> Result<Vec<String>, StoreError> {
    let issuers = vec![issuer.to_owned(); profiles.len()];
    let rows = tx.bulk(&PROFILES_OF_ISSUER, vec![Column::Text(profiles), Column::Text(issuers)]).await?;
    rows.into_iter().map(|mut row| row.text()).collect()
}

/// Returns the given profiles that have certificates for this target.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn profiles_of_target(
    tx: &mut Tx,
    profiles: Vec<String>,
    target: Uuid,
) -> Result<Vec<String>, StoreError> {
    let patterns = vec![format!("%{target}%"); profiles.len()];
    let rows = tx.bulk(&PROFILES_OF_TARGET, vec![Column::Text(profiles), Column::Text(patterns)]).await?;
    rows.into_iter().map(|mut row| row.text()).collect()
}

fn document<K>(key: K, row: &mut Row) -> Result<PlanDocument<K>, StoreError> {
    Ok(PlanDocument { key, revision: row.int()?, body: row.text()? })
}

impl Approvals<'_> {
    /// Returns an approval by id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<ApprovalView>, StoreError> {
        self.0.row(APPROVAL, vec![id.into()]).await?.map(approval_view).transpose()
    }

    /// Returns the approval of a run, if it was granted.
    ///
    /// # Errors
    /// Database errors.
    pub async fn granted_approval_of(self, job: i64) -> Result<Option<ApprovalRow>, StoreError> {
        self.0.row(APPROVAL_GIVEN, vec![job.into()]).await?.map(|mut row| approval_row(&mut row)).transpose()
    }

    /// Returns a page of approvals in a state, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], and other database errors.
    pub async fn page(
        self,
        state: ApprovalState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ApprovalView>, StoreError> {
        let mut parameters: Vec<Value> = vec![state.code().into()];
        parameters.extend(key_or(after, "approvals", &[Value::Int(i64::MAX)])?);
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, APPROVALS, parameters).await?;
        page(rows, limit, "approvals", |row| {
            let view = approval_view(row)?;
            let key = vec![view.approval.id.into()];
            Ok((view, key))
        })
    }
}

fn approval_row(row: &mut Row) -> Result<ApprovalRow, StoreError> {
    Ok(ApprovalRow {
        id: row.int()?,
        uuid: row.uuid()?,
        job: row.int()?,
        certificate: row.int()?,
        state: row.coded("approvals.state")?,
        reason: row.text()?,
        requested_by: row.text()?,
        requested_at_us: row.int()?,
        expires_at_us: row.int()?,
        decided_by: row.maybe_text()?,
        decided_at_us: row.maybe_int()?,
        note: row.maybe_text()?,
        plan: row.maybe_text()?,
        plan_sha256: row.maybe_hash()?,
        previous: row.maybe_uuid()?,
        barred: serde_json::from_str(&row.text()?)
            .map_err(|error| StoreError::Corrupt(format!("approvals.barred: {error}")))?,
        needed: u32::try_from(row.int()?).unwrap_or(u32::MAX),
    })
}

fn approval_view(mut row: Row) -> Result<ApprovalView, StoreError> {
    Ok(ApprovalView {
        approval: approval_row(&mut row)?,
        certificate: row.uuid()?,
        name: row.text()?,
        profile: row.text()?,
        job_created_at_us: row.int()?,
        given: u32::try_from(row.int()?).unwrap_or(u32::MAX),
    })
}
