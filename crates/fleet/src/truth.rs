//! The expected results of a scan, and the counters of the servers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// One endpoint and all there is to find about it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Truth {
    /// What to give a scanner: `host:port`, with a scheme where something comes before TLS.
    pub target: String,
    /// Which kind of endpoint it is.
    pub kind: &'static str,
    /// The name (or address) in `target`.
    pub host: String,
    /// The port in `target`.
    pub port: u16,
    /// Where the name leads.
    pub addresses: Vec<Ipv4Addr>,
    /// The outcome's code.
    pub outcome: &'static str,
    /// The code of every finding, sorted; with default settings and the fleet's roots trusted.
    pub findings: Vec<&'static str>,
    /// The leaf's SHA-256 in hexadecimal, where all addresses serve the same one.
    pub leaf_sha256: Option<String>,
    /// Its issuer's CRL lists it: a scanner that asks finds `endpoint.revoked`, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

/// What the servers have counted so far.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Server flights with a certificate: full handshakes, whether the client completed them or left
    /// after the certificate was chosen. One that resumes counts until the handshake is complete: only
    /// then is it known for one.
    pub certificates_sent: u64,
    /// Handshakes the client completed, in full.
    pub handshakes_full: u64,
    /// Handshakes the client completed by resuming.
    pub handshakes_resumed: u64,
    /// Completed handshakes that took a second ClientHello.
    pub hello_retries: u64,
    /// Connections the client left before the handshake was complete.
    pub handshakes_left: u64,
    /// Questions to the name server, by what was answered.
    pub dns_questions: BTreeMap<&'static str, u64>,
}

/// The servers' side of [`Counters`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(pub(crate) Arc<Counts>);

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) certificates_sent: AtomicU64,
    pub(crate) handshakes_full: AtomicU64,
    pub(crate) handshakes_resumed: AtomicU64,
    pub(crate) hello_retries: AtomicU64,
    pub(crate) handshakes_left: AtomicU64,
}

impl Tally {
    pub(crate) fn counters(&self, dns_questions: BTreeMap<&'static str, u64>) -> Counters {
        let counts = &self.0;
        Counters {
            connections: counts.connections.load(Relaxed),
            certificates_sent: counts.certificates_sent.load(Relaxed),
            handshakes_full: counts.handshakes_full.load(Relaxed),
            handshakes_resumed: counts.handshakes_resumed.load(Relaxed),
            hello_retries: counts.hello_retries.load(Relaxed),
            handshakes_left: counts.handshakes_left.load(Relaxed),
            dns_questions,
        }
    }
}
