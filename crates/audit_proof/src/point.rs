//! Points of chains: the hash of the event at one position.

use std::fmt;
use std::str::FromStr;

use x509::Fingerprint;

/// The hash of a chain at one position: `shard:sequence:hash`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChainPoint {
    /// Number of the hash chain (shard).
    pub shard: i64,
    /// Position of the event in the chain.
    pub sequence: i64,
    /// Hash of the event at this position.
    pub hash: Fingerprint,
}

/// The text is not a point of a chain.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not the end of an audit chain: write SHARD:SEQUENCE:HASH")]
pub struct InvalidChainPoint(String);

impl FromStr for ChainPoint {
    type Err = InvalidChainPoint;

    fn from_str(text: &str) -> Result<Self, InvalidChainPoint> {
        let read = || {
            let mut parts = text.split(':');
            let mut part = || parts.next();
            let (shard, sequence, hash) =
                (part()?.parse().ok()?, part()?.parse().ok()?, part()?.parse().ok()?);
            part().is_none().then_some(Self { shard, sequence, hash })
        };
        read().ok_or_else(|| InvalidChainPoint(text.to_owned()))
    }
}

impl fmt::Display for ChainPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.shard, self.sequence, self.hash)
    }
}
