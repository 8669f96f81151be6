//! Runs of issuance, renewal, deployment and revocation. This table is the schedule: a run is stored with its start time, and
//! becomes due when that time is reached.

use futures_util::FutureExt;
use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of, page};
use store::KeyRow;
use store::states::{Consent, DeploymentState, JobKind, JobState};

store::handle! {
    /// The queue of issuance, deployment and other jobs.
    Jobs
}

/// A stored run. A certificate has at most one open issuance or renewal run.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Row id of the run.
    pub id: i64,
    /// Row id of the certificate.
    pub certificate: i64,
    /// Kind of work: issuance, renewal, deployment or revocation.
    pub kind: JobKind,
    /// State of the run, such as queued, running or waiting for approval.
    pub state: JobState,
    /// Whether approval is needed or was given.
    pub approval: Consent,
    /// Name of the issuer.
    pub issuer: String,
    /// Agent that carries out the run or creates the CSR.
    pub agent: Option<Uuid>,
    /// Row id of the version that the run issued, deploys or revokes.
    pub version: Option<i64>,
    /// One-word reason for the run, such as `planned` or `retry`.
    pub reason: String,
    /// Actor that requested the run, as in the audit log.
    pub requested_by: String,
    /// Number of times the run was claimed. The number is also a fencing token: the process that made the n-th claim may change
    /// the run only while this number is n.
    pub attempts: i64,
    /// Time from which the run can be claimed, in µs since 1970.
    pub next_attempt_at_us: i64,
    /// Deadline in µs since 1970; after this time the run fails.
    pub deadline_at_us: i64,
    /// Expiry of the claiming process' lease, in µs since 1970.
    pub lease_until_us: Option<i64>,
    /// CSR in DER.
    pub csr: Option<Vec<u8>>,
    /// Key generated for the run, if this server stores it.
    pub key: Option<Uuid>,
    /// JSON whose structure depends on `kind`.
    pub detail: Option<String>,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Creation time, in µs since 1970.
    pub created_at_us: i64,
    /// Time of the first claim, in µs since 1970.
    pub started_at_us: Option<i64>,
    /// Time when the run ended, in µs since 1970.
    pub finished_at_us: Option<i64>,
}

/// A run to queue.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Row id of the certificate.
    pub certificate: i64,
    /// See [`JobRow::kind`].
    pub kind: JobKind,
    /// See [`JobRow::approval`].
    pub approval: Consent,
    /// See [`JobRow::issuer`].
    pub issuer: String,
    /// See [`JobRow::agent`].
    pub agent: Option<Uuid>,
    /// See [`JobRow::version`].
    pub version: Option<i64>,
    /// See [`JobRow::reason`].
    pub reason: String,
    /// See [`JobRow::requested_by`].
    pub requested_by: String,
    /// See [`JobRow::next_attempt_at_us`].
    pub next_attempt_at_us: i64,
    /// See [`JobRow::deadline_at_us`].
    pub deadline_at_us: i64,
    /// See [`JobRow::detail`].
    pub detail: Option<String>,
    /// See [`JobRow::created_at_us`].
    pub created_at_us: i64,
}

/// A change of a run, applied only if no other process changed the run.
#[derive(Clone, Debug)]
pub struct JobChange {
    /// The run as it was read. The change is applied only if state and attempts are still the same.
    pub from: JobRow,
    /// The run after the change.
    pub to: JobRow,
}

/// Filter for a page of runs. Conditions that are `None` match every run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// State of the run, such as queued, running or waiting for approval.
    pub state: Option<JobState>,
    /// Row id of the certificate.
    pub certificate: Option<i64>,
    /// Agent of the run; matches open runs only.
    pub agent: Option<Uuid>,
    /// Kind of work. Applied to each row that is read, without an index.
    pub kind: Option<JobKind>,
    /// Leaves out queued runs that start after this time, in µs since 1970.
    pub due_by_us: Option<i64>,
}

/// A run, with its certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// The run, as stored.
    pub job: JobRow,
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Profile of the certificate.
    pub profile: String,
}

macro_rules! job_columns {
    ($table:literal) => {
        concat!(
            $table,
            ".id, ",
            $table,
            ".certificate_id, ",
            $table,
            ".kind, ",
            $table,
            ".state, ",
            $table,
            ".approval, ",
            $table,
            ".issuer, ",
            $table,
            ".agent, ",
            $table,
            ".version_id, ",
            $table,
            ".reason, ",
            $table,
            ".requested_by, ",
            $table,
            ".attempts, ",
            $table,
            ".next_attempt_at, ",
            $table,
            ".deadline_at, ",
            $table,
            ".lease_until, ",
            $table,
            ".csr, ",
            $table,
            ".key_id, ",
            $table,
            ".detail, ",
            $table,
            ".last_error, ",
            $table,
            ".created_at, ",
            $table,
            ".started_at, ",
            $table,
            ".finished_at"
        )
    };
}

macro_rules! with_states {
    ($text:expr) => {
        db::with_codes!([JobState::{Queued, Running, AwaitingApproval, AwaitingCsr},
            JobKind::{Renewal, Deployment, Revocation}, Consent::{Needed}] $text)
    };
}

/// Inserts runs. Skips an issuance or renewal run if the certificate already has an open one.
const INSERT: BulkStatement = db::bulk! {
    (certificate bigint, kind bigint, approval bigint, issuer text, agent uuid, version bigint, reason text,
     requested_by text, next_attempt_at bigint, deadline_at bigint, detail text, created_at bigint)
    with_states!("-- jobs_insert
INSERT INTO jobs (certificate_id, kind, state, approval, issuer, agent, version_id, reason, requested_by,
  attempts, next_attempt_at, deadline_at, detail, created_at)
VALUES (:certificate, :kind, {JobState::Queued}, :approval, :issuer, :agent, :version, :reason, :requested_by, 0,
  :next_attempt_at, :deadline_at, :detail, :created_at) ON CONFLICT DO NOTHING RETURNING id, certificate_id, kind, detail")
};

/// Like [`INSERT`], but the process that queues the runs claims them immediately.
const INSERT_CLAIMED: BulkStatement = db::bulk! {
    (certificate bigint, kind bigint, approval bigint, issuer text, agent uuid, version bigint, reason text,
     requested_by text, next_attempt_at bigint, deadline_at bigint, detail text, created_at bigint, holder uuid,
     until bigint)
    with_states!("-- jobs_insert_claimed
INSERT INTO jobs (certificate_id, kind, state, approval, issuer, agent, version_id, reason, requested_by,
  attempts, next_attempt_at, deadline_at, detail, created_at, started_at, lease_holder, lease_until)
VALUES (:certificate, :kind, {JobState::Running}, :approval, :issuer, :agent, :version, :reason, :requested_by, 1,
  :next_attempt_at, :deadline_at, :detail, :created_at, :created_at, :holder, :until)
ON CONFLICT DO NOTHING RETURNING id, certificate_id, kind, detail")
};

/// Claims due runs of several issuers. Input: one row for each issuer, with the number of runs to claim.
const CLAIM: BulkStatement = BulkStatement {
    sqlite: with_states!(concat!(
        "-- jobs_claim
UPDATE jobs SET state = {JobState::Running}, attempts = attempts + 1, lease_holder = ?4, lease_until = ?5,
  started_at = coalesce(started_at, ?3)
WHERE id IN (SELECT id FROM jobs WHERE issuer = ?1 AND state = {JobState::Queued}
  AND approval <> {Consent::Needed} AND kind <= {JobKind::Renewal}
             AND next_attempt_at <= ?3 ORDER BY next_attempt_at, id LIMIT ?2)
RETURNING ",
        job_columns!("jobs")
    )),
    postgres: with_states!(concat!(
        "-- jobs_claim
WITH due AS (
  SELECT j.id, w.now, w.holder, w.until
  FROM UNNEST(?1::text[], ?2::bigint[], ?3::bigint[], ?4::uuid[], ?5::bigint[]) AS w(issuer, n, now, holder, until)
  CROSS JOIN LATERAL (
    SELECT id FROM jobs WHERE issuer = w.issuer AND state = {JobState::Queued} AND approval <> {Consent::Needed}
      AND kind <= {JobKind::Renewal}
      AND next_attempt_at <= w.now ORDER BY next_attempt_at, id LIMIT w.n FOR UPDATE SKIP LOCKED) j)
UPDATE jobs SET state = {JobState::Running}, attempts = jobs.attempts + 1, lease_holder = due.holder, lease_until = due.until,
  started_at = coalesce(jobs.started_at, due.now)
FROM due WHERE jobs.id = due.id RETURNING ",
        job_columns!("jobs")
    )),
};

const CLAIM_REVOCATIONS: BulkStatement = db::bulk! {
    with_states!(concat!(
    "-- jobs_claim_revocations
UPDATE jobs SET state = {JobState::Running}, attempts = attempts + 1, lease_holder = ?2, lease_until = ?3,
  started_at = coalesce(started_at, ?1)
WHERE id IN (SELECT id FROM jobs WHERE state = {JobState::Queued} AND kind = {JobKind::Revocation}
  AND next_attempt_at <= ?1
             ORDER BY next_attempt_at, id LIMIT ?4{| FOR UPDATE SKIP LOCKED})
RETURNING ",
    job_columns!("jobs")
))
};

/// Claims the work an agent can do now: deployments, and runs that wait for its CSR.
const CLAIM_FOR_AGENT: BulkStatement = db::bulk! {
    with_states!(concat!(
    "-- jobs_claim_for_agent
UPDATE jobs SET
  state = CASE state WHEN {JobState::AwaitingCsr} THEN {JobState::AwaitingCsr} ELSE {JobState::Running} END,
  attempts = attempts + 1, lease_until = ?4,
  next_attempt_at = ?4, started_at = coalesce(started_at, ?2)
WHERE id IN (SELECT id FROM jobs WHERE agent = ?1 AND (state = {JobState::Queued} AND kind = {JobKind::Deployment}
  OR state = {JobState::AwaitingCsr})
             AND state IN ({JobState::Queued}, {JobState::Running}, {JobState::AwaitingCsr})
               AND next_attempt_at <= ?2 ORDER BY next_attempt_at, id LIMIT ?3{| FOR UPDATE SKIP LOCKED})
RETURNING ",
    job_columns!("jobs")
))
};

/// Names of the issuers with due runs. The query reads one index entry for each issuer.
const ISSUERS_DUE: &str = with_states!("-- jobs_issuers_due
WITH RECURSIVE t(issuer) AS (
  SELECT issuer FROM (SELECT issuer FROM jobs WHERE state = {JobState::Queued} AND approval <> {Consent::Needed}
    AND kind <= {JobKind::Renewal} ORDER BY issuer LIMIT 1) a
  UNION ALL
  SELECT (SELECT j.issuer FROM jobs j WHERE j.state = {JobState::Queued} AND j.approval <> {Consent::Needed}
    AND j.kind <= {JobKind::Renewal} AND j.issuer > t.issuer
          ORDER BY j.issuer LIMIT 1) FROM t WHERE t.issuer IS NOT NULL)
SELECT t.issuer FROM t WHERE t.issuer IS NOT NULL AND EXISTS (
  SELECT 1 FROM jobs j WHERE j.issuer = t.issuer AND j.state = {JobState::Queued}
    AND j.approval <> {Consent::Needed} AND j.kind <= {JobKind::Renewal}
    AND j.next_attempt_at <= ?1)");

const AGENT_HAS: &str = with_states!("-- jobs_agent_has
SELECT 1 FROM jobs WHERE agent = ?1 AND (state = {JobState::Queued} AND kind = {JobKind::Deployment}
  OR state = {JobState::AwaitingCsr}) AND state IN ({JobState::Queued}, {JobState::Running}, {JobState::AwaitingCsr})
  AND next_attempt_at <= ?2 LIMIT 1");

const DUE_COUNT: &str = with_states!(
    "-- jobs_due_count
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE issuer = ?1 AND state = {JobState::Queued}
  AND approval <> {Consent::Needed} AND kind <= {JobKind::Renewal}
  AND next_attempt_at <= ?2 LIMIT ?3) x"
);

const DUE_FOR_APPROVAL: &str = with_states!(concat!(
    "-- jobs_gated\nSELECT ",
    job_columns!("jobs"),
    " FROM jobs WHERE state = {JobState::Queued} AND approval = {Consent::Needed} AND next_attempt_at <= ?1
      ORDER BY next_attempt_at, id LIMIT ?2"
));

const WAITING_OVERDUE: &str = with_states!(concat!(
    "-- jobs_waiting_overdue\nSELECT ",
    job_columns!("jobs"),
    " FROM jobs WHERE state IN ({JobState::AwaitingApproval}, {JobState::AwaitingCsr}) AND deadline_at <= ?1
      ORDER BY deadline_at, id LIMIT ?2"
));

const DEPLOYING_OVERDUE: &str = with_states!(concat!(
    "-- jobs_deploying_overdue\nSELECT ",
    job_columns!("jobs"),
    " FROM jobs WHERE kind = {JobKind::Deployment} AND state <= {JobState::Running} AND deadline_at <= ?1
      ORDER BY deadline_at, id LIMIT ?2"
));

/// Cancels the pending deployments of these runs.
const DEPLOYMENTS_CANCEL: BulkStatement = db::bulk! { (job bigint, at bigint)
    db::with_codes!([DeploymentState::{Waiting, Failed, RolledBack, Broken, Cancelled}]
    "-- jobs_deployments_cancel
UPDATE deployments SET state = {DeploymentState::Cancelled}, updated_at = :at
WHERE job = :job AND state IN ({DeploymentState::Waiting}, {DeploymentState::Failed}, {DeploymentState::RolledBack},
  {DeploymentState::Broken})")
};

/// Queues runs again if their lease has expired, or if it ends later than any valid lease because a clock was set back.
const REAP: &str = with_states!(
    "-- jobs_reap
UPDATE jobs SET state = {JobState::Queued}, lease_holder = NULL, lease_until = NULL, next_attempt_at = ?1
WHERE state = {JobState::Running} AND (lease_until <= ?1 OR lease_until > ?2)"
);

const EXTEND: BulkStatement = db::bulk! { (id bigint, holder uuid, until bigint)
    with_states!("-- jobs_extend
UPDATE jobs SET lease_until = :until WHERE id = :id AND state = {JobState::Running} AND lease_holder = :holder
  AND lease_until < :until")
};

const RELEASE_CLAIMED: &str = with_states!("-- jobs_let_go
UPDATE jobs SET lease_until = ?2 WHERE state = {JobState::Running} AND lease_holder = ?1 AND lease_until > ?2");

/// Makes retries due if their start is too far in the future because the clock was set back.
const UNSTICK: &str = with_states!("-- jobs_unstick
UPDATE jobs SET next_attempt_at = ?1 WHERE state = {JobState::Queued} AND attempts > 0 AND next_attempt_at > ?2");

const CHANGE: BulkStatement = db::bulk! {
    (id bigint, was bigint, attempts bigint, state bigint, approval bigint, version bigint, reason text,
     requested_by text, next_attempt_at bigint, deadline_at bigint, csr bytea, key uuid, detail text,
     last_error text, finished_at bigint)
    with_states!("-- jobs_change
UPDATE jobs SET state = :state, approval = :approval, version_id = :version, reason = :reason,
  requested_by = :requested_by, next_attempt_at = :next_attempt_at, deadline_at = :deadline_at, csr = :csr,
  key_id = :key, detail = :detail, last_error = :last_error, finished_at = :finished_at,
  lease_until = CASE :state WHEN {JobState::Running} THEN lease_until END
WHERE id = :id AND state = :was AND attempts = :attempts RETURNING id")
};

/// Open runs of these certificates, including deployments.
const OPEN_OF: BulkStatement = db::bulk! { (id bigint)
    with_states!(concat!("-- jobs_open_of\nSELECT ", job_columns!("jobs"), " FROM jobs WHERE certificate_id = :id
      AND state <= {JobState::AwaitingCsr}"))
};

const BY_IDS: BulkStatement = db::bulk! { (id bigint)
    concat!("-- jobs_by_ids\nSELECT ", job_columns!("jobs"), " FROM jobs WHERE id = :id")
};

const BY_ID: &str = concat!(
    "-- job\nSELECT ",
    job_columns!("j"),
    ", m.uuid, m.name, m.profile FROM jobs j JOIN managed_certificates m ON m.id = j.certificate_id WHERE j.id = ?1"
);

const TRIM: &str = "-- jobs_trim
DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state = ?1 AND finished_at < ?2 ORDER BY id LIMIT ?3)";

pub(crate) const ALL: &[&str] = &[
    ISSUERS_DUE,
    AGENT_HAS,
    DUE_COUNT,
    DUE_FOR_APPROVAL,
    WAITING_OVERDUE,
    DEPLOYING_OVERDUE,
    REAP,
    RELEASE_CLAIMED,
    UNSTICK,
    BY_ID,
    TRIM,
];
pub(crate) const BULKS: &[&BulkStatement] = &[
    &INSERT,
    &INSERT_CLAIMED,
    &CLAIM,
    &CLAIM_FOR_AGENT,
    &CLAIM_REVOCATIONS,
    &EXTEND,
    &CHANGE,
    &OPEN_OF,
    &BY_IDS,
    &KEYS_INSERT,
    &DEPLOYMENTS_CANCEL,
];

/// A run that the insert statement queued.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedJob {
    /// Row id of the run.
    pub id: i64,
    /// Row id of the certificate.
    pub certificate: i64,
    /// Kind of work: issuance, renewal, deployment or revocation.
    pub kind: JobKind,
    /// JSON whose structure depends on `kind`.
    pub detail: Option<String>,
}

/// Queues runs, and returns the runs that were queued. Skips an issuance or renewal run if the certificate already has an open one.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_jobs(tx: &mut Tx, new: &[NewJob]) -> Result<Vec<QueuedJob>, StoreError> {
    queued(tx.bulk(&INSERT, columns_of(new)).await?)
}

/// Like [`insert_jobs`], but the runs are immediately claimed: running in their first attempt, by `holder` until `until_us`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_claimed_jobs(
    tx: &mut Tx,
    new: &[NewJob],
    holder: Uuid,
    until_us: i64,
) -> Result<Vec<QueuedJob>, StoreError> {
    let mut columns = columns_of(new);
    columns.push(Column::Uuid(vec![holder; new.len()]));
    columns.push(Column::Int(vec![until_us; new.len()]));
    queued(tx.bulk(&INSERT_CLAIMED, columns).await?)
}

fn columns_of(new: &[NewJob]) -> Vec<Column> {
    vec![
        Column::Int(new.iter().map(|job| job.certificate).collect()),
        Column::Int(new.iter().map(|job| job.kind.code()).collect()),
        Column::Int(new.iter().map(|job| job.approval.code()).collect()),
        Column::Text(new.iter().map(|job| job.issuer.clone()).collect()),
        Column::MaybeUuid(new.iter().map(|job| job.agent).collect()),
        Column::MaybeInt(new.iter().map(|job| job.version).collect()),
        Column::Text(new.iter().map(|job| job.reason.clone()).collect()),
        Column::Text(new.iter().map(|job| job.requested_by.clone()).collect()),
        Column::Int(new.iter().map(|job| job.next_attempt_at_us).collect()),
        Column::Int(new.iter().map(|job| job.deadline_at_us).collect()),
        Column::MaybeText(new.iter().map(|job| job.detail.clone()).collect()),
        Column::Int(new.iter().map(|job| job.created_at_us).collect()),
    ]
}

fn queued(rows: Vec<Row>) -> Result<Vec<QueuedJob>, StoreError> {
    let read = |mut row: Row| {
        Ok(QueuedJob {
            id: row.int()?,
            certificate: row.int()?,
            kind: row.coded("jobs.kind")?,
            detail: row.maybe_text()?,
        })
    };
    rows.into_iter().map(read).collect()
}

/// Inserts the keys generated for runs into the table `keys`.
const KEYS_INSERT: BulkStatement = db::bulk! {
    (id uuid, key_type text, spki bytea, spki_sha256 bytea, provider text, sealed bytea, locator text,
     label text, created_at bigint)
    "-- run_keys_insert
INSERT INTO keys (id, key_type, spki, spki_sha256, provider, sealed, locator, label, created_at)
VALUES (:id, :key_type, :spki, :spki_sha256, :provider, :sealed, :locator, :label, :created_at)"
};

/// Stores the keys generated for runs, in a single statement.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_run_keys(tx: &mut Tx, keys: &[KeyRow]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(keys.iter().map(|key| key.id).collect()),
        Column::Text(keys.iter().map(|key| key.key_type.clone()).collect()),
        Column::Blob(keys.iter().map(|key| key.spki.clone()).collect()),
        Column::Blob(keys.iter().map(|key| key.spki_sha256.to_vec()).collect()),
        Column::Text(keys.iter().map(|key| key.provider.clone()).collect()),
        Column::MaybeBlob(keys.iter().map(|key| key.sealed.clone()).collect()),
        Column::MaybeText(keys.iter().map(|key| key.locator.clone()).collect()),
        Column::Text(keys.iter().map(|key| key.label.clone()).collect()),
        Column::Int(keys.iter().map(|key| key.created_at_us).collect()),
    ];
    tx.bulk(&KEYS_INSERT, columns).await.map(drop)
}

/// Claims due issuance and renewal runs of each issuer, up to its free slots, longest overdue first. Other processes can claim them
/// again after `until_us`.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn claim_jobs(
    tx: &mut Tx,
    wanted: &[(String, i64)],
    now_us: i64,
    holder: Uuid,
    until_us: i64,
) -> Result<Vec<JobRow>, StoreError> {
    let columns = vec![
        Column::Text(wanted.iter().map(|(issuer, _)| issuer.clone()).collect()),
        Column::Int(wanted.iter().map(|(_, free_slots)| *free_slots).collect()),
        Column::Int(vec![now_us; wanted.len()]),
        Column::Uuid(vec![holder; wanted.len()]),
        Column::Int(vec![until_us; wanted.len()]),
    ];
    rows_of(tx.bulk(&CLAIM, columns).await?)
}

/// Claims due revocations, longest overdue first.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn claim_revocations(
    tx: &mut Tx,
    now_us: i64,
    holder: Uuid,
    until_us: i64,
    limit: i64,
) -> Result<Vec<JobRow>, StoreError> {
    let statement = tx.text_of(&CLAIM_REVOCATIONS);
    rows_of(tx.rows(statement, vec![now_us.into(), holder.into(), until_us.into(), limit.into()]).await?)
}

/// Claims the work an agent can do now: queued deployments, and runs that wait for its CSR. The work is offered again from
/// `until_us` on.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn claim_agent_jobs(
    tx: &mut Tx,
    agent: Uuid,
    now_us: i64,
    until_us: i64,
    limit: i64,
) -> Result<Vec<JobRow>, StoreError> {
    let statement = tx.text_of(&CLAIM_FOR_AGENT);
    rows_of(tx.rows(statement, vec![agent.into(), now_us.into(), limit.into(), until_us.into()]).await?)
}

/// Applies changes to runs whose state and attempts are the same as when the caller read them. Returns the row ids of the changed
/// runs.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn change_jobs(tx: &mut Tx, changes: &[JobChange]) -> Result<Vec<i64>, StoreError> {
    let to = || changes.iter().map(|change| &change.to);
    let columns = vec![
        Column::Int(changes.iter().map(|change| change.from.id).collect()),
        Column::Int(changes.iter().map(|change| change.from.state.code()).collect()),
        Column::Int(changes.iter().map(|change| change.from.attempts).collect()),
        Column::Int(to().map(|job| job.state.code()).collect()),
        Column::Int(to().map(|job| job.approval.code()).collect()),
        Column::MaybeInt(to().map(|job| job.version).collect()),
        Column::Text(to().map(|job| job.reason.clone()).collect()),
        Column::Text(to().map(|job| job.requested_by.clone()).collect()),
        Column::Int(to().map(|job| job.next_attempt_at_us).collect()),
        Column::Int(to().map(|job| job.deadline_at_us).collect()),
        Column::MaybeBlob(to().map(|job| job.csr.clone()).collect()),
        Column::MaybeUuid(to().map(|job| job.key).collect()),
        Column::MaybeText(to().map(|job| job.detail.clone()).collect()),
        Column::MaybeText(to().map(|job| job.last_error.clone()).collect()),
        Column::MaybeInt(to().map(|job| job.finished_at_us).collect()),
    ];
    tx.bulk(&CHANGE, columns).await?.into_iter().map(|mut row| row.int()).collect()
}

/// Returns the open runs of these certificates, of every kind, in no particular order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn open_jobs_of(tx: &mut Tx, certificates: Vec<i64>) -> Result<Vec<JobRow>, StoreError> {
    rows_of(tx.bulk(&OPEN_OF, vec![Column::Int(certificates)]).await?)
}

/// Returns runs by row id, in no particular order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn jobs_by_ids(tx: &mut Tx, ids: Vec<i64>) -> Result<Vec<JobRow>, StoreError> {
    rows_of(tx.bulk(&BY_IDS, vec![Column::Int(ids)]).await?)
}

/// Returns due runs that need approval, longest overdue first.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn jobs_due_for_approval(tx: &mut Tx, now_us: i64, limit: i64) -> Result<Vec<JobRow>, StoreError> {
    rows_of(tx.rows(DUE_FOR_APPROVAL, vec![now_us.into(), limit.into()]).await?)
}

/// Returns runs that wait for approval or a CSR past their deadline.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn overdue_waiting_jobs(tx: &mut Tx, now_us: i64, limit: i64) -> Result<Vec<JobRow>, StoreError> {
    rows_of(tx.rows(WAITING_OVERDUE, vec![now_us.into(), limit.into()]).await?)
}

/// Returns deployments that are queued or running past their deadline.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn overdue_deployment_jobs(
    tx: &mut Tx,
    now_us: i64,
    limit: i64,
) -> Result<Vec<JobRow>, StoreError> {
    rows_of(tx.rows(DEPLOYING_OVERDUE, vec![now_us.into(), limit.into()]).await?)
}

/// Cancels the pending deployments of these runs, in a single statement.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn cancel_deployments_of(tx: &mut Tx, jobs: Vec<i64>, at_us: i64) -> Result<(), StoreError> {
    let at = vec![at_us; jobs.len()];
    tx.bulk(&DEPLOYMENTS_CANCEL, vec![Column::Int(jobs), Column::Int(at)]).await.map(drop)
}

/// Queues runs again if their lease has expired, or if it ends after `latest_us`. The caller passes a time later than the end of
/// any valid lease. Returns the number of queued runs.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn reap_jobs(tx: &mut Tx, now_us: i64, latest_us: i64) -> Result<u64, StoreError> {
    tx.execute(REAP, vec![now_us.into(), latest_us.into()]).await
}

/// Makes failed runs due immediately if their retry is after `latest_us`. The caller passes a time later than any valid backoff.
/// Returns the number of changed runs.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn unstick_jobs(tx: &mut Tx, now_us: i64, latest_us: i64) -> Result<u64, StoreError> {
    tx.execute(UNSTICK, vec![now_us.into(), latest_us.into()]).await
}

impl Jobs<'_> {
    /// Returns the names of issuers that have due runs.
    ///
    /// # Errors
    /// Database errors.
    pub async fn issuers_due(self, now_us: i64) -> Result<Vec<String>, StoreError> {
        let rows = self.0.rows(Cost::Point, ISSUERS_DUE, vec![now_us.into()]).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// Returns whether there is work that an agent can do now.
    ///
    /// # Errors
    /// Database errors.
    pub async fn has_agent_work(self, agent: Uuid, now_us: i64) -> Result<bool, StoreError> {
        Ok(self.0.row(AGENT_HAS, vec![agent.into(), now_us.into()]).await?.is_some())
    }

    /// Counts the due runs of an issuer, up to `most`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn due(self, issuer: &str, now_us: i64, most: i64) -> Result<u64, StoreError> {
        let rows =
            self.0.rows(Cost::Walk, DUE_COUNT, vec![issuer.into(), now_us.into(), most.into()]).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.number())
    }

    /// Extends the leases of these runs, if `holder` still has them.
    ///
    /// # Errors
    /// Database errors.
    pub async fn extend_leases(self, holder: Uuid, jobs: Vec<i64>, until_us: i64) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let (holders, untils) = (vec![holder; jobs.len()], vec![until_us; jobs.len()]);
        let columns = vec![Column::Int(jobs), Column::Uuid(holders), Column::Int(untils)];
        self.0
            .write("jobs_extend", move |tx| async move { tx.bulk(&EXTEND, columns).await.map(drop) }.boxed())
            .await
    }

    /// Releases all runs of `holder`: their leases end now. Returns the number of released runs.
    ///
    /// # Errors
    /// Database errors.
    pub async fn release_claimed_runs(self, holder: Uuid, now_us: i64) -> Result<u64, StoreError> {
        self.0.execute(RELEASE_CLAIMED, vec![holder.into(), now_us.into()]).await
    }

    /// Returns a run with its certificate.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: i64) -> Result<Option<JobView>, StoreError> {
        self.0.row(BY_ID, vec![id.into()]).await?.map(job_view).transpose()
    }

    /// Returns a page of runs, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], and other database errors.
    pub async fn page(
        self,
        filter: &JobFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError> {
        let key = after.map(|cursor| cursor.key("jobs", &[Value::Int(0)])).transpose()?;
        let (limit, fetch_limit) = limit_of(limit);
        let (text, parameters) = listing(filter, key, fetch_limit);
        let rows = self.0.rows(Cost::Walk, &text, parameters).await?;
        page(rows, limit, "jobs", |row| {
            let view = job_view(row)?;
            let key = vec![view.job.id.into()];
            Ok((view, key))
        })
    }

    /// Deletes at most `limit` runs that ended in `state` before `before_us`. Returns the number of deleted runs.
    ///
    /// # Errors
    /// Database errors.
    pub async fn trim(self, state: JobState, before_us: i64, limit: i64) -> Result<u64, StoreError> {
        self.0.execute(TRIM, vec![state.code().into(), before_us.into(), limit.into()]).await
    }
}

fn listing(filter: &JobFilter, after: Option<Vec<Value>>, limit: i64) -> (String, Vec<Value>) {
    let mut parameters: Vec<Value> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    let mut add = |condition: &str, value: Value| {
        parameters.push(value);
        conditions.push(condition.replace('#', &format!("?{}", parameters.len())));
    };
    if let Some(state) = filter.state {
        add("state = #", state.code().into());
    }
    if let Some(certificate) = filter.certificate {
        add("certificate_id = #", certificate.into());
    }
    if let Some(agent) = filter.agent {
        let open = with_states!(
            "agent = # AND state IN ({JobState::Queued}, {JobState::Running}, {JobState::AwaitingCsr})"
        );
        add(open, agent.into());
    }
    if let Some(kind) = filter.kind {
        add("kind = #", kind.code().into());
    }
    if let Some(due) = filter.due_by_us {
        add(with_states!("(state <> {JobState::Queued} OR next_attempt_at <= #)"), due.into());
    }
    for key in after.into_iter().flatten() {
        add("id < #", key);
    }
    parameters.push(limit.into());
    let clause =
        if conditions.is_empty() { String::new() } else { format!("WHERE {} ", conditions.join(" AND ")) };
    let text = format!(
        "-- jobs_page\nSELECT {}, m.uuid, m.name, m.profile FROM (SELECT * FROM jobs {clause}ORDER BY id DESC LIMIT ?{}) j \
         JOIN managed_certificates m ON m.id = j.certificate_id ORDER BY j.id DESC",
        job_columns!("j"),
        parameters.len()
    );
    (text, parameters)
}

fn samples() -> Vec<JobFilter> {
    let none = JobFilter::default;
    vec![
        none(),
        JobFilter { state: Some(JobState::Running), ..none() },
        JobFilter { certificate: Some(1), ..none() },
        JobFilter { agent: Some(Uuid::nil()), ..none() },
        JobFilter {
            state: Some(JobState::Queued),
            certificate: Some(1),
            agent: Some(Uuid::nil()),
            kind: Some(JobKind::Issuance),
            due_by_us: Some(0),
        },
    ]
}

/// Returns the page statements: one for each condition alone, and one with all conditions.
pub(crate) fn composed() -> Vec<String> {
    let with =
        |key: Option<Vec<Value>>| samples().into_iter().map(move |filter| listing(&filter, key.clone(), 1).0);
    with(None).chain(with(Some(vec![Value::Int(0)]))).collect()
}

/// Returns the statements whose query plans a test checks.
pub(crate) fn plans() -> Vec<(String, Vec<Value>)> {
    let mut all: Vec<(String, Vec<Value>)> =
        samples().into_iter().map(|filter| listing(&filter, None, 21)).collect();
    let now: Value = 1_i64.into();
    all.push((ISSUERS_DUE.to_owned(), vec![now.clone()]));
    all.push((DUE_COUNT.to_owned(), vec!["x".into(), now.clone(), 100_i64.into()]));
    all.push((DUE_FOR_APPROVAL.to_owned(), vec![now.clone(), 100_i64.into()]));
    all.push((WAITING_OVERDUE.to_owned(), vec![now.clone(), 100_i64.into()]));
    all.push((REAP.to_owned(), vec![now.clone(), i64::MAX.into()]));
    all.push((BY_ID.to_owned(), vec![now]));
    all
}

fn rows_of(rows: Vec<Row>) -> Result<Vec<JobRow>, StoreError> {
    rows.into_iter().map(|mut row| job_row(&mut row)).collect()
}

fn job_row(row: &mut Row) -> Result<JobRow, StoreError> {
    Ok(JobRow {
        id: row.int()?,
        certificate: row.int()?,
        kind: row.coded("jobs.kind")?,
        state: row.coded("jobs.state")?,
        approval: row.coded("jobs.approval")?,
        issuer: row.text()?,
        agent: row.maybe_uuid()?,
        version: row.maybe_int()?,
        reason: row.text()?,
        requested_by: row.text()?,
        attempts: row.int()?,
        next_attempt_at_us: row.int()?,
        deadline_at_us: row.int()?,
        lease_until_us: row.maybe_int()?,
        csr: row.maybe_blob()?,
        key: row.maybe_uuid()?,
        detail: row.maybe_text()?,
        last_error: row.maybe_text()?,
        created_at_us: row.int()?,
        started_at_us: row.maybe_int()?,
        finished_at_us: row.maybe_int()?,
    })
}

fn job_view(mut row: Row) -> Result<JobView, StoreError> {
    Ok(JobView { job: job_row(&mut row)?, certificate: row.uuid()?, name: row.text()?, profile: row.text()? })
}
