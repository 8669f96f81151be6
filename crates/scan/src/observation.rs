//! The observation of an endpoint: outcome, timing, certificate chain, trust and findings of one probe.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use events::ProbeOutcome;
use x509::{Certificate, Finding, Fingerprint, Severity, UnixTime};

use crate::revocation::Verdict;
use crate::target::Target;
use crate::tls;
use crate::trusted::TrustAnchors;

/// Duration of each phase in microseconds. `None`: the phase was not reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// DNS lookup; 0 when the addresses were cached or given.
    pub dns_us: Option<u32>,
    /// From the first SYN to the connection.
    pub dial_us: Option<u32>,
    /// The STARTTLS dialogue before TLS.
    pub starttls_us: Option<u32>,
    /// From the ClientHello to the server's first byte.
    pub first_byte_us: Option<u32>,
    /// From the ClientHello to the end of the verified handshake.
    pub handshake_us: Option<u32>,
    /// Total time, including waits.
    pub total_us: u32,
}

/// Whether clients can build a path from the leaf to a trusted root.
#[derive(Clone, Debug)]
pub struct Trust {
    /// One of `trusted`, `self-signed`, `untrusted`, `incomplete`, `expired-intermediate`, `invalid`, `not-judged`.
    pub verdict: &'static str,
    /// Reason for people; empty when trusted.
    pub reason: String,
    /// The verified path, leaf first.
    pub path: Vec<Fingerprint>,
    /// Whether a public root program trusts the chain, not only this system or `--ca`.
    pub public: bool,
    /// The trust stores that trust the chain.
    pub anchors: Vec<TrustAnchors>,
}

/// The result of probing one endpoint.
#[derive(Debug)]
pub struct Observation {
    /// The probed target.
    pub target: Arc<Target>,
    /// The address of the connection attempt, if any.
    pub address: Option<IpAddr>,
    /// Whether the address is part of the endpoint's identity (`--all-addresses`).
    pub by_address: bool,
    /// Start of the probe, microseconds since 1970-01-01 UTC.
    pub at_us: i64,
    /// Outcome of the probe: `Answered` if a certificate was received or read, otherwise the reason of the failure.
    pub outcome: ProbeOutcome,
    /// Further details of the outcome, for people; without secrets and control characters.
    pub detail: Option<String>,
    /// Number of connections started for the probe.
    pub attempts: u8,
    /// Durations of the phases.
    pub timing: Timing,
    /// Evidence from the handshake. Incomplete if the handshake failed.
    pub session: Option<Box<tls::Evidence>>,
    /// Versions, suites and groups that the server accepts in addition to the negotiated ones; `None`: not probed.
    pub accepted: Option<tls::Accepted>,
    /// Name of the ClientHello profile that was sent.
    pub profile: Option<&'static str>,
    /// The chain as sent, leaf first. Certificates that do not parse are in `unparsed`.
    pub chain: Vec<Arc<Certificate>>,
    /// Descriptions of sent certificates that do not parse.
    pub unparsed: Vec<String>,
    /// Result of the chain verification; `None` if no chain was verified.
    pub trust: Option<Trust>,
    /// Revocation status of each certificate in the chain; empty if not checked.
    pub revocation: Vec<(Fingerprint, Verdict)>,
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// Data from the cloud or cluster that listed the certificate; `None` for endpoints and files.
    pub kept: Option<Box<CloudEntry>>,
}

/// A cloud's or cluster's view of a certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CloudEntry {
    /// Name of the source that listed the certificate.
    pub source: Arc<str>,
    /// Resources that use the certificate.
    pub used_by: Vec<Use>,
    /// Whether the certificate was read from the inventory because its source reports it as unchanged.
    pub unchanged: bool,
    /// Known tags of the certificate.
    pub tags: BTreeMap<String, String>,
}

/// One use of a certificate in a cloud or cluster.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd, serde::Deserialize, serde::Serialize)]
pub struct Use {
    /// The resource that uses the certificate: an ARN, a resource name, `CLUSTER/NAMESPACE/NAME`.
    pub by: String,
    /// Host names that the resource serves with the certificate, if known: candidates for a scan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl Observation {
    /// Creates the observation of a probe that ended before it received data.
    #[must_use]
    pub fn ended(target: Arc<Target>, at_us: i64, outcome: ProbeOutcome, detail: Option<String>) -> Self {
        Self {
            target,
            address: None,
            by_address: false,
            at_us,
            outcome,
            detail,
            attempts: 1,
            timing: Timing::default(),
            session: None,
            accepted: None,
            profile: None,
            chain: Vec::new(),
            unparsed: Vec::new(),
            trust: None,
            revocation: Vec::new(),
            findings: Vec::new(),
            kept: None,
        }
    }

    /// Returns the name of the endpoint for display. It includes the IP address if the address identifies the endpoint.
    #[must_use]
    pub fn label(&self) -> String {
        match self.address {
            Some(address) if self.by_address => self.target.identity_at(address),
            _ => self.target.identity(),
        }
    }

    /// Returns the severity of the worst finding.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.rule.severity).max()
    }

    /// Returns the leaf certificate, if the leaf was received and could be parsed.
    #[must_use]
    pub fn leaf(&self) -> Option<&Arc<Certificate>> {
        self.chain.first()
    }

    /// Returns the start of the probe in whole seconds.
    #[must_use]
    pub fn at(&self) -> UnixTime {
        UnixTime(self.at_us.div_euclid(1_000_000))
    }
}
