//! Minimum, maximum and default lifetime of leases.

/// Minimum lifetime of a lease, s.
pub(super) const LEASE_TTL_MIN_S: u32 = 1;
/// Maximum lifetime of a lease, s: a year.
pub const LEASE_TTL_MAX_S: u32 = 365 * 86_400;
/// Default lifetime of a lease, s.
pub(super) const LEASE_TTL_S: u32 = 3_600;
