//! One probe that is due.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::target::Target;

/// Whether an endpoint is probed for the first or the last time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pass {
    First,
    Second,
}

/// A target whose addresses are known, waiting for its turn.
pub(crate) struct Job {
    pub(crate) target: Arc<Target>,
    /// In order of preference; more than one only where any of them will do.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether the address is part of the endpoint's identity (`--all-addresses`).
    pub(crate) by_address: bool,
    pub(crate) pass: Pass,
    pub(crate) dns_us: u32,
    /// When the DNS answer with these addresses expires.
    pub(crate) valid_until: Option<Instant>,
    pub(crate) attempts: u8,
    /// At the first try the connection was made and not one byte came.
    pub(crate) stalled: bool,
    /// The delay before the probe begins.
    pub(crate) pause: Duration,
}

impl Job {
    /// Whether the DNS answer has not expired.
    pub(crate) fn is_valid(&self) -> bool {
        self.valid_until.is_none_or(|until| Instant::now() <= until)
    }

    /// The address whose politeness bound counts.
    pub(crate) fn address(&self) -> IpAddr {
        self.addresses[0]
    }
}
