//! The expected results of a scan, and the counters of the servers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// An endpoint and its expected scan result.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Truth {
    /// The scan target: `host:port`, with a scheme for STARTTLS.
    pub target: String,
    /// Name of the kind of endpoint.
    pub kind: &'static str,
    /// The name (or address) in `target`.
    pub host: String,
    /// The port in `target`.
    pub port: u16,
    /// The addresses of the name.
    pub addresses: Vec<Ipv4Addr>,
    /// Code of the expected outcome.
    pub outcome: &'static str,
    /// Codes of the expected findings, sorted; for a scan with default settings that trusts the fleet's roots.
    pub findings: Vec<&'static str>,
    /// SHA-256 of the leaf in hexadecimal, if all addresses serve the same one.
    pub leaf_sha256: Option<String>,
    /// Whether the issuer's CRL lists the certificate: a scanner that checks CRLs also reports `endpoint.revoked`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

/// Counters of all TLS and DNS servers of a fleet since its start.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Full handshakes in which the server sent its certificate, completed or not. A resumed handshake is included until it
    /// completes, because it cannot be recognized earlier.
    pub certificates_sent: u64,
    /// Full handshakes that the client completed.
    pub handshakes_full: u64,
    /// Resumed handshakes that the client completed.
    pub handshakes_resumed: u64,
    /// Completed handshakes with a second ClientHello (HelloRetryRequest).
    pub hello_retries: u64,
    /// Connections that the client closed before the handshake was complete.
    pub handshakes_left: u64,
    /// DNS queries by response.
    pub dns_questions: BTreeMap<&'static str, u64>,
}

/// A handle that updates the counters of [`Counters`].
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
