//! Types of the inventory's interface. Every time is microseconds since 1970-01-01 UTC.

use std::net::IpAddr;
use std::sync::Arc;

use coded::{coded, named};
use events::ProbeOutcome;
use uuid::Uuid;
use x509::{Certificate, Severity, UnixTime};

/// A certificate found by a scan. Stored once, by its SHA-256.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCertificate {
    /// SHA-256 of `der`.
    pub sha256: [u8; 32],
    /// The certificate in DER.
    pub der: Arc<[u8]>,
    /// Subject as human-readable text.
    pub subject: String,
    /// Issuer as human-readable text. Certificates are grouped by this text.
    pub issuer: String,
    /// Serial number in hexadecimal.
    pub serial: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// Algorithm of the public key, such as `RSA` or `P-256`.
    pub key_algorithm: String,
    /// The key's size in bits.
    pub key_bits: u32,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// All names of the certificate, in the certificate's order.
    pub names: Vec<String>,
}

impl NewCertificate {
    /// Builds the row of `certificate`, with `names` for searches.
    #[must_use]
    pub fn new(certificate: &Certificate, names: Vec<String>) -> Self {
        let in_us = |time: UnixTime| time.0.saturating_mul(1_000_000);
        Self {
            sha256: *certificate.fingerprint.as_bytes(),
            der: certificate.der.clone(),
            subject: certificate.subject.text.clone(),
            issuer: certificate.issuer.text.clone(),
            serial: certificate.serial.to_string(),
            not_before_us: in_us(certificate.not_before),
            not_after_us: in_us(certificate.not_after),
            key_algorithm: certificate.public_key.algorithm.name().into_owned(),
            key_bits: certificate.public_key.bits,
            spki_sha256: *certificate.public_key.spki_sha256.as_bytes(),
            names,
        }
    }
}

/// Key that identifies an endpoint.
///
/// Parts longer than [`crate::HOST_BYTES_MAX`] are replaced by their beginning and a hash.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EndpointKey {
    /// A host name, an IP address, or a file path.
    pub host: String,
    /// The port; 0 for files.
    pub port: u16,
    /// Protocol: `tls`, `smtp`, …; `file` for files.
    pub protocol: String,
    /// The SNI sent. Empty when none was sent.
    pub server_name: String,
    /// The probed address, when each address of a name is a separate endpoint. Otherwise empty.
    pub address: String,
}

/// Result of one probe of one endpoint, to store.
#[derive(Clone, Debug, PartialEq)]
pub struct NewObservation {
    /// Host, port, protocol, server name and address that identify the endpoint.
    pub endpoint: EndpointKey,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// Time of the observation, µs.
    pub observed_at_us: i64,
    /// Outcome of the probe, such as `answered` or `refused`.
    pub outcome: ProbeOutcome,
    /// Whether the endpoint sent a certificate.
    pub answered: bool,
    /// TLS version number (0x0304 for TLS 1.3).
    pub tls_version: Option<u16>,
    /// IANA number of the cipher suite.
    pub cipher_suite: Option<u16>,
    /// The chain as sent, leaf first. May be empty.
    pub chain: Vec<Arc<NewCertificate>>,
    /// Verdict of the chain verification, as a stable code. `not-judged` if there is no verdict.
    pub trust: String,
    /// Severity of the worst finding.
    pub severity: Option<Severity>,
    /// Findings as a JSON array.
    pub findings: String,
    /// JSON object with data that has no column of its own.
    pub detail: String,
}

/// Counts of a stored batch of observations, returned by [`crate::Scans::record`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Recorded {
    /// Number of stored observations.
    pub inserted: u64,
    /// Number of observations of endpoints that this scan had already recorded. The first observation stays.
    pub duplicates: u64,
    /// Number of certificates seen for the first time.
    pub new_certificates: u64,
    /// Number of observations that changed their endpoint (see [`ChangeKind`]), including new endpoints.
    pub changed: u64,
}

impl std::ops::AddAssign for Recorded {
    fn add_assign(&mut self, other: Self) {
        self.inserted += other.inserted;
        self.duplicates += other.duplicates;
        self.new_certificates += other.new_certificates;
        self.changed += other.changed;
    }
}

named! {
    /// State of a scan: in progress, complete or stopped.
    pub enum ScanState: "scan state" {
        /// The scan is in progress, or its process was killed before it could change the state.
        Running => "running",
        /// The scan is complete: every endpoint was scanned.
        Finished => "finished",
        /// The scan was stopped before its end. It can be resumed.
        Interrupted => "interrupted",
    }
}

/// A scan with its state, settings and totals.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanRow {
    /// Id of the scan, UUIDv7.
    pub id: Uuid,
    /// Start time, µs.
    pub started_at_us: i64,
    /// Time when the scan finished or was interrupted, µs.
    pub finished_at_us: Option<i64>,
    /// Whether the scan is running, finished or interrupted.
    pub state: ScanState,
    /// Targets and options as JSON.
    pub spec: String,
    /// Summary at the end of the scan, as JSON.
    pub summary: Option<String>,
    /// Number of stored observations.
    pub observations: u64,
    /// Number of observations with a certificate.
    pub answered: u64,
    /// Number of observations that changed their endpoint.
    pub changes: u64,
    /// Number of certificates that this scan saw first.
    pub new_certificates: u64,
    /// Time when an observation of the scan was first pruned, µs. `None` if none was.
    pub pruned_at_us: Option<i64>,
}

/// Filter for listing endpoints. Default: all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InventoryFilter {
    /// Upper bound of the certificates' end of validity, exclusive, µs.
    pub expiring_before_us: Option<i64>,
    /// Lower bound of the certificates' end of validity, inclusive, µs.
    pub expiring_from_us: Option<i64>,
    /// Text that the leaf's issuer contains, ignoring ASCII case.
    pub issuer_contains: Option<String>,
    /// Text that the host contains, ignoring ASCII case.
    pub host_contains: Option<String>,
    /// Minimum severity of the last observation.
    pub severity_at_least: Option<Severity>,
    /// Lower bound of the endpoint's last change, inclusive, µs.
    pub changed_since_us: Option<i64>,
    /// Whether the last observation saw a certificate.
    pub answering: Option<bool>,
    /// Order of the rows. Default: by expiry.
    pub order: InventoryOrder,
}

/// The order of the inventory's pages.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum InventoryOrder {
    /// Earliest end of validity first; endpoints without a certificate last.
    #[default]
    Expiry,
    /// Sorted by host, port, protocol, server name and address, in byte order.
    Host,
}

/// The current state of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct InventoryRow {
    /// Host, port, protocol, server name and address that identify the endpoint.
    pub endpoint: EndpointKey,
    /// Time of the first observation, µs.
    pub first_seen_us: i64,
    /// Time of the last observation, µs.
    pub last_observed_us: i64,
    /// Time of the last observation with a certificate, µs.
    pub last_answered_us: Option<i64>,
    /// Time of the last change, µs.
    pub last_changed_us: i64,
    /// Outcome of the last observation.
    pub outcome: ProbeOutcome,
    /// Whether the last observation saw a certificate. If not, `leaf` is the last known certificate.
    pub answering: bool,
    /// Severity of the last observation.
    pub severity: Option<Severity>,
    /// The last known leaf.
    pub leaf: Option<LeafFacts>,
    /// The last known chain. Read it with [`crate::Inventory::chain`].
    pub chain: Option<ChainId>,
    /// The last observation. `None` when the partition of its month was dropped.
    pub last: Option<LastObservation>,
}

/// Data of a leaf for listings.
#[derive(Clone, Debug, PartialEq)]
pub struct LeafFacts {
    /// SHA-256 of the certificate in DER.
    pub sha256: [u8; 32],
    /// Subject as human-readable text.
    pub subject: String,
    /// Issuer as human-readable text.
    pub issuer: String,
    /// Serial number in hexadecimal.
    pub serial: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// Algorithm of the public key, such as `RSA` or `P-256`.
    pub key_algorithm: String,
    /// The key's size in bits.
    pub key_bits: u32,
}

/// An endpoint's most recent observation.
#[derive(Clone, Debug, PartialEq)]
pub struct LastObservation {
    /// Id of the scan that made the observation.
    pub scan: Uuid,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// TLS version number.
    pub tls_version: Option<u16>,
    /// IANA number of the cipher suite.
    pub cipher_suite: Option<u16>,
    /// Verdict of the chain verification, as in [`NewObservation::trust`].
    pub trust: String,
    /// Findings as a JSON array.
    pub findings: String,
    /// JSON object with data that has no column of its own.
    pub detail: String,
}

/// Row id of a stored chain. Valid only within one database.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ChainId(pub(crate) i64);

/// A certificate in the inventory, with the times of its first and last observation.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateRow {
    /// SHA-256 of the certificate in DER.
    pub sha256: [u8; 32],
    /// The certificate in DER.
    pub der: Vec<u8>,
    /// Subject as human-readable text.
    pub subject: String,
    /// Issuer as human-readable text.
    pub issuer: String,
    /// Serial number in hexadecimal.
    pub serial: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// Algorithm of the public key, such as `RSA` or `P-256`.
    pub key_algorithm: String,
    /// The key's size in bits.
    pub key_bits: u32,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// Time of the certificate's first observation at any endpoint, µs.
    pub first_seen_us: i64,
    /// Time of the certificate's last observation at any endpoint, µs.
    pub last_seen_us: i64,
    /// Names of the certificate, in the certificate's order.
    pub names: Vec<String>,
}

/// An observation in the history of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservationRow {
    /// Id of the scan that made the observation.
    pub scan: Uuid,
    /// Time of the observation, µs.
    pub observed_at_us: i64,
    /// Outcome of the probe, such as `answered` or `refused`.
    pub outcome: ProbeOutcome,
    /// Whether the endpoint sent a certificate.
    pub answered: bool,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// TLS version number.
    pub tls_version: Option<u16>,
    /// IANA number of the cipher suite.
    pub cipher_suite: Option<u16>,
    /// SHA-256 of the leaf. `None` when the endpoint sent no certificate.
    pub leaf_sha256: Option<[u8; 32]>,
    /// The chain as sent. Read it with [`crate::Inventory::chain`].
    pub chain: Option<ChainId>,
    /// Verdict of the chain verification, as in [`NewObservation::trust`].
    pub trust: String,
    /// Severity of the worst finding.
    pub severity: Option<Severity>,
    /// Findings as a JSON array.
    pub findings: String,
    /// JSON object with data that has no column of its own.
    pub detail: String,
    /// The change of the endpoint, if any.
    pub change: Option<ChangeKind>,
}

coded! {
    /// Difference between an observation and the endpoint's previous state.
    pub enum ChangeKind: "change" {
        /// The endpoint was not observed before.
        New = 1 => "new",
        /// The endpoint served a certificate before and serves none now.
        Gone = 2 => "gone",
        /// The endpoint serves another certificate.
        CertificateChanged = 3 => "certificate-changed",
        /// The outcome changed; the certificate, or its absence, is the same as before.
        OutcomeChanged = 4 => "outcome-changed",
        /// The endpoint serves a certificate again, after an observation without one. The certificate is the last known one, if any
        /// was known.
        Returned = 5 => "returned",
        /// The second scan did not probe the endpoint. Only in comparisons of two scans.
        NotScanned = 6 => "not-scanned",
    }
}

/// A change between two observations of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeRow {
    /// Kind of the change, such as a new certificate.
    pub kind: ChangeKind,
    /// Host, port, protocol, server name and address that identify the endpoint.
    pub endpoint: EndpointKey,
    /// Time of the observation, µs. In a comparison of two scans: the time in the second scan, or in the first if the second did
    /// not probe the endpoint.
    pub observed_at_us: i64,
    /// SHA-256 of the previous certificate.
    pub old_sha256: Option<[u8; 32]>,
    /// SHA-256 of the new certificate. `None` when the endpoint sent none.
    pub new_sha256: Option<[u8; 32]>,
    /// Outcome of the previous observation.
    pub old_outcome: Option<ProbeOutcome>,
    /// Outcome of the observation that shows the change.
    pub new_outcome: Option<ProbeOutcome>,
    /// Severity after the change.
    pub severity: Option<Severity>,
}

/// An issuer, with the number of its certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuerRow {
    /// Name of the issuer, as certificates contain it.
    pub issuer: String,
    /// Number of stored certificates of the issuer.
    pub certificates: u64,
    /// Number of endpoints whose last known leaf is from the issuer.
    pub endpoints: u64,
    /// Earliest end of validity of the issuer's leaves at endpoints, µs. May be in the past.
    pub soonest_not_after_us: Option<i64>,
}

/// An endpoint to scan again.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownEndpoint {
    /// Host, port, protocol, server name and address that identify the endpoint.
    pub endpoint: EndpointKey,
    /// Outcome of the last observation.
    pub outcome: ProbeOutcome,
    /// Whether the last observation saw no certificate. Silent endpoints are scanned last.
    pub silent: bool,
    /// Time of the last observation, µs.
    pub last_observed_us: i64,
}

/// Numbers of endpoints, certificates and observations in the inventory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of endpoints ever observed.
    pub endpoints: u64,
    /// Number of endpoints whose last observation saw a certificate.
    pub answering: u64,
    /// Number of stored certificates.
    pub certificates: u64,
    /// Number of stored observations.
    pub observations: u64,
    /// Number of endpoints by severity of their last observation, worst first.
    pub severities: Vec<(Severity, u64)>,
    /// Number of endpoints whose last known leaf had expired at `now_us` of [`crate::Inventory::summary`].
    pub expired: u64,
    /// Number of endpoints whose last known leaf expires within `expiring_within_us` of [`crate::Inventory::summary`].
    pub expiring: u64,
    /// Limit of the counts of expired and expiring endpoints. A count that equals this limit means "at least".
    pub expiring_counted_to: u64,
}
