//! Settings of the router.

use std::time::Duration;

/// Nodes asked for one signature, the nearest first.
pub const TRIES_MAX: usize = 3;

/// Options of routing between nodes.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// For making a connection, handshake included.
    pub connect_timeout: Duration,
    /// Between two measurements of the way to a node.
    pub ping_every: Duration,
    /// For the answer to one; past it the connection is given up.
    pub ping_timeout: Duration,
    /// The pause after a connection could not be made; it doubles up to [`Self::backoff_max`].
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// Reserve deducted from a request's deadline for the reply, in addition to the round-trip time.
    pub margin: Duration,
    /// Nodes at other sites beyond which the connections to them are shared with the others of the own site, 50 KB each. A shared
    /// one costs another hop within the site, a fifth of a millisecond and 20 µs of a processor.
    pub shared_from: usize,
    /// Requests a second to one node that one owner of the connection is to pass on, a tenth of a processor; more owners share
    /// more.
    pub owner_rate: u32,
    /// An owner that has not reached a node by then is joined by the next one of the site.
    pub reached_within: Duration,
}

impl Default for RouterOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            ping_every: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(2),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            margin: Duration::from_millis(5),
            shared_from: 64,
            owner_rate: 5_000,
            reached_within: Duration::from_secs(5),
        }
    }
}
