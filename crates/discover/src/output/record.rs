//! The view of one observation for programs: JSON, JSON lines and CSV.
//!
//! All values are pure functions of the observation. Field names are in snake case, times are RFC 3339 in UTC, and the name of
//! every quantity includes its unit.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use cli::units;
use data_encoding::HEXLOWER;
use scan::Observation;
use scan::observation::{Timing, Trust};
use scan::revocation::{Source, Verdict};
use scan::tls::names;
use serde::{Serialize, Serializer};
use x509::crl::Reason;
use x509::{
    Certificate, Finding, Fingerprint, GeneralName, KeyAlgorithm, KeyUsage, PublicKey, Severity, SpkiHash,
    UnixTime,
};

use super::session::Session;

/// One endpoint, as in all JSON outputs.
#[derive(Serialize)]
pub(crate) struct Endpoint<'a> {
    /// The endpoint in text form.
    pub(crate) endpoint: String,
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) protocol: &'static str,
    /// How the protocol was determined: `given`, `guessed-from-port` or `default`.
    pub(crate) protocol_source: &'static str,
    /// The server name sent in the ClientHello.
    pub(crate) server_name: Option<&'a str>,
    pub(crate) address: Option<IpAddr>,
    /// Whether the address is part of the endpoint's identity.
    pub(crate) by_address: bool,
    pub(crate) observed_at: String,
    pub(crate) outcome: &'static str,
    pub(crate) detail: Option<&'a str>,
    pub(crate) severity: Option<Severity>,
    pub(crate) attempts: u8,
    /// The name of the ClientHello profile that was sent.
    pub(crate) profile: Option<&'static str>,
    pub(crate) timing: Phases,
    pub(crate) tls: Option<Session<'a>>,
    /// Obsolete versions and weak cipher suites that the server also accepts; `null` if unknown.
    pub(crate) accepted: Option<AcceptedView>,
    pub(crate) chain: Vec<CertificateView<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) unparsed: &'a [String],
    pub(crate) trust: Option<TrustView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) revocation: Vec<RevocationView<'a>>,
    pub(crate) findings: Vec<FindingView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<SourceView<'a>>,
}

/// Information of a cloud or cluster about a certificate.
#[derive(Serialize)]
pub(crate) struct SourceView<'a> {
    /// The source that lists the certificate.
    source: &'a str,
    /// Resources that use the certificate at the source, with their host names.
    used_by: &'a [scan::observation::Use],
    /// Whether the certificate was read from the inventory, because its source reports it as unchanged.
    unchanged: bool,
    /// Tags of the certificate at the source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: &'a BTreeMap<String, String>,
}

impl<'a> SourceView<'a> {
    fn of(observation: &'a Observation) -> Option<Self> {
        let kept = observation.kept.as_deref()?;
        let (source, used_by, tags) = (&kept.source, &kept.used_by, &kept.tags);
        Some(Self { source, used_by, unchanged: kept.unchanged, tags })
    }
}

/// Details without a column in the inventory, stored with each observation as JSON.
#[derive(Serialize)]
pub struct Detail<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    protocol_source: &'static str,
    attempts: u8,
    profile: Option<&'static str>,
    timing: Phases,
    tls: Option<Session<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<AcceptedView>,
    trust: Option<TrustView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    revocation: Vec<RevocationView<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unparsed: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<SourceView<'a>>,
}

impl<'a> Detail<'a> {
    /// Creates the detail of `observation`.
    pub fn of(observation: &'a Observation) -> Self {
        Self {
            detail: observation.detail.as_deref(),
            protocol_source: observation.target.protocol_source.name(),
            attempts: observation.attempts,
            profile: observation.profile,
            timing: Phases::of(&observation.timing),
            tls: observation.session.as_deref().map(Session::of),
            accepted: AcceptedView::of(observation),
            trust: observation.trust.as_ref().map(TrustView::of),
            revocation: observation.revocation.iter().map(RevocationView::of).collect(),
            unparsed: &observation.unparsed,
            kept: SourceView::of(observation),
        }
    }
}

/// Duration of each phase in microseconds; `null` if the phase was not reached.
#[derive(Serialize)]
pub(crate) struct Phases {
    dns_us: Option<u32>,
    dial_us: Option<u32>,
    starttls_us: Option<u32>,
    first_byte_us: Option<u32>,
    handshake_us: Option<u32>,
    total_us: u32,
}

/// Whether the chain is trusted, and by which trust stores.
#[derive(Serialize)]
pub(crate) struct TrustView<'a> {
    pub(crate) verdict: &'static str,
    reason: &'a str,
    /// SHA-256 of each certificate of the verified path, leaf first.
    path: &'a [Fingerprint],
    /// Whether a public root programme trusts the chain.
    public: bool,
    /// The stores that trust the chain: `mozilla`, `system`, `given`.
    stores: Vec<&'static str>,
}

/// Revocation status of the chain.
#[derive(Serialize)]
pub(crate) struct RevocationView<'a> {
    certificate: Fingerprint,
    /// Revocation status: `good`, `revoked`, `unknown` or `not-applicable`.
    verdict: &'static str,
    /// Source of the status: `staple`, `crl`, `delta-crl` or `ocsp`.
    source: Option<&'static str>,
    url: Option<&'a str>,
    /// For `good`: when the next status information is due.
    until: Option<String>,
    revoked_at: Option<String>,
    reason: Option<Reason>,
    /// For `unknown` and `not-applicable`: the reason, as a stable word.
    cause: Option<&'static str>,
    /// The status in one sentence.
    detail: String,
}

impl<'a> RevocationView<'a> {
    fn of((certificate, verdict): &'a (Fingerprint, Verdict)) -> Self {
        let (mut until, mut revoked_at, mut reason, mut cause) = (None, None, None, None);
        let source = match verdict {
            Verdict::Good { source, until: due } => {
                until = Some(units::rfc3339(due.0));
                Some(source)
            }
            Verdict::Revoked { at, reason: why, source } => {
                (revoked_at, reason) = (Some(units::rfc3339(at.0)), *why);
                Some(source)
            }
            Verdict::Unknown { cause: why } => {
                cause = Some(why.code());
                None
            }
            Verdict::NotApplicable { why } => {
                cause = Some(why.code());
                None
            }
        };
        Self {
            certificate: *certificate,
            verdict: verdict.code(),
            source: source.map(Source::code),
            url: source.and_then(Source::url),
            until,
            revoked_at,
            reason,
            cause,
            detail: verdict.to_string(),
        }
    }
}

/// A finding with its rule.
#[derive(Serialize)]
pub(crate) struct FindingView<'a> {
    code: &'static str,
    severity: Severity,
    title: &'static str,
    evidence: &'a str,
    source: &'static str,
    advice: &'static str,
    certificate: Option<Fingerprint>,
}

impl<'a> From<&'a Finding> for FindingView<'a> {
    fn from(finding: &'a Finding) -> Self {
        let rule = finding.rule;
        Self {
            code: rule.code,
            severity: rule.severity,
            title: rule.title,
            evidence: &finding.evidence,
            source: rule.source,
            advice: rule.advice,
            certificate: finding.certificate,
        }
    }
}

/// A certificate of the chain.
#[derive(Serialize)]
pub(crate) struct CertificateView<'a> {
    fingerprint_sha256: Fingerprint,
    subject: &'a str,
    issuer: &'a str,
    serial: String,
    version: u8,
    not_before: String,
    not_after: String,
    names: &'a [GeneralName],
    key: KeyView,
    signature_algorithm: String,
    key_usage: Option<Vec<&'static str>>,
    extended_key_usage: Option<Vec<&'a str>>,
    is_ca: bool,
    path_len: Option<u32>,
    #[serde(serialize_with = "hex_option")]
    subject_key_id: Option<&'a [u8]>,
    #[serde(serialize_with = "hex_option")]
    authority_key_id: Option<&'a [u8]>,
    ocsp_urls: &'a [String],
    issuer_urls: &'a [String],
    crl_urls: &'a [String],
    policies: &'a [String],
    embedded_scts: u16,
    must_staple: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    faults: &'a [String],
    /// The certificate in PEM, only with `--include-pem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pem: Option<String>,
}

/// The public key of a certificate.
#[derive(Serialize)]
pub(crate) struct KeyView {
    algorithm: String,
    bits: u32,
    rsa_exponent: Option<u64>,
    spki_sha256: SpkiHash,
}

impl<'a> Endpoint<'a> {
    /// Creates the view of `observation`.
    pub(crate) fn of(observation: &'a Observation) -> Self {
        let target = &*observation.target;
        Self {
            endpoint: observation.label(),
            host: target.host_text(),
            port: target.port,
            protocol: target.protocol.name(),
            protocol_source: target.protocol_source.name(),
            server_name: target.sni(),
            address: observation.address,
            by_address: observation.by_address,
            observed_at: units::rfc3339_us(observation.at_us),
            outcome: observation.outcome.name(),
            detail: observation.detail.as_deref(),
            severity: observation.severity(),
            attempts: observation.attempts,
            profile: observation.profile,
            timing: Phases::of(&observation.timing),
            tls: observation.session.as_deref().map(Session::of),
            accepted: AcceptedView::of(observation),
            chain: observation.chain.iter().map(|c| CertificateView::of(c)).collect(),
            unparsed: &observation.unparsed,
            trust: observation.trust.as_ref().map(TrustView::of),
            revocation: observation.revocation.iter().map(RevocationView::of).collect(),
            findings: observation.findings.iter().map(FindingView::from).collect(),
            kept: SourceView::of(observation),
        }
    }
}

impl Endpoint<'_> {
    /// Adds each certificate of the chain as PEM.
    pub(crate) fn include_pem(&mut self, observation: &Observation) {
        for (view, certificate) in self.chain.iter_mut().zip(&observation.chain) {
            view.pem = Some(x509::pem::encode("CERTIFICATE", &certificate.der));
        }
    }
}

/// Versions, suites and groups that the server accepts in addition to the negotiated ones.
#[derive(Serialize)]
pub(crate) struct AcceptedView {
    /// The newest accepted version among TLS 1.1 and older ones.
    obsolete_version: Option<Cow<'static, str>>,
    /// One accepted suite for each kind of weakness.
    weak_cipher_suites: Vec<Cow<'static, str>>,
}

impl AcceptedView {
    fn of(observation: &Observation) -> Option<Self> {
        let accepted = observation.accepted.as_ref()?;
        Some(Self {
            obsolete_version: accepted.obsolete_version.map(names::version),
            weak_cipher_suites: accepted
                .weak_suites
                .iter()
                .map(|suite| names::cipher_suite(*suite))
                .collect(),
        })
    }
}

impl Phases {
    fn of(timing: &Timing) -> Self {
        Self {
            dns_us: timing.dns_us,
            dial_us: timing.dial_us,
            starttls_us: timing.starttls_us,
            first_byte_us: timing.first_byte_us,
            handshake_us: timing.handshake_us,
            total_us: timing.total_us,
        }
    }
}

impl<'a> TrustView<'a> {
    fn of(trust: &'a Trust) -> Self {
        Self {
            verdict: trust.verdict,
            reason: &trust.reason,
            path: &trust.path,
            public: trust.public,
            stores: trust.anchors.iter().map(|anchors| anchors.name()).collect(),
        }
    }
}

impl<'a> CertificateView<'a> {
    /// Creates the view of `certificate`.
    pub(crate) fn of(certificate: &'a Certificate) -> Self {
        Self {
            fingerprint_sha256: certificate.fingerprint,
            subject: &certificate.subject.text,
            issuer: &certificate.issuer.text,
            serial: certificate.serial.to_string(),
            version: certificate.version,
            not_before: units::rfc3339(certificate.not_before.0),
            not_after: units::rfc3339(certificate.not_after.0),
            names: &certificate.subject_alt_names,
            key: KeyView {
                algorithm: certificate.public_key.algorithm.name().into_owned(),
                bits: certificate.public_key.bits,
                rsa_exponent: certificate.public_key.rsa_exponent,
                spki_sha256: certificate.public_key.spki_sha256,
            },
            signature_algorithm: certificate.signature.name().into_owned(),
            key_usage: certificate.key_usage.map(key_usages),
            extended_key_usage: certificate
                .extended_key_usage
                .as_ref()
                .map(|usages| usages.iter().map(|oid| extended_usage(oid)).collect()),
            is_ca: certificate.basic_constraints.is_some_and(|b| b.ca),
            path_len: certificate.basic_constraints.and_then(|b| b.path_len),
            subject_key_id: certificate.subject_key_id.as_deref(),
            authority_key_id: certificate.authority_key_id.as_deref(),
            ocsp_urls: &certificate.ocsp_urls,
            issuer_urls: &certificate.issuer_urls,
            crl_urls: &certificate.crl_urls,
            policies: &certificate.policies,
            embedded_scts: certificate.embedded_scts,
            must_staple: certificate.must_staple,
            faults: &certificate.faults,
            pem: None,
        }
    }
}

fn hex_option<S: Serializer>(bytes: &Option<&[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_str(&HEXLOWER.encode(bytes)),
        None => serializer.serialize_none(),
    }
}

/// Names of the key usages, in the order of their bits (RFC 5280 section 4.2.1.3).
const KEY_USAGES: [&str; 9] = [
    "digitalSignature",
    "nonRepudiation",
    "keyEncipherment",
    "dataEncipherment",
    "keyAgreement",
    "keyCertSign",
    "cRLSign",
    "encipherOnly",
    "decipherOnly",
];

fn key_usages(usage: KeyUsage) -> Vec<&'static str> {
    let set = |(bit, _): &(usize, &&str)| usage.allows(1 << bit);
    KEY_USAGES.iter().enumerate().filter(set).map(|(_, name)| *name).collect()
}

/// Returns the name of an extended key usage (RFC 5280 section 4.2.1.12). An unknown usage stays a dotted OID.
fn extended_usage(oid: &str) -> &str {
    match oid {
        "2.5.29.37.0" => "anyExtendedKeyUsage",
        "1.3.6.1.5.5.7.3.1" => "serverAuth",
        "1.3.6.1.5.5.7.3.2" => "clientAuth",
        "1.3.6.1.5.5.7.3.3" => "codeSigning",
        "1.3.6.1.5.5.7.3.4" => "emailProtection",
        "1.3.6.1.5.5.7.3.8" => "timeStamping",
        "1.3.6.1.5.5.7.3.9" => "OCSPSigning",
        other => other,
    }
}

/// Returns a short name of the key, with its size where that may vary: `RSA-2048`, `P-256`, `Ed25519`.
pub(crate) fn key_name(key: &PublicKey) -> Cow<'static, str> {
    match key.algorithm {
        KeyAlgorithm::Rsa | KeyAlgorithm::RsaPss => format!("RSA-{}", key.bits).into(),
        KeyAlgorithm::Dsa => format!("DSA-{}", key.bits).into(),
        _ => key.algorithm.name(),
    }
}

/// Returns a short form of a name: the common name, else the organisation, else the whole name.
pub(crate) fn short_name(name: &x509::DistinguishedName) -> &str {
    name.common_names.first().or(name.organization.as_ref()).map_or(name.text.as_str(), String::as_str)
}

/// Returns the seconds from `now` until `not_after`; negative if the certificate has expired.
pub(crate) fn seconds_left(not_after: UnixTime, now: UnixTime) -> i64 {
    not_after.since(now)
}
