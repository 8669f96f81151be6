//! The context of a lint: the moment, the role of the certificate and the limits.

use crate::UnixTime;

/// Facts that rules need in addition to the certificate.
#[derive(Clone, Copy, Debug)]
pub struct LintContext {
    /// The moment to judge by.
    pub now: UnixTime,
    /// The certificate a server presents for itself, rather than one above it.
    pub leaf: bool,
    /// Days before the end that count as soon, for certificates that live long.
    pub expiring_within_days: u32,
    /// Part of the life, 0 to 1, that is left when a short-lived certificate should have been
    /// replaced. Short-lived are those for which this part is less than `expiring_within_days`.
    pub expiring_fraction: f64,
    /// The chain ends at a root of the public trust stores.
    pub publicly_trusted: bool,
}

impl LintContext {
    /// Days before the end that count as soon unless told otherwise: what most operators use.
    pub const EXPIRING_WITHIN_DAYS: u32 = 30;
    /// The part of its life at which Let's Encrypt and ACME clients renew.
    pub const EXPIRING_FRACTION: f64 = 1.0 / 3.0;

    /// A privately issued leaf, judged at `now` by the usual limits.
    #[must_use]
    pub fn leaf_at(now: UnixTime) -> Self {
        Self {
            now,
            leaf: true,
            expiring_within_days: Self::EXPIRING_WITHIN_DAYS,
            expiring_fraction: Self::EXPIRING_FRACTION,
            publicly_trusted: false,
        }
    }
}
