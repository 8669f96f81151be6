//! Event bodies about certificates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::Fingerprint;

use crate::endpoint::EndpointCertificate;
use crate::ownership::Ownership;

/// A managed certificate in its state after the event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManagedCertificate {
    /// Unique name of the certificate.
    pub name: String,
    /// Name of the profile.
    pub profile: String,
    /// Name of the issuer.
    pub issuer: String,
    /// Name of the certificate's owner. `None` without an owner.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// Environment, such as `production`.
    pub environment: Option<String>,
    /// Tags of the certificate, by name.
    pub tags: BTreeMap<String, String>,
    /// Start of the current version's validity, µs; `None` before the first version.
    pub not_before_us: Option<i64>,
    /// End of the current version's validity, µs; `None` before the first version.
    pub not_after_us: Option<i64>,
    /// Start of validity of the served version, µs. `None` when no version is verified as served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_not_before_us: Option<i64>,
    /// Earliest end of validity of the served versions and their chains, µs. `None` when no version is verified as served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_not_after_us: Option<i64>,
}

/// The served version of a managed certificate changed. If several versions are served, the one that expires first counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateServed {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// SHA-256 of the leaf. `None` when no version is verified as served any more.
    pub fingerprint: Option<Fingerprint>,
}

/// The newest version of a managed certificate is not deployed to every target after a tenth of the remaining lifetime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateDeploymentLate {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// Time since which a version is not fully deployed, µs. A renewal in between does not change this time.
    pub since_us: i64,
    /// Error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The run of a managed certificate that an event belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// ID of the run, which is a job in the API.
    pub job: Uuid,
    /// Reason for the run, such as `planned`.
    pub reason: String,
    /// Actor that requested the run, in the notation of the audit log.
    pub requested_by: String,
    /// Number of attempts so far.
    pub attempts: i64,
}

/// A managed certificate was created.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateCreated {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// Actor that created the certificate.
    pub actor: String,
}

/// A discovered certificate became a managed one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateClaimed {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// SHA-256 of the first version.
    pub fingerprint: Fingerprint,
}

/// The state of a managed certificate's run changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateRun {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run that caused the event.
    #[serde(flatten)]
    pub run: Run,
}

/// The approval of a managed certificate's run was rejected or expired.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateRejected {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// ID of the rejected or expired approval.
    pub approval: Uuid,
    /// ID of the run, which is a job in the API.
    pub job: Uuid,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Reason that the approver gave.
    pub note: Option<String>,
}

/// A run of a managed certificate failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateFailed {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run that caused the event.
    #[serde(flatten)]
    pub run: Run,
    /// Error message; `None` when an agent did not respond in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The failed deployment, if the deployment was the cause.
    #[serde(flatten)]
    pub deployment: Option<Deployment>,
}

/// The new version of a managed certificate is deployed to every target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateDeployed {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run that caused the event.
    #[serde(flatten)]
    pub run: Run,
    /// The last deployment of the run.
    #[serde(flatten)]
    pub deployment: Deployment,
}

/// Target and outcome of a deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// The target's id. `None` when unknown.
    pub target: Option<Uuid>,
    /// Whether the deployment succeeded, changed nothing, or failed.
    pub outcome: DeploymentOutcome,
}

/// Outcome of a deployment, as the agent reported it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentOutcome {
    /// The files were written and the service reloaded.
    Deployed,
    /// The target already had the version.
    Unchanged,
    /// The deployment failed before it changed anything.
    Failed,
    /// The deployment failed, and the previous state was restored.
    RolledBack,
    /// The deployment failed, and so did the restoration of the previous state.
    Broken,
}

/// A certificate was issued. A managed certificate gets two such events, one per variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CertificateIssued {
    /// A managed certificate has a new version. The subject is the managed certificate.
    Version(Box<IssuedVersion>),
    /// The internal CA signed a certificate. The subject is the issued certificate.
    ByAuthority(IssuedByAuthority),
}

/// A new version of a managed certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IssuedVersion {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run that caused the event.
    #[serde(flatten)]
    pub run: Run,
    /// Serial number in hexadecimal.
    pub serial: String,
    /// SHA-256 of the leaf.
    pub fingerprint: Fingerprint,
}

/// A certificate that the internal CA signed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IssuedByAuthority {
    /// ID of the CA that signed the certificate.
    pub ca: Uuid,
    /// Name of the profile. Empty without a profile.
    pub profile: String,
    /// Protocol of the request, such as `acme`.
    pub source: String,
    /// Actor that requested the certificate.
    pub requester: String,
    /// SHA-256 of the certificate.
    pub sha256: Fingerprint,
    /// End of validity, µs since 1970-01-01 UTC.
    pub not_after: i64,
}

/// A certificate was revoked. A managed certificate gets two such events, one per variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CertificateRevoked {
    /// The current version of a managed certificate was revoked. The subject is the managed certificate.
    Version(Box<RevokedVersion>),
    /// A certificate of the internal CA was revoked. The subject is the issued certificate.
    ByAuthority(RevokedByAuthority),
}

/// The current version of a managed certificate was revoked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevokedVersion {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run or the call that revoked the version.
    #[serde(flatten)]
    pub origin: RevocationOrigin,
    /// Revocation reason of RFC 5280 section 5.3.1, such as `superseded`.
    pub reason: String,
    /// Actor that requested the revocation.
    pub requested_by: String,
}

/// Cause of the revocation of a managed certificate's current version.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevocationOrigin {
    /// A revocation run at the certificate's issuer: id of the run.
    Job(Uuid),
    /// A revocation at the internal CA: id of the revocation.
    Action(Uuid),
}

/// A call revoked certificates at the internal CA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevokedByAuthority {
    /// ID of the revocation, common to all certificates of the call.
    pub action: Uuid,
    /// Revocation reason of RFC 5280 section 5.3.1, such as `superseded`.
    pub reason: String,
    /// Number of certificates that the call revoked.
    pub count: u64,
}

/// The issuer of a managed certificate failed to revoke it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateRevocationFailed {
    /// The managed certificate that the event is about.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// ID of the run, which is a job in the API.
    pub job: Uuid,
    /// Error message of the failed attempt.
    pub error: String,
    /// Number of attempts so far.
    pub attempts: i64,
}

/// A watch found a certificate that is not managed. Its expiry is watched from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateFound {
    /// The certificate and the watch that found it. In this event, `name` is the name of the certificate, not of an endpoint.
    #[serde(flatten)]
    pub found: EndpointCertificate,
    /// The endpoint that serves the certificate, or the resource that contains it.
    pub detail: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs since 1970-01-01 UTC.
    pub not_after_us: i64,
    /// Owner, team, environment and tags by the ownership rules.
    #[serde(flatten)]
    pub ownership: Ownership,
}

/// A certificate is no longer served by any watched endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateUnserved {}

/// A discovered certificate was dismissed: it will not be managed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateDismissed {}
