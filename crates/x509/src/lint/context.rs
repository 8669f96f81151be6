//! Context of a lint: the time, the role of the certificate, and the limits.

use crate::UnixTime;

/// Data that rules need in addition to the certificate: time, role, trust and limits.
#[derive(Clone, Copy, Debug)]
pub struct LintContext {
    /// Time at which the certificate is checked.
    pub now: UnixTime,
    /// Whether the certificate is the leaf of a server, and not a CA certificate of its chain.
    pub leaf: bool,
    /// For long-lived certificates: a certificate with this number of days left expires soon.
    pub expiring_within_days: u32,
    /// For short-lived certificates: the remaining fraction of the lifetime (0 to 1) at which a renewal is due. A certificate is
    /// short-lived if this fraction of its lifetime is less than `expiring_within_days`.
    pub expiring_fraction: f64,
    /// Whether the chain ends at a root of the public trust stores.
    pub publicly_trusted: bool,
}

impl LintContext {
    /// Default of [`Self::expiring_within_days`]; most operators use this value.
    pub const EXPIRING_WITHIN_DAYS: u32 = 30;
    /// Remaining fraction of the lifetime at which Let's Encrypt and ACME clients renew.
    pub const EXPIRING_FRACTION: f64 = 1.0 / 3.0;

    /// Returns the context of a privately issued leaf at `now`, with the default limits.
    #[must_use]
    pub fn for_private_leaf(now: UnixTime) -> Self {
        Self {
            now,
            leaf: true,
            expiring_within_days: Self::EXPIRING_WITHIN_DAYS,
            expiring_fraction: Self::EXPIRING_FRACTION,
            publicly_trusted: false,
        }
    }
}
