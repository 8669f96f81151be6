//! What one look at one endpoint showed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use events::ProbeOutcome;
use x509::{Certificate, Finding, Fingerprint, Severity, UnixTime};

use crate::revocation::Verdict;
use crate::target::Target;
use crate::tls;
use crate::trusted::TrustAnchors;

/// Where the time went, in microseconds. `None`: the phase was not reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// From asking for the name to having its addresses; 0 when they were cached or given.
    pub dns_us: Option<u32>,
    /// From the first SYN to the connection.
    pub dial_us: Option<u32>,
    /// The plain-text dialogue before TLS.
    pub starttls_us: Option<u32>,
    /// From the ClientHello to the server's first byte.
    pub first_byte_us: Option<u32>,
    /// From the ClientHello to the end of the checked handshake.
    pub handshake_us: Option<u32>,
    /// All of it, with waits in between.
    pub total_us: u32,
}

/// Whether clients would build a path from the leaf to a root they trust.
#[derive(Clone, Debug)]
pub struct Trust {
    /// A stable word: `trusted`, `self-signed`, `untrusted`, `incomplete`, `expired-intermediate`,
    /// `invalid`, `not-judged`.
    pub verdict: &'static str,
    /// Why, for people; empty when trusted.
    pub reason: String,
    /// The path as verified, leaf first.
    pub path: Vec<Fingerprint>,
    /// A public root programme trusts the chain, not only this system or `--ca`.
    pub public: bool,
    /// The stores of trust anchors that trust the chain.
    pub anchors: Vec<TrustAnchors>,
}

/// The result of probing one endpoint.
#[derive(Debug)]
pub struct Observation {
    /// The target.
    pub target: Arc<Target>,
    /// The address used, once there was one.
    pub address: Option<IpAddr>,
    /// Whether the address is part of the endpoint's identity (`--all-addresses`).
    pub by_address: bool,
    /// When the look began.
    pub at_us: i64,
    /// The outcome of the probe.
    pub outcome: ProbeOutcome,
    /// What else is known of the end, for people; no secret, no control characters.
    pub detail: Option<String>,
    /// How many connections were begun for it.
    pub attempts: u8,
    /// Durations of the phases.
    pub timing: Timing,
    /// The handshake, as far as it came.
    pub session: Option<Box<tls::Evidence>>,
    /// Versions, suites and groups that the server accepts in addition to the negotiated ones; `None`: not probed.
    pub accepted: Option<tls::Accepted>,
    /// The ClientHello profile sent, by name.
    pub profile: Option<&'static str>,
    /// The chain as sent, leaf first. Certificates that do not parse are in `unparsed`.
    pub chain: Vec<Arc<Certificate>>,
    /// What was sent as a certificate and is none, with the reason.
    pub unparsed: Vec<String>,
    /// The chain as verified.
    pub trust: Option<Trust>,
    /// Revocation status of each certificate in the chain; empty if not checked.
    pub revocation: Vec<(Fingerprint, Verdict)>,
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// What a cloud or cluster says of it; `None` for endpoints and files.
    pub kept: Option<Box<CloudEntry>>,
}

/// A cloud's or cluster's view of a certificate.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CloudEntry {
    /// The source that listed it.
    pub source: Arc<str>,
    /// Resources that use the certificate.
    pub used_by: Vec<Use>,
    /// Read from the inventory, because its source says that it is unchanged.
    pub unchanged: bool,
    /// Its tags there, as far as they are known.
    pub tags: BTreeMap<String, String>,
}

/// One use of a certificate in a cloud or cluster.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd, serde::Deserialize, serde::Serialize)]
pub struct Use {
    /// The resource that uses it: an ARN, a resource name, `CLUSTER/NAMESPACE/NAME`.
    pub by: String,
    /// The host names it serves there, if it says so: worth a look from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl Observation {
    /// A look that ended before anything was learned.
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

    /// The endpoint as people write it, with its address where that is part of it.
    #[must_use]
    pub fn label(&self) -> String {
        match self.address {
            Some(address) if self.by_address => self.target.identity_at(address),
            _ => self.target.identity(),
        }
    }

    /// The worst finding's severity.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.rule.severity).max()
    }

    /// The certificate the endpoint presents as its own.
    #[must_use]
    pub fn leaf(&self) -> Option<&Arc<Certificate>> {
        self.chain.first()
    }

    /// When the look began, in whole seconds.
    #[must_use]
    pub fn at(&self) -> UnixTime {
        UnixTime(self.at_us.div_euclid(1_000_000))
    }
}
