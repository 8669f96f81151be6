//! Releases private keys of certificates that need the approval of another person, to approved targets only.

use futures_util::FutureExt;
use store::StoreError;
use uuid::Uuid;

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::ledger::transaction;
use crate::managed::{ManagedCertificate, TargetRef};
use crate::plan::target_texts;
use crate::tables;
use crate::tables::managed::ManagedVersion;

/// Use of a private key outside of the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyUse {
    /// The key is returned to the caller.
    Export,
    /// The key is sent to the agent of a target.
    Deploy {
        /// Id of the target.
        target: Uuid,
        /// Id of the target's agent.
        agent: Uuid,
    },
}

/// Reason why a private key is not released without approval.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotApproved {
    /// The request is an export. Plans contain only deployment targets, so no approval covers an export.
    #[error(
        "{0}, so the private key of the certificate is not exported. Deploy the certificate instead: add a target to the certificate \
         and renew it; another person then approves the plan with this target"
    )]
    Export(String),
    /// The approved plan of the version does not contain the target, or the target changed since the approval.
    #[error(
        "{reason}, and the approved plan of the current version does not have {targets} with the current configuration: renew the \
         certificate; another person then approves the plan with its targets"
    )]
    Targets {
        /// Reason why approval is required.
        reason: String,
        /// Comma-separated targets that the approved plan does not contain.
        targets: String,
    },
}

/// Reason why the private key of a version is not released.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ReleaseError {
    /// Another person must approve.
    #[error(transparent)]
    NotApproved(#[from] NotApproved),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

crate::error::from_data!(ReleaseError);

/// Returns the certificate with the profile and policy under which the version was issued.
fn as_issued(certificate: &ManagedCertificate, version: &ManagedVersion) -> ManagedCertificate {
    match &version.profile {
        Some(profile) => ManagedCertificate {
            profile: profile.clone(),
            policy: version.policy.clone(),
            ..certificate.clone()
        },
        None => certificate.clone(),
    }
}

/// The approved targets of a version, and the reason why approval is required.
struct ApprovedTargets {
    /// Reason why approval is required.
    reason: String,
    /// Targets of the approved plan; empty without an approval.
    targets: Vec<String>,
}

impl Lifecycle {
    /// Checks that the key of a version may be used outside of this server. A certificate that requires approval, now or when the
    /// version was issued, releases its key to the targets of the approved plan only.
    pub(super) async fn check_release(
        &self,
        certificate: &ManagedCertificate,
        version: &ManagedVersion,
        uses: KeyUse,
    ) -> Result<(), ReleaseError> {
        let Some(approved) = self.approved_targets(certificate, version).await? else { return Ok(()) };
        match uses {
            KeyUse::Export => Err(NotApproved::Export(approved.reason).into()),
            KeyUse::Deploy { target, agent } => self.check_targets(approved, vec![(target, agent)]).await,
        }
    }

    /// Checks that the key of the current version may be sent to all targets of the certificate.
    pub(super) async fn check_redeployment(&self, certificate: Uuid) -> Result<(), ReleaseError> {
        let table = tables::Managed::of(&self.inner.store);
        let view = table.get(certificate).await?;
        let view = view.ok_or_else(|| DataError::not_found("certificate", certificate))?;
        let Some(version) = view.row.version else { return Ok(()) };
        let Some(version) = table.version(version).await?.filter(|version| version.key.is_some()) else {
            return Ok(());
        };
        let certificate = ManagedCertificate::from_view(&view)?;
        let Some(approved) = self.approved_targets(&certificate, &version).await? else { return Ok(()) };
        let target_agents = certificate.targets.iter().filter_map(|target| match target {
            TargetRef::Deploy { target, agent } => Some((*target, *agent)),
            TargetRef::Endpoint { .. } => None,
        });
        self.check_targets(approved, target_agents.collect()).await
    }

    /// Returns the approved targets of a version; `None` if the version needs no approval.
    async fn approved_targets(
        &self,
        certificate: &ManagedCertificate,
        version: &ManagedVersion,
    ) -> Result<Option<ApprovedTargets>, ReleaseError> {
        let approval = match version.job {
            Some(job) => tables::Approvals::of(&self.inner.store).granted_approval_of(job).await?,
            None => None,
        };
        let now = match self.judge(certificate).await?.approval {
            Some(reason) => Some(reason),
            // Evaluates the profile and policy under which the version was issued, not the current ones.
            None => self.judge(&as_issued(certificate, version)).await?.approval,
        };
        // A key that needed approval at issuance stays protected, even if the certificate now has another profile or policy.
        let reason = match (now, &approval) {
            (Some(reason), _) => reason,
            (None, Some(_)) => "the current version was issued after approval by another person".to_owned(),
            (None, None) => return Ok(None),
        };
        let plan = approval.and_then(|approval| approval.plan);
        let plan: Option<authority::plan::IssuancePlan> =
            plan.and_then(|text| serde_json::from_str(&text).ok());
        Ok(Some(ApprovedTargets { reason, targets: plan.map(|plan| plan.targets).unwrap_or_default() }))
    }

    async fn check_targets(
        &self,
        approved: ApprovedTargets,
        target_agents: Vec<(Uuid, Uuid)>,
    ) -> Result<(), ReleaseError> {
        let requested = target_agents.clone();
        let read = transaction(move |tx| async move { target_texts(tx, &requested).await }.boxed());
        let texts: Result<Vec<String>, StoreError> = self.inner.store.write("approved_targets", read).await;
        let texts = texts?;
        let missing = target_agents.iter().zip(&texts).filter(|(_, text)| !approved.targets.contains(text));
        let missing: Vec<String> = missing.map(|((target, _), _)| format!("the target {target}")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(NotApproved::Targets { reason: approved.reason, targets: missing.join(", ") }.into())
    }
}
