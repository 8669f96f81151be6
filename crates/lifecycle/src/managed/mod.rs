//! Managed certificates, and requests about them.

mod convert;
mod request;

use std::collections::BTreeMap;

use keys::KeyType;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Fingerprint, GeneralName};

use crate::job::JobId;
use crate::renewal::RenewalRule;
use crate::state::{Current, State};

pub use convert::Unreadable;
pub(crate) use convert::{first_der, json, options_of, row_of, split, targets_of};
/// Limits for labels and tags, the same as for certificates that scans found.
pub use inventory::ownership::{LABEL_BYTES_MAX, TAGS_MAX};
pub(crate) use request::check_label;
pub use request::{BadRequest, CertificateChange, NewCertificate};

/// Name of the internal CA as an issuer.
pub const INTERNAL_ISSUER: &str = "internal";

/// Maximum names of a certificate. Public issuers accept this number.
pub const NAMES_MAX: usize = 100;
/// Maximum targets of a certificate. Larger fleets use several certificates.
pub const TARGETS_MAX: usize = 256;
/// Maximum length of notes, in bytes.
pub const NOTES_BYTES_MAX: usize = 8_192;

/// A certificate that Bulla issues, renews and deploys.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedCertificate {
    /// Id of the certificate. Also the trace ID of its spans.
    pub id: Uuid,
    /// Unique name of the certificate.
    pub name: String,
    /// Names to be certified, such as DNS names and IP addresses.
    pub names: Vec<GeneralName>,
    /// Profile that the certificate is issued by.
    pub profile: String,
    /// Name of the issuer.
    pub issuer: String,
    /// Person who owns the certificate.
    pub owner: Option<String>,
    /// Team that owns the certificate.
    pub team: Option<String>,
    /// Tags set by users.
    pub tags: BTreeMap<String, String>,
    /// Environment, such as `production`.
    pub environment: Option<String>,
    /// Policy of the certificate. The policy also determines when the certificate is renewed.
    pub policy: Option<String>,
    /// Location of the private key.
    pub key_location: KeyLocation,
    /// Algorithm and size of the private key, such as P-256.
    pub key_type: KeyType,
    /// Deployment targets, and endpoints that serve the certificate.
    pub targets: Vec<TargetRef>,
    /// Further settings, such as automatic renewal and notes.
    pub options: Options,
    /// State in the lifecycle, such as pending, issuing, active or archived.
    pub state: State,
    /// Revision, incremented with every change; used for ETags.
    pub revision: i64,
    /// The newest version. `None` before the first issuance.
    pub current: Option<CurrentVersion>,
    /// Among the versions verified as served, the version that expires first. `None` if no version was verified.
    pub served: Option<ServedVersion>,
    /// Time from which a version has been waiting for deployment to at least one target, in µs since 1970. `None` if no version is
    /// waiting.
    pub undeployed_since_us: Option<i64>,
    /// The planned run, or the run in progress.
    pub run: Option<Run>,
    /// Number of failed runs since the last successful one.
    pub failures: u32,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Creation time, in µs since 1970.
    pub created_at_us: i64,
    /// Time of the last change, in µs since 1970.
    pub updated_at_us: i64,
}

/// Location of a private key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum KeyLocation {
    /// The server stores the key, encrypted. Callers with permission can export the key.
    Server,
    /// An agent stores the key on its host. The key never leaves that host.
    Agent {
        /// Id of the agent.
        agent: Uuid,
    },
    /// The key service stores the key and never exports it.
    KeyService,
}

/// A target of a certificate: a deployment target, or an endpoint that serves the certificate.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TargetRef {
    /// An agent deploys the certificate.
    Deploy {
        /// Id of the target.
        target: Uuid,
        /// Id of the agent of the target.
        agent: Uuid,
    },
    /// An endpoint of the inventory that serves the certificate. Bulla deploys nothing there.
    Endpoint {
        /// Host name, IP address or file path.
        host: String,
        /// TCP port; 0 for files.
        port: u16,
        /// Protocol: `tls`, `smtp`, …
        protocol: String,
        /// Server name (SNI) that the probe sends.
        server_name: String,
    },
}

/// Further settings of a certificate, such as automatic renewal, subject and notes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Whether the scheduler renews the certificate automatically.
    pub auto_renew: bool,
    /// Renewal rule of this certificate. It replaces the rule of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalRule>,
    /// Requested lifetime of a version, in seconds. Default: set by the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<i64>,
    /// Subject in text form, such as `CN=a, O=b`. Default: set by the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Whether the certificate requires OCSP stapling (RFC 7633).
    pub must_staple: bool,
    /// Profile, role or provisioner of the external issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_profile: Option<String>,
    /// Free-text notes, for users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notes: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            auto_renew: true,
            renewal: None,
            lifetime_seconds: None,
            subject: None,
            must_staple: false,
            issuer_profile: None,
            notes: String::new(),
        }
    }
}

/// The newest version of a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurrentVersion {
    /// SHA-256 of the leaf.
    pub fingerprint: Fingerprint,
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// End of validity, in µs since 1970.
    pub not_after_us: i64,
    /// Whether the version is revoked.
    pub revoked: bool,
}

/// A version that is verified as served: an agent deployed it or found it on its host, or a scan saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServedVersion {
    /// SHA-256 of the leaf.
    pub fingerprint: Fingerprint,
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// Earliest end of validity in the chain, in µs since 1970.
    pub not_after_us: i64,
}

/// The open issuance or renewal run of a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Id of the run.
    pub job: JobId,
    /// State of the run, such as queued, running or waiting for approval.
    pub state: crate::job::JobState,
    /// Time of the first attempt or the next retry, in µs since 1970.
    pub next_attempt_at_us: i64,
    /// Number of attempts so far.
    pub attempts: u32,
}

impl ManagedCertificate {
    /// Returns the end of validity of the served version, or else of the newest version, in µs since 1970. `None` before the first
    /// version.
    #[must_use]
    pub fn ends_at_us(&self) -> Option<i64> {
        let served = self.served.map(|version| version.not_after_us);
        served.or(self.current.map(|version| version.not_after_us))
    }

    /// Returns the start of the next run, in µs since 1970. `None` if none is planned, or a run is in progress or waits for
    /// approval.
    #[must_use]
    pub fn renew_at_us(&self) -> Option<i64> {
        self.run.filter(|run| run.state == crate::job::JobState::Queued).map(|run| run.next_attempt_at_us)
    }

    /// Returns the status of the newest version: none, not revoked, or revoked.
    #[must_use]
    pub fn version_status(&self) -> Current {
        version_status(self.current.is_some(), self.current.is_some_and(|version| version.revoked))
    }
}

pub(crate) fn version_status(issued: bool, revoked: bool) -> Current {
    match (issued, revoked) {
        (false, _) => Current::None,
        (true, false) => Current::Good,
        (true, true) => Current::Revoked,
    }
}

/// A version of a certificate, with its chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// SHA-256 of the leaf.
    pub fingerprint: Fingerprint,
    /// Serial number of the leaf, hexadecimal.
    pub serial: String,
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// End of validity, in µs since 1970.
    pub not_after_us: i64,
    /// Name of the issuer.
    pub issuer: String,
    /// Whether this server stores the private key.
    pub key_here: bool,
    /// Certificates in DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// Time of issuance, in µs since 1970.
    pub issued_at_us: i64,
    /// Time (in µs since 1970) and reason of the revocation.
    pub revoked: Option<(i64, Reason)>,
}
