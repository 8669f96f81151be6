//! Deployments: one row for each job and target.

use uuid::Uuid;

use super::handle::Agents;
use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::states::DeploymentState;

/// A deployment that a run requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewDeployment {
    /// The run that the deployment is part of: a row of table `jobs`.
    pub job: i64,
    /// Id of the target to deploy to.
    pub target: Uuid,
    /// Id of the agent that deploys.
    pub agent: Uuid,
    /// Id of the managed certificate.
    pub certificate: Uuid,
    /// SHA-256 of the leaf.
    pub fingerprint: [u8; 32],
    /// Time of the request, µs.
    pub created_at_us: i64,
}

/// Result of one deployment attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeploymentResult {
    /// The run: a row of table `jobs`.
    pub job: i64,
    /// Id of the target of the deployment.
    pub target: Uuid,
    /// State after the attempt.
    pub state: DeploymentState,
    /// Error of a failed attempt.
    pub error: Option<String>,
    /// SHA-256 of the leaf that the endpoint served.
    pub served: Option<[u8; 32]>,
    /// Time of the result, µs.
    pub at_us: i64,
}

/// A requested deployment and its latest result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeploymentRow {
    /// Row id of the deployment.
    pub id: i64,
    /// Run, target, agent and certificate of the deployment.
    pub requested: NewDeployment,
    /// State after the last attempt.
    pub state: DeploymentState,
    /// Number of attempts so far.
    pub attempts: i64,
    /// Error of the last attempt.
    pub error: Option<String>,
    /// SHA-256 of the leaf that the endpoint served after the last attempt.
    pub served: Option<[u8; 32]>,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

macro_rules! with_states {
    ($text:expr) => {
        db::with_codes!([DeploymentState::{Waiting, Failed, RolledBack, Broken, Cancelled}] $text)
    };
}

pub(super) const INSERT: BulkStatement = db::bulk! {
    (job bigint, target uuid, agent uuid, certificate uuid, fingerprint bytea, at bigint)
    with_states!("-- deployments_insert
INSERT INTO deployments (job, target, agent, certificate, fingerprint, state, attempts, created_at, updated_at)
VALUES (:job, :target, :agent, :certificate, :fingerprint, {DeploymentState::Waiting}, 0, :at, :at) ON CONFLICT DO NOTHING")
};

/// Stores the result of a deployment, unless it was already deployed, unchanged or cancelled.
pub(super) const FINISH: BulkStatement = db::bulk! { (job bigint, target uuid, state bigint, error text, served bytea, at bigint)
    with_states!("-- deployments_finish
UPDATE deployments SET state = :state, error = :error, served = :served, updated_at = :at, attempts = attempts + 1
WHERE job = :job AND target = :target AND state IN ({DeploymentState::Waiting}, {DeploymentState::Failed},
  {DeploymentState::RolledBack}, {DeploymentState::Broken}) RETURNING job, target")
};

pub(super) const OPEN: &str = with_states!(
    "-- deployments_open
SELECT COALESCE(SUM(CASE WHEN state IN ({DeploymentState::Waiting}, {DeploymentState::Failed},
  {DeploymentState::RolledBack}, {DeploymentState::Broken}) THEN 1 ELSE 0 END), 0), COUNT(*) FROM deployments
WHERE job = ?1"
);

pub(super) const CANCEL: &str = with_states!("-- deployments_cancel
UPDATE deployments SET state = {DeploymentState::Cancelled}, updated_at = ?2
WHERE job = ?1 AND state IN ({DeploymentState::Waiting}, {DeploymentState::Failed}, {DeploymentState::RolledBack},
    {DeploymentState::Broken})");

pub(super) const OF_JOB: &str = "-- deployments_of_job
SELECT id, job, target, agent, certificate, fingerprint, state, attempts, error, served, created_at, updated_at
FROM deployments WHERE job = ?1 ORDER BY target";

/// Returns the deployments to a target, newest first, one page at a time.
pub(super) const OF_TARGET: &str = "-- deployments_of_target
SELECT id, job, target, agent, certificate, fingerprint, state, attempts, error, served, created_at, updated_at
FROM deployments WHERE target = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

pub(super) const OF_CERTIFICATE: &str = "-- deployments_of_certificate
SELECT id, job, target, agent, certificate, fingerprint, state, attempts, error, served, created_at, updated_at
FROM deployments WHERE certificate = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

/// Filter for listing deployments. All given conditions must hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeploymentFilter {
    /// Only deployments of this managed certificate.
    pub certificate: Option<Uuid>,
    /// Only deployments to this target.
    pub target: Option<Uuid>,
    /// Only deployments by this agent.
    pub agent: Option<Uuid>,
    /// Only deployments in this state.
    pub state: Option<DeploymentState>,
}

/// Builds the statement of a page, newest first. Each condition has an index in this order.
fn filtered(filter: &DeploymentFilter, before: Value, limit: i64) -> (String, Vec<Value>) {
    let mut parameters = vec![before];
    let mut texts = vec!["id < ?1".to_owned()];
    let mut add = |column: &str, value: Option<Value>| {
        if let Some(value) = value {
            parameters.push(value);
            texts.push(format!("{column} = ?{}", parameters.len()));
        }
    };
    add("certificate", filter.certificate.map(Value::from));
    add("target", filter.target.map(Value::from));
    add("agent", filter.agent.map(Value::from));
    add("state", filter.state.map(|state| state.code().into()));
    parameters.push(limit.into());
    let text = format!(
        "-- deployments_page\nSELECT id, job, target, agent, certificate, fingerprint, state, attempts, error, served, \
         created_at, updated_at FROM deployments WHERE {} ORDER BY id DESC LIMIT ?{}",
        texts.join(" AND "),
        parameters.len()
    );
    (text, parameters)
}

pub(super) fn composed() -> Vec<String> {
    let id = Some(Uuid::nil());
    let state = Some(DeploymentState::Failed);
    let none = DeploymentFilter::default;
    let filters = [
        none(),
        DeploymentFilter { certificate: id, ..none() },
        DeploymentFilter { target: id, ..none() },
        DeploymentFilter { agent: id, ..none() },
        DeploymentFilter { state, ..none() },
        DeploymentFilter { certificate: id, target: id, agent: id, state },
    ];
    filters.iter().map(|filter| filtered(filter, i64::MAX.into(), 1).0).collect()
}

/// Inserts pending deployments in one statement. Existing deployments are not changed.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_deployments(tx: &mut Tx, new: &[NewDeployment]) -> Result<(), StoreError> {
    let columns = vec![
        Column::Int(new.iter().map(|one| one.job).collect()),
        Column::Uuid(new.iter().map(|one| one.target).collect()),
        Column::Uuid(new.iter().map(|one| one.agent).collect()),
        Column::Uuid(new.iter().map(|one| one.certificate).collect()),
        Column::Blob(new.iter().map(|one| one.fingerprint.to_vec()).collect()),
        Column::Int(new.iter().map(|one| one.created_at_us).collect()),
    ];
    tx.bulk(&INSERT, columns).await.map(drop)
}

/// Stores the results of deployments in one statement. Skips deployments that are already deployed, unchanged or cancelled. Returns
/// job and target of each stored result.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn finish_deployments(
    tx: &mut Tx,
    results: &[DeploymentResult],
) -> Result<Vec<(i64, Uuid)>, StoreError> {
    let columns = vec![
        Column::Int(results.iter().map(|one| one.job).collect()),
        Column::Uuid(results.iter().map(|one| one.target).collect()),
        Column::Int(results.iter().map(|one| one.state.code()).collect()),
        Column::MaybeText(results.iter().map(|one| one.error.as_deref().map(clean)).collect()),
        Column::MaybeBlob(results.iter().map(|one| one.served.map(|hash| hash.to_vec())).collect()),
        Column::Int(results.iter().map(|one| one.at_us).collect()),
    ];
    let rows = tx.bulk(&FINISH, columns).await?;
    rows.into_iter().map(|mut row| Ok((row.int()?, row.uuid()?))).collect()
}

/// Removes NUL, which PostgreSQL's text type cannot store.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Returns the number of unfinished deployments of a run (waiting, failed, rolled back or broken), and the number of all its
/// deployments.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn open_deployments(tx: &mut Tx, job: i64) -> Result<(i64, i64), StoreError> {
    let row = tx.row(OPEN, vec![job.into()]).await?;
    row.map_or(Ok((0, 0)), |mut row| Ok((row.int()?, row.int()?)))
}

/// Cancels the remaining deployments of a run. Returns their number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn cancel_deployments(tx: &mut Tx, job: i64, at_us: i64) -> Result<u64, StoreError> {
    tx.execute(CANCEL, vec![job.into(), at_us.into()]).await
}

impl Agents<'_> {
    /// Returns the deployments of a run (`job`), sorted by target.
    ///
    /// # Errors
    /// Database errors.
    pub async fn deployments_of_job(self, job: i64) -> Result<Vec<DeploymentRow>, StoreError> {
        self.0.rows(Cost::Point, OF_JOB, vec![job.into()]).await?.into_iter().map(deployment_row).collect()
    }

    /// Returns a page of deployments, newest first.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn deployments_page(
        self,
        filter: &DeploymentFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeploymentRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let before = key_or(after, "deployments", &[Value::Int(i64::MAX)])?.remove(0);
        let (text, parameters) = filtered(filter, before, rows);
        let found = self.0.rows(Cost::Walk, &text, parameters).await?;
        page(found, limit, "deployments", |row| {
            let deployment = deployment_row(row)?;
            let key = vec![deployment.id.into()];
            Ok((deployment, key))
        })
    }

    /// Returns the deployments to a target, newest first.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn deployments_of_target(
        self,
        target: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeploymentRow>, StoreError> {
        self.deployments(OF_TARGET, "deployments_of_target", target, after, limit).await
    }

    /// Returns the deployments of a managed certificate, newest first.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn deployments_of_certificate(
        self,
        certificate: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeploymentRow>, StoreError> {
        self.deployments(OF_CERTIFICATE, "deployments_of_certificate", certificate, after, limit).await
    }

    async fn deployments(
        self,
        statement: &'static str,
        listing: &str,
        of: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeploymentRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let mut parameters: Vec<Value> = vec![of.into()];
        parameters.extend(key_or(after, listing, &[Value::Int(i64::MAX)])?);
        parameters.push(rows.into());
        let found = self.0.rows(Cost::Walk, statement, parameters).await?;
        page(found, limit, listing, |row| {
            let deployment = deployment_row(row)?;
            let key = vec![deployment.id.into()];
            Ok((deployment, key))
        })
    }
}

fn deployment_row(mut row: Row) -> Result<DeploymentRow, StoreError> {
    let (id, job) = (row.int()?, row.int()?);
    let (target, agent, certificate) = (row.uuid()?, row.uuid()?, row.uuid()?);
    let (fingerprint, state, attempts) = (row.hash()?, row.coded("deployments.state")?, row.int()?);
    let (error, served, created_at_us) = (row.maybe_text()?, row.maybe_hash()?, row.int()?);
    let requested = NewDeployment { job, target, agent, certificate, fingerprint, created_at_us };
    Ok(DeploymentRow { id, requested, state, attempts, error, served, updated_at_us: row.int()? })
}
