//! Description of a fleet to start.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::kind;

/// Description of a fleet. The same plan gives the same fleet, except for keys, and for dates, which are relative to the start
/// time.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of endpoints. [`Mix::Balancer`] uses its `names` instead. Kinds that need a group (three hosts with one key) may add
    /// a few.
    pub endpoints: usize,
    /// Seed of names, latencies and the assignment of kinds.
    pub seed: u64,
    /// Latency of all phases.
    pub latency: Latency,
    /// Fraction of endpoints without a useful response, from 0 to 1; ignored with [`Mix::Balancer`].
    pub dead_fraction: f64,
    /// Kinds of endpoints.
    pub mix: Mix,
    /// Port of endpoints with TLS from the first byte; `None`: any free port. Other protocols and faults always use other free
    /// ports.
    pub port: Option<u16>,
    /// Whether leaves contain the URL of their issuer's CRL, which the fleet serves. One in ten healthy leaves is then revoked
    /// ([`crate::Truth::revoked`]).
    pub revocation: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            endpoints: 400,
            seed: 1,
            latency: Latency::None,
            dead_fraction: 0.05,
            mix: Mix::AllKinds,
            port: None,
            revocation: false,
        }
    }
}

impl Plan {
    /// Returns a plan with one endpoint of each kind (more for kinds that need a group).
    #[must_use]
    pub fn one_of_each() -> Self {
        Self { endpoints: kind::least(|_| true), ..Self::default() }
    }
}

/// Latency of each phase, constant for each endpoint and determined by the seed.
///
/// Connections on loopback are established immediately. The connect time is therefore spent before the server's first byte, and the
/// handshake time before the server's first TLS flight.
#[derive(Clone, Debug)]
pub enum Latency {
    /// No added latency.
    None,
    /// The ranges that CertPulse reports: DNS 8 to 40 ms, connecting 20 to 120 ms, handshake 80 to 300 ms.
    CertPulse,
    /// Custom ranges.
    Custom {
        /// Time from the DNS query to the response.
        dns: RangeInclusive<Duration>,
        /// Time from the SYN to the established connection.
        dial: RangeInclusive<Duration>,
        /// Time from the ClientHello to the server's first flight.
        handshake: RangeInclusive<Duration>,
    },
}

/// Latency range of each phase.
#[derive(Clone, Debug)]
pub(crate) struct LatencyRanges {
    pub(crate) dns: RangeInclusive<Duration>,
    pub(crate) dial: RangeInclusive<Duration>,
    pub(crate) handshake: RangeInclusive<Duration>,
}

impl Latency {
    pub(crate) fn ranges(&self) -> LatencyRanges {
        let ms = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
        match self {
            Self::None => LatencyRanges { dns: ms(0, 0), dial: ms(0, 0), handshake: ms(0, 0) },
            Self::CertPulse => LatencyRanges { dns: ms(8, 40), dial: ms(20, 120), handshake: ms(80, 300) },
            Self::Custom { dns, dial, handshake } => {
                LatencyRanges { dns: dns.clone(), dial: dial.clone(), handshake: handshake.clone() }
            }
        }
    }
}

/// The kinds of endpoints in a fleet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mix {
    /// All kinds and faults.
    AllKinds,
    /// Only endpoints with TLS from the first byte and without findings, plus the dead fraction.
    Healthy,
    /// A typical organization: mostly healthy endpoints, and some of all other kinds.
    Demo,
    /// Many names on one address with one wildcard certificate.
    Balancer {
        /// Number of names.
        names: usize,
    },
}
