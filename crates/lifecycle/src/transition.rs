//! A transition of a managed certificate: the input of the state machine, with the details of its audit row and event.

use events::{
    CertificateDeployed, CertificateFailed, CertificateIssued, CertificateRejected, CertificateRevoked,
    CertificateRun, Deployment, Event, IssuedVersion, ManagedCertificate, RevocationOrigin, RevokedVersion,
    Run,
};
use serde::Serialize;
use serde_json::{Value as Json, json};
use uuid::Uuid;
use x509::Fingerprint;

use crate::job::id_of;
use crate::state::{Current, Input};
use crate::tables::jobs::JobRow;
use crate::tables::managed::ManagedRow;

/// A state transition of a certificate, with the details for its audit row and event.
pub(crate) enum Transition {
    ApprovalNeeded(Run),
    Approved(Current, ApprovalDetails),
    Rejected(Current, ApprovalDetails),
    CsrNeeded(Run),
    Started(Run),
    Issued { has_targets: bool, version: Version },
    Deployed(DeploymentCompletion),
    RedeployRequested,
    RunFailed(Failure),
    Cancelled(Current, Run),
    Revoked(Revocation),
    Archived,
    Restored(Current),
}

/// Decision of a person about a run.
#[derive(Serialize)]
pub(crate) struct ApprovalDetails {
    pub(crate) approval: Uuid,
    pub(crate) job: Uuid,
    pub(crate) requested_by: String,
    pub(crate) note: Option<String>,
}

/// The version that a run issued.
#[derive(Clone, Serialize)]
pub(crate) struct Version {
    #[serde(flatten)]
    pub(crate) run: Run,
    pub(crate) serial: String,
    pub(crate) fingerprint: Fingerprint,
}

/// Completion of a run's last deployment.
#[derive(Clone, Serialize)]
pub(crate) struct DeploymentCompletion {
    #[serde(flatten)]
    pub(crate) run: Run,
    #[serde(flatten)]
    pub(crate) deployment: Deployment,
}

/// Reason why a run failed.
#[derive(Serialize)]
pub(crate) struct Failure {
    #[serde(flatten)]
    pub(crate) run: Run,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(flatten)]
    pub(crate) deployment: Option<Deployment>,
}

/// Revocation of the current version.
#[derive(Serialize)]
pub(crate) struct Revocation {
    #[serde(flatten)]
    pub(crate) origin: RevocationOrigin,
    pub(crate) reason: String,
    pub(crate) requested_by: String,
}

impl Transition {
    /// Returns the input of the state machine for this transition.
    pub(crate) fn input(&self) -> Input {
        match self {
            Self::ApprovalNeeded(_) => Input::ApprovalNeeded,
            Self::Approved(current, _) => Input::Approved(*current),
            Self::Rejected(current, _) => Input::Rejected(*current),
            Self::CsrNeeded(_) => Input::CsrNeeded,
            Self::Started(_) => Input::Started,
            Self::Issued { has_targets, .. } => Input::Issued { has_targets: *has_targets },
            Self::Deployed(_) => Input::Deployed,
            Self::RedeployRequested => Input::RedeployRequested,
            Self::RunFailed(_) => Input::RunFailed,
            Self::Cancelled(current, _) => Input::Cancelled(*current),
            Self::Revoked(_) => Input::Revoked,
            Self::Archived => Input::Archived,
            Self::Restored(current) => Input::Restored(*current),
        }
    }

    /// Returns the details of the audit row.
    pub(crate) fn details(&self) -> Json {
        match self {
            Self::ApprovalNeeded(run)
            | Self::CsrNeeded(run)
            | Self::Started(run)
            | Self::Cancelled(_, run) => {
                json!(run)
            }
            Self::Approved(_, consent) | Self::Rejected(_, consent) => json!(consent),
            Self::Issued { version, .. } => json!(version),
            Self::Deployed(delivery) => json!(delivery),
            Self::RunFailed(failure) => json!(failure),
            Self::Revoked(revocation) => json!(revocation),
            Self::RedeployRequested | Self::Archived | Self::Restored(_) => json!({}),
        }
    }

    /// Returns the event, with the certificate after the transition. `None` for a step within a run.
    pub(crate) fn event(self, certificate: ManagedCertificate) -> Option<Event> {
        Some(match self {
            Self::ApprovalNeeded(run) => {
                Event::CertificateApprovalNeeded(CertificateRun { certificate, run })
            }
            Self::Rejected(_, ApprovalDetails { approval, job, requested_by, note }) => {
                Event::CertificateRejected(CertificateRejected {
                    certificate,
                    approval,
                    job,
                    requested_by,
                    note,
                })
            }
            Self::CsrNeeded(run) => Event::CertificateCsrNeeded(CertificateRun { certificate, run }),
            Self::Issued { version: Version { run, serial, fingerprint }, .. } => {
                let version = IssuedVersion { certificate, run, serial, fingerprint };
                Event::CertificateIssued(CertificateIssued::Version(Box::new(version)))
            }
            Self::Deployed(DeploymentCompletion { run, deployment }) => {
                Event::CertificateDeployed(CertificateDeployed { certificate, run, deployment })
            }
            Self::RunFailed(Failure { run, error, deployment }) => {
                Event::CertificateFailed(CertificateFailed { certificate, run, error, deployment })
            }
            Self::Cancelled(_, run) => Event::CertificateCancelled(CertificateRun { certificate, run }),
            Self::Revoked(Revocation { origin, reason, requested_by }) => {
                let version = RevokedVersion { certificate, origin, reason, requested_by };
                Event::CertificateRevoked(CertificateRevoked::Version(Box::new(version)))
            }
            Self::Archived => Event::CertificateArchived(certificate),
            Self::Restored(_) => Event::CertificateRestored(certificate),
            Self::Approved(..) | Self::Started(_) | Self::RedeployRequested => return None,
        })
    }
}

/// Converts a certificate for use in events.
pub(crate) fn event_certificate(row: &ManagedRow) -> ManagedCertificate {
    ManagedCertificate {
        name: row.name.clone(),
        profile: row.profile.clone(),
        issuer: row.issuer.clone(),
        owner: row.owner.clone(),
        team: row.team.clone(),
        environment: row.environment.clone(),
        tags: serde_json::from_str(&row.tags).unwrap_or_default(),
        not_before_us: row.fingerprint.map(|_| row.not_before_us),
        not_after_us: row.fingerprint.map(|_| row.not_after_us),
        served_not_before_us: row.served.map(|served| served.not_before_us),
        served_not_after_us: row.served.map(|served| served.not_after_us),
    }
}

/// Converts a run for use in events and audit rows.
pub(crate) fn run_from_job(job: &JobRow) -> Run {
    Run {
        job: id_of(job).0,
        reason: job.reason.clone(),
        requested_by: job.requested_by.clone(),
        attempts: job.attempts,
    }
}
