//! The enum of all kinds of events.

use serde_json::Value;

use crate::acme::{
    AcmeAccountChanged, AcmeAccountCreated, AcmeAccountKeyChanged, AcmeAccountRevoked, AcmeOrderCompleted,
    AcmeOrderRefused,
};
use crate::agent::AgentContact;
use crate::audit::{AuditBroken, AuditWitness};
use crate::certificate::{
    CertificateClaimed, CertificateCreated, CertificateDeployed, CertificateDeploymentLate,
    CertificateDismissed, CertificateFailed, CertificateFound, CertificateIssued, CertificateRejected,
    CertificateRevocationFailed, CertificateRevoked, CertificateRun, CertificateServed, CertificateUnserved,
    ManagedCertificate, RevokedByAuthority,
};
use crate::change::{ApprovalGiven, ChangeDecided, ChangeWaiting};
use crate::credential::{
    CredentialChange, CredentialLeaseRevocation, CredentialName, CredentialRotationFailed,
};
use crate::ct::{
    CtIssuance, CtIssuanceDecision, CtIssuanceExpected, CtLag, CtLagEnded, CtLogConsistent, CtLogInconsistent,
};
use crate::drift::Drift;
use crate::endpoint::{EndpointCertificateChanged, EndpointTrouble, EndpointTroubleOver};
use crate::enrolment::{EnrolmentDecided, EnrolmentWaiting};
use crate::issuer::IssuerCondition;
use crate::profile::ProfileChanged;
use crate::watch::{WatchRemoved, WatchRun};

/// The body of an event does not match its kind.
#[derive(Debug, thiserror::Error)]
#[error("cannot parse the body of the event {kind}: {source}")]
pub struct UnreadableEvent {
    kind: &'static str,
    source: serde_json::Error,
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($body:ty) = $kind:literal,)+) => {
        /// An event with its typed body.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $variant($body),)+
        }

        impl Event {
            /// All kinds, in the order of the enum.
            pub const KINDS: &[&str] = &[$($kind),+];

            /// Returns the kind as stored and streamed: `certificate.issued`.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)+
                }
            }

            /// Returns the body as stored and streamed: a JSON object with its members in alphabetical order.
            #[must_use]
            pub fn body(&self) -> String {
                let body = match self {
                    $(Self::$variant(body) => serde_json::to_value(body),)+
                };
                // Serialization cannot fail: the keys of all maps are strings.
                body.as_ref().map(Value::to_string).unwrap_or_default()
            }

            /// Parses an event of the outbox. `None` for a kind that only a newer version knows.
            ///
            /// # Errors
            /// [`UnreadableEvent`] when the body does not match a known kind.
            pub fn read(kind: &str, body: &str) -> Result<Option<Self>, UnreadableEvent> {
                match kind {
                    $($kind => match serde_json::from_str(body) {
                        Ok(body) => Ok(Some(Self::$variant(body))),
                        Err(source) => Err(UnreadableEvent { kind: $kind, source }),
                    },)+
                    _ => Ok(None),
                }
            }
        }
    };
}

events! {
    /// A managed certificate was created.
    CertificateCreated(CertificateCreated) = "certificate.created",
    /// The settings of a managed certificate changed.
    CertificateChanged(ManagedCertificate) = "certificate.changed",
    /// A discovered certificate became a managed one.
    CertificateClaimed(CertificateClaimed) = "certificate.claimed",
    /// A managed certificate was archived.
    CertificateArchived(ManagedCertificate) = "certificate.archived",
    /// An archived certificate was restored: it is managed again.
    CertificateRestored(ManagedCertificate) = "certificate.restored",
    /// A run of a managed certificate waits for approval by a second person.
    CertificateApprovalNeeded(CertificateRun) = "certificate.approval_needed",
    /// The approval of a managed certificate's run was rejected or expired.
    CertificateRejected(CertificateRejected) = "certificate.rejected",
    /// A run of a managed certificate waits for the CSR of the agent that holds the key.
    CertificateCsrNeeded(CertificateRun) = "certificate.csr_needed",
    /// A run of a managed certificate was cancelled.
    CertificateCancelled(CertificateRun) = "certificate.cancelled",
    /// A run of a managed certificate failed.
    CertificateFailed(CertificateFailed) = "certificate.failed",
    /// The new version of a managed certificate is deployed to every target.
    CertificateDeployed(CertificateDeployed) = "certificate.deployed",
    /// The newest version of a managed certificate is overdue: it is still not deployed to every target.
    CertificateDeploymentLate(CertificateDeploymentLate) = "certificate.deployment_late",
    /// The version of a managed certificate that is verified as served changed.
    CertificateServed(CertificateServed) = "certificate.served",
    /// A certificate was issued.
    CertificateIssued(CertificateIssued) = "certificate.issued",
    /// A certificate was revoked.
    CertificateRevoked(CertificateRevoked) = "certificate.revoked",
    /// The issuer of a managed certificate failed to revoke it.
    CertificateRevocationFailed(CertificateRevocationFailed) = "certificate.revoke_failed",
    /// One call revoked more certificates than the limit for separate events. This event replaces the separate events.
    CertificatesRevoked(RevokedByAuthority) = "certificates.revoked",
    /// A watch found a certificate that is not managed. Its expiry is watched from now on.
    CertificateFound(CertificateFound) = "certificate.found",
    /// A certificate is no longer served by any watched endpoint.
    CertificateUnserved(CertificateUnserved) = "certificate.unserved",
    /// A discovered certificate was dismissed: it will not be managed.
    CertificateDismissed(CertificateDismissed) = "certificate.dismissed",
    /// A profile was created, changed or deleted.
    ProfileChanged(ProfileChanged) = "profile.changed",
    /// An EST or SCEP request waits for approval.
    EnrolmentWaiting(EnrolmentWaiting) = "enrolment.waiting",
    /// An EST or SCEP request was approved or rejected.
    EnrolmentDecided(EnrolmentDecided) = "enrolment.decided",
    /// An approver approved a plan that needs more approvals.
    ApprovalGiven(ApprovalGiven) = "approval.given",
    /// A change waits for approval, or for more approvals.
    ChangeWaiting(ChangeWaiting) = "change.waiting",
    /// A change was applied or rejected, or became void.
    ChangeDecided(ChangeDecided) = "change.decided",
    /// An ACME account was created.
    AcmeAccountCreated(AcmeAccountCreated) = "acme_account.created",
    /// An ACME client changed its account's contacts.
    AcmeAccountUpdated(AcmeAccountChanged) = "acme_account.updated",
    /// An ACME client deactivated its account.
    AcmeAccountDeactivated(AcmeAccountChanged) = "acme_account.deactivated",
    /// An ACME client changed its account's key.
    AcmeAccountKeyChanged(AcmeAccountKeyChanged) = "acme_account.key_changed",
    /// An operator revoked an ACME account.
    AcmeAccountRevoked(AcmeAccountRevoked) = "acme_account.revoked",
    /// The certificate of an ACME order was issued.
    AcmeOrderCompleted(AcmeOrderCompleted) = "acme_order.completed",
    /// Issuance for an ACME order was refused.
    AcmeOrderRefused(AcmeOrderRefused) = "acme_order.refused",
    /// An agent stopped reporting.
    AgentOffline(AgentContact) = "agent.offline",
    /// An agent reports again.
    AgentOnline(AgentContact) = "agent.online",
    /// The circuit breaker of an issuer opened.
    IssuerUnhealthy(IssuerCondition) = "issuer.unhealthy",
    /// An issuer issues again.
    IssuerHealthy(IssuerCondition) = "issuer.healthy",
    /// Verification found a broken chain of the audit log.
    AuditBroken(AuditBroken) = "audit.broken",
    /// A witness of the audit log rejects signed heads.
    AuditWitnessFailing(AuditWitness) = "audit.witness_failing",
    /// A witness of the audit log accepts signed heads again.
    AuditWitnessRecovered(AuditWitness) = "audit.witness_recovered",
    /// An endpoint has a condition that requires attention.
    EndpointTrouble(EndpointTrouble) = "endpoint.trouble",
    /// A condition of an endpoint ended.
    EndpointTroubleOver(EndpointTroubleOver) = "endpoint.trouble_over",
    /// An endpoint serves another certificate or chain.
    EndpointCertificateChanged(EndpointCertificateChanged) = "endpoint.certificate_changed",
    /// A run of a watch finished.
    WatchFinished(WatchRun) = "watch.finished",
    /// A run of a watch failed.
    WatchFailed(WatchRun) = "watch.failed",
    /// A watch was removed.
    WatchRemoved(WatchRemoved) = "watch.removed",
    /// A CT log has a certificate for a watched domain without a known request.
    CtUnexpectedIssuance(CtIssuance) = "ct.unexpected_issuance",
    /// An issuance is expected: a person marked it, or it matches a known request.
    CtIssuanceExpected(CtIssuanceExpected) = "ct.issuance_expected",
    /// A person acknowledged an unexpected issuance.
    CtIssuanceAcknowledged(CtIssuanceDecision) = "ct.issuance_acknowledged",
    /// A CT log forked, rolled back, or serves entries that it did not sign.
    CtLogInconsistent(CtLogInconsistent) = "ct.log_inconsistent",
    /// A CT log is consistent again, or its stored position was reset.
    CtLogConsistent(CtLogConsistent) = "ct.log_consistent",
    /// A CT search service or log fails or is behind for too long.
    CtBehind(CtLag) = "ct.behind",
    /// A CT search service or log caught up, or its stored position was reset.
    CtCaughtUp(CtLagEnded) = "ct.caught_up",
    /// Scans take longer than in the last week.
    DriftScanSlow(Drift) = "drift.scan_slow",
    /// Scans again take as long as usual.
    DriftScanSlowOver(Drift) = "drift.scan_slow_over",
    /// Too many calls to a provider fail.
    DriftProviderErrors(Drift) = "drift.provider_errors",
    /// Calls to a provider succeed again.
    DriftProviderErrorsOver(Drift) = "drift.provider_errors_over",
    /// Nearly all database connections of a node are in use.
    DriftDatabasePool(Drift) = "drift.database_pool",
    /// A node has enough free database connections again.
    DriftDatabasePoolOver(Drift) = "drift.database_pool_over",
    /// A node has far more tasks than in the last week.
    DriftTasks(Drift) = "drift.tasks",
    /// A node has the usual number of tasks again.
    DriftTasksOver(Drift) = "drift.tasks_over",
    /// A credential, or one of its versions, changed.
    CredentialChanged(CredentialChange) = "credential.changed",
    /// A credential or some of its versions were deleted.
    CredentialDeleted(CredentialChange) = "credential.deleted",
    /// The rotation of a due credential failed.
    CredentialRotationFailed(CredentialRotationFailed) = "credential.rotation_failed",
    /// A failed rotation no longer requires attention.
    CredentialRotationRecovered(CredentialName) = "credential.rotation_recovered",
    /// The revocation of leases at their database failed three times.
    CredentialLeaseRevocationFailed(CredentialLeaseRevocation) = "credential.lease_revocation_failed",
    /// All leases of a database connection whose revocation had failed three times are now revoked.
    CredentialLeaseRevocationRecovered(CredentialLeaseRevocation) = "credential.lease_revocation_recovered",
}
