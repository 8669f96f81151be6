//! The number of operations in a batch.

/// Number of operations in a batch: one per 64-bit lane of a 512-bit register.
pub const LANES: usize = 8;
