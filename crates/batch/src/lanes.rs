//! The number of operations in a batch.

/// Operations in a batch.
pub const LANES: usize = 8;
