//! The end of a chain of the audit log.

/// The end of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) shard: i64,
    pub(crate) sequence: i64,
    pub(crate) hash: [u8; 32],
}
