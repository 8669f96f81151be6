//! What one look at one endpoint showed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use coded::named;
use x509::{Certificate, Finding, Fingerprint, Severity, UnixTime};

use crate::revocation::Verdict;
use crate::target::Target;
use crate::tls;
use crate::trusted::TrustAnchors;

named! {
    /// How a look ended. "Unknown" is a value: nothing is filed under a neighbour for want of a name.
    pub enum Outcome: "outcome of a look" {
        /// The endpoint sent a certificate (or the file held one).
        Answered => "answered",
        /// The name does not exist (RFC 8020).
        NxDomain => "nxdomain",
        /// The name exists and has no address of the families asked for (RFC 2308 section 2.2).
        NoAddress => "no-address",
        /// Every name server failed (RFC 2308 section 7.1).
        ServFail => "servfail",
        /// The name servers refused to answer.
        DnsRefused => "dns-refused",
        /// No name server answered in time.
        DnsTimeout => "dns-timeout",
        /// The name's aliases lead back to themselves, or on for too long.
        CnameLoop => "cname-loop",
        /// The name servers answered something that is no answer.
        DnsMalformed => "dns-malformed",
        /// Nothing listens: the connection was refused.
        Refused => "refused",
        /// The peer reset the connection before any certificate came.
        Reset => "reset",
        /// A router or the kernel knows no way there.
        Unreachable => "unreachable",
        /// Nothing came back at all: the SYN was swallowed.
        BlackHole => "black-hole",
        /// This machine would not let us: policy, or out of descriptors or ports.
        LocalLimit => "local-limit",
        /// The server speaks the protocol but does not offer TLS on it.
        StartTlsNotOffered => "starttls-not-offered",
        /// The server offers TLS and then refused it.
        StartTlsRefused => "starttls-refused",
        /// The server does not speak the protocol that was expected before TLS.
        OtherProtocol => "other-protocol",
        /// Connected, and then not one byte.
        Stall => "stall",
        /// Bytes came, but the handshake was not over at the deadline.
        Slow => "slow",
        /// What came back is not TLS.
        NotTls => "not-tls",
        /// A fatal TLS alert before any certificate; the detail names it.
        Alert => "alert",
        /// The peer closed the connection before any certificate.
        ClosedEarly => "closed-early",
        /// TLS that breaks its own encoding.
        Malformed => "malformed",
        /// The peer sent more than a named limit allows.
        LimitExceeded => "limit-exceeded",
        /// The handshake needs no certificate (anonymous, pre-shared key).
        NoCertificate => "no-certificate",
        /// A file could not be read.
        Unreadable => "unreadable",
        /// A file wants a password that was not given.
        PasswordNeeded => "password-needed",
        /// A file, named explicitly, that holds no certificate.
        NoCertificateInFile => "no-certificate-in-file",
        /// A cloud or cluster has a place for it, and no certificate (yet) that could be read; the detail says why.
        NotIssued => "not-issued",
        /// A cloud or cluster listed it before and does not any more.
        Gone => "gone",
        /// The look was cancelled before it ended.
        Cancelled => "cancelled",
        /// None of the above; the detail says what is known.
        Unknown => "unknown",
    }
}

impl Outcome {
    /// Nobody said anything: such endpoints are tried again last, with longer limits.
    #[must_use]
    pub fn silent(self) -> bool {
        matches!(self, Self::DnsTimeout | Self::BlackHole | Self::Stall | Self::Slow)
    }

    /// There is no server, as far as can be told: the name leads nowhere, nothing listens, or nothing comes back.
    #[must_use]
    pub fn no_answer(self) -> bool {
        self.silent()
            || matches!(
                self,
                Self::NxDomain
                    | Self::NoAddress
                    | Self::ServFail
                    | Self::DnsRefused
                    | Self::DnsMalformed
                    | Self::CnameLoop
                    | Self::Refused
                    | Self::Reset
                    | Self::Unreachable
            )
    }

    /// A second try, a moment later, may well end otherwise.
    #[must_use]
    pub fn can_heal(self) -> bool {
        self.silent() || matches!(self, Self::ServFail | Self::Reset | Self::LocalLimit)
    }
}

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

/// One look at one endpoint.
#[derive(Debug)]
pub struct Observation {
    /// What was asked for.
    pub target: Arc<Target>,
    /// The address used, once there was one.
    pub address: Option<IpAddr>,
    /// Whether the address is part of the endpoint's identity (`--all-addresses`).
    pub by_address: bool,
    /// When the look began.
    pub at_us: i64,
    /// How it ended.
    pub outcome: Outcome,
    /// What else is known of the end, for people; no secret, no control characters.
    pub detail: Option<String>,
    /// How many connections were begun for it.
    pub attempts: u8,
    /// Where the time went.
    pub timing: Timing,
    /// The handshake, as far as it came.
    pub session: Option<Box<tls::Evidence>>,
    /// What the server accepts besides what it chose; `None`: not known.
    pub accepted: Option<tls::Accepted>,
    /// The ClientHello profile sent, by name.
    pub profile: Option<&'static str>,
    /// The chain as sent, leaf first. Certificates that do not parse are in `unparsed`.
    pub chain: Vec<Arc<Certificate>>,
    /// What was sent as a certificate and is none, with the reason.
    pub unparsed: Vec<String>,
    /// The chain as verified.
    pub trust: Option<Trust>,
    /// Whether the certificates of the chain were revoked, in its order; empty when nobody was asked.
    pub revocation: Vec<(Fingerprint, Verdict)>,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What a cloud or cluster says of it; `None` for endpoints and files.
    pub kept: Option<Box<CloudEntry>>,
}

/// What a cloud or cluster says of a certificate it keeps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CloudEntry {
    /// The source that listed it.
    pub source: Arc<str>,
    /// What uses it there.
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
    pub fn ended(target: Arc<Target>, at_us: i64, outcome: Outcome, detail: Option<String>) -> Self {
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
