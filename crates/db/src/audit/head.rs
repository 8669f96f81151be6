//! The end of a chain of the audit log.

/// The end of a chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditHead {
    /// The chain.
    pub shard: i64,
    /// The place of its last event; 0 for a chain without events.
    pub sequence: i64,
    /// The hash of that event; zeros for a chain without events.
    pub hash: [u8; 32],
}
