//! Managed certificates, and the requests about them.

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
/// Found and managed certificates have the same labels.
pub use inventory::ownership::{LABEL_OCTETS_MAX, TAGS_MAX};
pub(crate) use request::check_label;
pub use request::{BadRequest, CertificateChange, NewCertificate};

/// The issuer that is our own CA.
pub const INTERNAL_ISSUER: &str = "internal";

/// Most names of a certificate: what public issuers take.
pub const NAMES_MAX: usize = 100;
/// Most targets of a certificate: a fleet behind one name; more is a group of certificates.
pub const TARGETS_MAX: usize = 256;
/// Longest notes, in bytes.
pub const NOTES_OCTETS_MAX: usize = 8_192;

/// A certificate under management.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedCertificate {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    pub name: String,
    /// The names in the certificate.
    pub names: Vec<GeneralName>,
    /// The profile it is issued by.
    pub profile: String,
    /// The issuer.
    pub issuer: String,
    /// The owner.
    pub owner: Option<String>,
    /// The team that does.
    pub team: Option<String>,
    /// Labels of people's own.
    pub tags: BTreeMap<String, String>,
    /// The environment: `production`.
    pub environment: Option<String>,
    /// The renewal policy.
    pub policy: Option<String>,
    /// Where its private key is.
    pub key_location: KeyLocation,
    /// The kind of its key.
    pub key_type: KeyType,
    /// The deployment targets.
    pub targets: Vec<TargetRef>,
    /// The rest of what people decide.
    pub options: Options,
    /// The state of the certificate.
    pub state: State,
    /// Moves with every change; for ETags.
    pub revision: i64,
    /// The newest version.
    pub current: Option<CurrentVersion>,
    /// Of the versions that are verified as served, the one that ends first. `None`: nothing was verified.
    pub served: Option<ServedVersion>,
    /// Since when a version waits to be in place at every target, µs.
    pub undeployed_since_us: Option<i64>,
    /// The run that is planned or under way.
    pub run: Option<Run>,
    /// Runs without success since the last one with.
    pub failures: u32,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// When it was entered, µs.
    pub created_at_us: i64,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

/// Where a private key is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum KeyLocation {
    /// In this server, sealed; it can be exported with permission.
    Server,
    /// On the agent's host: it never leaves.
    Agent {
        /// Which agent.
        agent: Uuid,
    },
    /// With the key service; never exported.
    KeyService,
}

/// A deployment target of a certificate.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TargetRef {
    /// An agent puts it in place.
    Deploy {
        /// The target.
        target: Uuid,
        /// Its agent.
        agent: Uuid,
    },
    /// An endpoint of the inventory that is to serve it; nothing is put in place by us.
    Endpoint {
        /// Name, address or path.
        host: String,
        /// Port; 0 for files.
        port: u16,
        /// `tls`, `smtp`, …
        protocol: String,
        /// The SNI sent.
        server_name: String,
    },
}

/// What else people decide about a certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Whether the scheduler renews it.
    pub auto_renew: bool,
    /// Its own rule, in place of its policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalRule>,
    /// How long a version is to be valid, seconds; the profile's default when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<i64>,
    /// The subject, as text; what the profile says when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Whether servers must staple (RFC 7633).
    pub must_staple: bool,
    /// The external issuer's own profile, role or provisioner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_profile: Option<String>,
    /// For people.
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
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// Whether the version is revoked.
    pub revoked: bool,
}

/// A version that is verified as served: an agent put it in place or saw it there, or a scan saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServedVersion {
    /// SHA-256 of the leaf.
    pub fingerprint: Fingerprint,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// The earliest end in its chain, µs.
    pub not_after_us: i64,
}

/// The run of issuance or renewal that a certificate has open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Which.
    pub job: JobId,
    /// The state.
    pub state: crate::job::JobState,
    /// When it begins, or tries again, µs.
    pub next_attempt_at_us: i64,
    /// How often it was tried.
    pub attempts: u32,
}

impl ManagedCertificate {
    /// Its end, µs: of what is served, else of the newest version. `None` before the first.
    #[must_use]
    pub fn ends_at_us(&self) -> Option<i64> {
        let served = self.served.map(|version| version.not_after_us);
        served.or(self.current.map(|version| version.not_after_us))
    }

    /// Start of the next run, µs. `None` if none is planned, or a run is in progress or waits for approval.
    #[must_use]
    pub fn renew_at_us(&self) -> Option<i64> {
        self.run.filter(|run| run.state == crate::job::JobState::Queued).map(|run| run.next_attempt_at_us)
    }

    /// What became of the newest version.
    #[must_use]
    pub fn standing(&self) -> Current {
        standing(self.current.is_some(), self.current.is_some_and(|version| version.revoked))
    }
}

pub(crate) fn standing(issued: bool, revoked: bool) -> Current {
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
    /// The leaf's serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// The issuer.
    pub issuer: String,
    /// Whether this server holds the key.
    pub key_here: bool,
    /// DER, leaf first.
    pub chain: Vec<Vec<u8>>,
    /// When, µs.
    pub issued_at_us: i64,
    /// When, µs, and why it was revoked.
    pub revoked: Option<(i64, Reason)>,
}
