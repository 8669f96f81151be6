//! What a fleet is to look like.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::kind;

/// What a fleet is to look like. The same plan makes the same fleet, but for keys, and dates that
/// stand in relation to the moment of the start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many endpoints. With [`Mix::Balancer`] its `names` count instead. Kinds that need
    /// company (a key shared by three) may add a few.
    pub endpoints: usize,
    /// Decides names, latencies and who is what.
    pub seed: u64,
    /// How long everything takes.
    pub latency: Latency,
    /// The part of the endpoints that answers nothing useful, from 0 to 1, except with
    /// [`Mix::Balancer`].
    pub dead_fraction: f64,
    /// What kinds there are.
    pub mix: Mix,
    /// The port of endpoints that speak TLS at once; `None`: any free one. Other protocols and
    /// faults have ports of their own, always free ones.
    pub port: Option<u16>,
    /// Whether leaves name the CRL of their issuer, which a server of the fleet hands out; one in ten of the healthy
    /// leaves is then on it ([`crate::Truth::revoked`]).
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
    /// One endpoint of each kind (kinds that need company come with it).
    #[must_use]
    pub fn one_of_each() -> Self {
        Self { endpoints: kind::least(|_| true), ..Self::default() }
    }
}

/// How long each phase takes, fixed for each endpoint by the seed.
///
/// Loopback connects at once, so the time to connect is spent before the server's first byte
/// instead; the time of the handshake before the server's first flight of TLS.
#[derive(Clone, Debug)]
pub enum Latency {
    /// As fast as this machine is.
    None,
    /// The ranges CertPulse reports: DNS 8 to 40 ms, connecting 20 to 120 ms, handshake 80 to
    /// 300 ms.
    CertPulse,
    /// Ranges of your own.
    Custom {
        /// From question to answer.
        dns: RangeInclusive<Duration>,
        /// From SYN to connection.
        dial: RangeInclusive<Duration>,
        /// From ClientHello to the server's flight.
        handshake: RangeInclusive<Duration>,
    },
}

/// The ranges a plan's latency comes down to.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    pub(crate) dns: RangeInclusive<Duration>,
    pub(crate) dial: RangeInclusive<Duration>,
    pub(crate) handshake: RangeInclusive<Duration>,
}

impl Latency {
    pub(crate) fn ranges(&self) -> Ranges {
        let ms = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
        match self {
            Self::None => Ranges { dns: ms(0, 0), dial: ms(0, 0), handshake: ms(0, 0) },
            Self::CertPulse => Ranges { dns: ms(8, 40), dial: ms(20, 120), handshake: ms(80, 300) },
            Self::Custom { dns, dial, handshake } => {
                Ranges { dns: dns.clone(), dial: dial.clone(), handshake: handshake.clone() }
            }
        }
    }
}

/// What kinds of endpoint a fleet has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mix {
    /// Every kind and fault there is.
    AllKinds,
    /// Only TLS from the first byte, only without a finding; the dead fraction is still dead.
    Healthy,
    /// What an ordinary organisation has: mostly healthy, some of everything else.
    Demo,
    /// Many names behind one address that serves one wildcard certificate.
    Balancer {
        /// How many names.
        names: usize,
    },
}
