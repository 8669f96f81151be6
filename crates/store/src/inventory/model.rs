//! What callers give and get. Every time is microseconds since 1970-01-01 UTC.

use std::net::IpAddr;
use std::sync::Arc;

use coded::{coded, named};
use events::ProbeOutcome;
use uuid::Uuid;
use x509::{Certificate, Severity, UnixTime};

/// A certificate as a scan met it; stored once, by its SHA-256.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCertificate {
    /// SHA-256 of `der`.
    pub sha256: [u8; 32],
    /// The certificate, DER.
    pub der: Arc<[u8]>,
    /// The subject, as shown to people.
    pub subject: String,
    /// The issuer, as shown to people: certificates are grouped by this text.
    pub issuer: String,
    /// The serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// The key's algorithm.
    pub key_algorithm: String,
    /// The key's size in bits.
    pub key_bits: u32,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// Every name the certificate speaks for, in its own order.
    pub names: Vec<String>,
}

impl NewCertificate {
    /// The row of `certificate`, found by `names`.
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

/// What tells one endpoint from another.
///
/// Parts longer than the store keeps ([`crate::HOST_BYTES_MAX`]) are shortened to a beginning and a hash.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EndpointKey {
    /// A name, an address' text, or a file's path.
    pub host: String,
    /// The port; 0 for files.
    pub port: u16,
    /// `tls`, `smtp`, …; `file` for files.
    pub protocol: String,
    /// The SNI sent; empty when none was.
    pub server_name: String,
    /// The address probed, when every address of a name is an endpoint of its own; otherwise empty.
    pub address: String,
}

/// One observation of one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct NewObservation {
    /// Which endpoint.
    pub endpoint: EndpointKey,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// When, µs.
    pub observed_at_us: i64,
    /// How the probe ended.
    pub outcome: ProbeOutcome,
    /// Whether a certificate was seen.
    pub answered: bool,
    /// The protocol version on the wire (0x0304 for TLS 1.3).
    pub tls_version: Option<u16>,
    /// The cipher suite's number.
    pub cipher_suite: Option<u16>,
    /// As sent, leaf first; may be empty.
    pub chain: Vec<Arc<NewCertificate>>,
    /// The verdict on the chain, a stable code.
    pub trust: String,
    /// The worst finding's severity.
    pub severity: Option<Severity>,
    /// A JSON array.
    pub findings: String,
    /// A JSON object.
    pub detail: String,
}

/// Result of [`crate::Scans::record`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Recorded {
    /// Observations stored.
    pub inserted: u64,
    /// Observations that this scan already had of the same endpoint; the first stays.
    pub duplicates: u64,
    /// Certificates never seen before.
    pub new_certificates: u64,
    /// Observations that changed their endpoint (see [`ChangeKind`]), new endpoints included.
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
    /// How far a scan has come.
    pub enum ScanState: "scan state" {
        /// Under way, or killed before it could say otherwise.
        Running => "running",
        /// Every endpoint was looked at.
        Finished => "finished",
        /// Stopped on purpose before the end; may be resumed.
        Interrupted => "interrupted",
    }
}

/// A scan.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanRow {
    /// Its id.
    pub id: Uuid,
    /// Start time, µs.
    pub started_at_us: i64,
    /// When it was finished or interrupted, µs.
    pub finished_at_us: Option<i64>,
    /// How far it has come.
    pub state: ScanState,
    /// Targets and options, JSON.
    pub spec: String,
    /// Summary at its end, JSON.
    pub summary: Option<String>,
    /// Observations stored.
    pub observations: u64,
    /// Those in which a certificate was seen.
    pub answered: u64,
    /// Observations that changed their endpoint.
    pub changes: u64,
    /// Certificates it was the first to see.
    pub new_certificates: u64,
}

/// Which endpoints to list. Default: all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InventoryFilter {
    /// Certificates that end before this, µs.
    pub expiring_before_us: Option<i64>,
    /// Certificates that end at or after this, µs.
    pub expiring_from_us: Option<i64>,
    /// The leaf's issuer contains this, without regard to ASCII case.
    pub issuer_contains: Option<String>,
    /// The host contains this, without regard to ASCII case.
    pub host_contains: Option<String>,
    /// The last observation's severity is at least this.
    pub severity_at_least: Option<Severity>,
    /// The endpoint changed at or after this, µs.
    pub changed_since_us: Option<i64>,
    /// The last observation saw a certificate, or did not.
    pub answering: Option<bool>,
    /// In which order.
    pub order: InventoryOrder,
}

/// The order of the inventory's pages.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum InventoryOrder {
    /// Soonest end of validity first; endpoints without a certificate last.
    #[default]
    Expiry,
    /// By host, then port, protocol, server name and address, comparing bytes.
    Host,
}

/// The present state of an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct InventoryRow {
    /// Which endpoint.
    pub endpoint: EndpointKey,
    /// First observation, µs.
    pub first_seen_us: i64,
    /// Last observation, µs.
    pub last_observed_us: i64,
    /// Last observation that saw a certificate, µs.
    pub last_answered_us: Option<i64>,
    /// Last change, µs.
    pub last_changed_us: i64,
    /// The last observation's outcome.
    pub outcome: ProbeOutcome,
    /// Whether the last observation saw a certificate. When it did not, `leaf` is the last one known.
    pub answering: bool,
    /// The last observation's severity.
    pub severity: Option<Severity>,
    /// The last certificate seen.
    pub leaf: Option<LeafFacts>,
    /// The last chain seen; ask [`crate::Inventory::chain`] for it.
    pub chain: Option<ChainId>,
    /// The last observation; `None` when its month was dropped.
    pub last: Option<LastObservation>,
}

/// Facts about a leaf, for listings.
#[derive(Clone, Debug, PartialEq)]
pub struct LeafFacts {
    /// Its fingerprint.
    pub sha256: [u8; 32],
    /// Its subject.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// The key's algorithm.
    pub key_algorithm: String,
    /// The key's size in bits.
    pub key_bits: u32,
}

/// What the last observation adds to an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct LastObservation {
    /// The scan.
    pub scan: Uuid,
    /// The address connected to.
    pub address: Option<IpAddr>,
    /// The protocol version on the wire.
    pub tls_version: Option<u16>,
    /// The cipher suite's number.
    pub cipher_suite: Option<u16>,
    /// The verdict on the chain.
    pub trust: String,
    /// A JSON array.
    pub findings: String,
    /// A JSON object.
    pub detail: String,
}

/// A stored chain's number; meaningful in one database only.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ChainId(pub(crate) i64);

/// A stored certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateRow {
    /// Its fingerprint.
    pub sha256: [u8; 32],
    /// The certificate, DER.
    pub der: Vec<u8>,
    /// Its subject.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// The key's algorithm.
    pub key_algorithm: String,
    /// The key's size in bits.
    pub key_bits: u32,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// First observation of it anywhere, µs.
    pub first_seen_us: i64,
    /// Last observation of it anywhere, µs.
    pub last_seen_us: i64,
    /// Its names, in its own order.
    pub names: Vec<String>,
}

/// A stored observation.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservationRow {
    /// The scan that made it.
    pub scan: Uuid,
    /// When, µs.
    pub observed_at_us: i64,
    /// How the probe ended.
    pub outcome: ProbeOutcome,
    /// Whether a certificate was seen.
    pub answered: bool,
    /// The address connected to.
    pub address: Option<IpAddr>,
    /// The protocol version on the wire.
    pub tls_version: Option<u16>,
    /// The cipher suite's number.
    pub cipher_suite: Option<u16>,
    /// The leaf's fingerprint.
    pub leaf_sha256: Option<[u8; 32]>,
    /// The chain as sent; ask [`crate::Inventory::chain`] for it.
    pub chain: Option<ChainId>,
    /// The verdict on the chain.
    pub trust: String,
    /// The worst finding's severity.
    pub severity: Option<Severity>,
    /// A JSON array.
    pub findings: String,
    /// A JSON object.
    pub detail: String,
    /// The change of the endpoint, if any.
    pub change: Option<ChangeKind>,
}

coded! {
    /// How an observation differs from what was known of its endpoint.
    pub enum ChangeKind: "change" {
        /// Never observed before.
        New = 1 => "new",
        /// It showed a certificate before and does not now.
        Gone = 2 => "gone",
        /// The endpoint shows another certificate.
        CertificateChanged = 3 => "certificate-changed",
        /// The same certificate, or none as before, but another outcome.
        OutcomeChanged = 4 => "outcome-changed",
        /// It shows a certificate again (or for the first time); the same as the last known, if one was.
        Returned = 5 => "returned",
        /// Only between two scans: the second did not look at it.
        NotScanned = 6 => "not-scanned",
    }
}

/// One change of one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeRow {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Which endpoint.
    pub endpoint: EndpointKey,
    /// When it was observed, µs. Between scans: in the second, or in the first when the second did not look.
    pub observed_at_us: i64,
    /// The certificate before.
    pub old_sha256: Option<[u8; 32]>,
    /// The certificate now; `None` when none was seen.
    pub new_sha256: Option<[u8; 32]>,
    /// The outcome before.
    pub old_outcome: Option<ProbeOutcome>,
    /// The outcome now.
    pub new_outcome: Option<ProbeOutcome>,
    /// The severity now.
    pub severity: Option<Severity>,
}

/// An issuer, with the number of its certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuerRow {
    /// Its name, as certificates show it.
    pub issuer: String,
    /// Certificates stored.
    pub certificates: u64,
    /// Endpoints whose last known leaf is its.
    pub endpoints: u64,
    /// The soonest end of validity among those leaves, µs; may be past.
    pub soonest_not_after_us: Option<i64>,
}

/// An endpoint to scan again.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownEndpoint {
    /// Which endpoint.
    pub endpoint: EndpointKey,
    /// The last outcome.
    pub outcome: ProbeOutcome,
    /// The last observation saw no certificate: ask it last.
    pub silent: bool,
    /// The last observation, µs.
    pub last_observed_us: i64,
}

/// Totals of the inventory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Endpoints ever observed.
    pub endpoints: u64,
    /// Endpoints whose last observation saw a certificate.
    pub answering: u64,
    /// Certificates stored.
    pub certificates: u64,
    /// Observations stored.
    pub observations: u64,
    /// Endpoints by the severity of their last observation: (severity, endpoints), worst first.
    pub severities: Vec<(Severity, u64)>,
    /// Endpoints whose last known leaf had ended at the time asked about.
    pub expired: u64,
    /// Endpoints whose last known leaf ends within the span asked about.
    pub expiring: u64,
    /// The counts of expired and expiring stop here; equal means "at least".
    pub expiring_counted_to: u64,
}
