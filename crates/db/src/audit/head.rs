//! The head of an audit log chain: position and hash of its last event.

/// Position and hash of the last event of a chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditHead {
    /// Number of the audit log chain (shard).
    pub shard: i64,
    /// Position of the last event; 0 for a chain without events.
    pub sequence: i64,
    /// Hash of the last event; zeros for a chain without events.
    pub hash: [u8; 32],
}
