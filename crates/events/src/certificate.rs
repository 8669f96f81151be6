//! Bodies about certificates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::Fingerprint;

use crate::endpoint::EndpointCertificate;
use crate::ownership::Ownership;

/// A managed certificate as it is after the event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManagedCertificate {
    /// Its unique name.
    pub name: String,
    /// The profile.
    pub profile: String,
    /// The issuer.
    pub issuer: String,
    /// The owner.
    pub owner: Option<String>,
    /// The owner's team.
    pub team: Option<String>,
    /// The environment: `production`.
    pub environment: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Start of the current version's validity, µs; `None` before the first version.
    pub not_before_us: Option<i64>,
    /// End of the current version's validity, µs; `None` before the first version.
    pub not_after_us: Option<i64>,
    /// Start of validity of what is served, µs; `None` when nothing is verified as served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_not_before_us: Option<i64>,
    /// The earliest end of what is served, chains included, µs; `None` when nothing is verified as served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_not_after_us: Option<i64>,
}

/// Another version of a managed certificate than before is, of all that are verified as served, the one that ends first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateServed {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// SHA-256 of the leaf; `None` when nothing is verified as served any more.
    pub fingerprint: Option<Fingerprint>,
}

/// The newest version of a managed certificate is not in place at every target after a tenth of the time that was left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateDeploymentLate {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// Since when a version waits to be in place, µs. A renewal in between does not change it.
    pub since_us: i64,
    /// Error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The run that an event belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The run's id.
    pub job: Uuid,
    /// Why the run exists: `planned`.
    pub reason: String,
    /// Who requested the run, as the audit log names actors.
    pub requested_by: String,
    /// Attempts so far.
    pub attempts: i64,
}

/// A managed certificate was entered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateCreated {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// Actor that created it.
    pub actor: String,
}

/// A certificate that was found is managed from now on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateClaimed {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// SHA-256 of its first version.
    pub fingerprint: Fingerprint,
}

/// A run of a managed certificate moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateRun {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run.
    #[serde(flatten)]
    pub run: Run,
}

/// The approval of a run was refused, or lapsed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateRejected {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The approval's id.
    pub approval: Uuid,
    /// The run's id.
    pub job: Uuid,
    /// Who requested the run.
    pub requested_by: String,
    /// The reason that the deciding person gave.
    pub note: Option<String>,
}

/// A run ended without success.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateFailed {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// What went wrong; `None` when an agent did not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The deployment, when that failed.
    #[serde(flatten)]
    pub deployment: Option<Deployment>,
}

/// Every target has the new version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateDeployed {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// The last deployment of the run.
    #[serde(flatten)]
    pub deployment: Deployment,
}

/// One deployment to one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// The target's id; `None` when it is not known.
    pub target: Option<Uuid>,
    /// Outcome of the deployment.
    pub outcome: DeploymentOutcome,
}

/// How a deployment ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentOutcome {
    /// The files were written and the service reloaded.
    Deployed,
    /// The target had the version already.
    Unchanged,
    /// It failed before anything changed.
    Failed,
    /// It failed, and the previous state was restored.
    RolledBack,
    /// It failed, and restoring the previous state failed too.
    Broken,
}

/// A certificate was issued. A managed one has two such events, one of each form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CertificateIssued {
    /// A managed certificate has a new version. The subject is the managed certificate.
    Version(Box<IssuedVersion>),
    /// The CA of this server signed a certificate. The subject is the issued certificate.
    ByAuthority(IssuedByAuthority),
}

/// A new version of a managed certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IssuedVersion {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// The serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of the leaf.
    pub fingerprint: Fingerprint,
}

/// A certificate that the CA of this server signed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IssuedByAuthority {
    /// The CA's id.
    pub ca: Uuid,
    /// The profile; empty without one.
    pub profile: String,
    /// The protocol of the request: `acme`.
    pub source: String,
    /// Actor that requested it.
    pub requester: String,
    /// SHA-256 of the certificate.
    pub sha256: Fingerprint,
    /// End of validity, µs.
    pub not_after: i64,
}

/// A certificate was revoked. A managed one has two such events, one of each form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CertificateRevoked {
    /// The current version of a managed certificate. The subject is the managed certificate.
    Version(Box<RevokedVersion>),
    /// A certificate of the CA of this server. The subject is the issued certificate.
    ByAuthority(RevokedByAuthority),
}

/// The current version of a managed certificate was revoked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevokedVersion {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The origin of the revocation.
    #[serde(flatten)]
    pub origin: RevocationOrigin,
    /// The reason of RFC 5280 section 5.3.1: `superseded`.
    pub reason: String,
    /// Who requested the revocation.
    pub requested_by: String,
}

/// What revoked the current version of a managed certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevocationOrigin {
    /// A run at the certificate's issuer, by its id.
    Job(Uuid),
    /// A revocation at the CA of this server, by its id.
    Action(Uuid),
}

/// One call revoked certificates at the CA of this server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevokedByAuthority {
    /// The revocation's id.
    pub action: Uuid,
    /// The reason of RFC 5280 section 5.3.1: `superseded`.
    pub reason: String,
    /// Certificates that the call revoked.
    pub count: u64,
}

/// The issuer of a managed certificate did not revoke it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateRevocationFailed {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: ManagedCertificate,
    /// The run's id.
    pub job: Uuid,
    /// The error.
    pub error: String,
    /// Attempts so far.
    pub attempts: i64,
}

/// A watch found a certificate that is not managed; its expiry is watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateFound {
    /// The certificate, and the watch that found it. `name` is the name of the certificate.
    #[serde(flatten)]
    pub found: EndpointCertificate,
    /// The endpoint that serves it, or the resource that holds it.
    pub detail: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// The owner by the rules of ownership.
    #[serde(flatten)]
    pub ownership: Ownership,
}

/// No endpoint of any watch shows a certificate any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateUnserved {}

/// A certificate that was found is not to be managed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateDismissed {}
