//! A scheduled probe.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::target::Target;

/// Whether this is the first or the last probe of an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pass {
    First,
    Second,
}

/// A target with known addresses that waits for its probe.
pub(crate) struct Job {
    pub(crate) target: Arc<Target>,
    /// Addresses in order of preference; with `--all-addresses` only one.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether the address is part of the endpoint's identity (`--all-addresses`).
    pub(crate) by_address: bool,
    pub(crate) pass: Pass,
    pub(crate) dns_us: u32,
    /// Time when the DNS records of these addresses expire; `None` for literal addresses.
    pub(crate) valid_until: Option<Instant>,
    pub(crate) attempts: u8,
    /// Whether the first probe connected but received no byte.
    pub(crate) stalled: bool,
    /// The delay before the probe begins.
    pub(crate) pause: Duration,
}

impl Job {
    /// Returns whether the DNS records have not expired.
    pub(crate) fn is_valid(&self) -> bool {
        self.valid_until.is_none_or(|until| Instant::now() <= until)
    }

    /// Returns the address whose concurrency limit applies.
    pub(crate) fn address(&self) -> IpAddr {
        self.addresses[0]
    }
}
