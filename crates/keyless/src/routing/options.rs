//! Settings of the router.

use std::time::Duration;

/// Maximum nodes that are tried for one signature, nearest first.
pub const TRIES_MAX: usize = 3;

/// Options of routing between nodes.
#[derive(Clone, Debug)]
pub struct RouterOptions {
    /// Timeout of connecting, including the handshake.
    pub connect_timeout: Duration,
    /// Interval of pings, which measure the round-trip time.
    pub ping_every: Duration,
    /// Timeout of a ping; then the connection is closed.
    pub ping_timeout: Duration,
    /// First pause after a failed attempt to connect; it doubles up to [`Self::backoff_max`].
    pub backoff: Duration,
    /// Maximum pause between attempts.
    pub backoff_max: Duration,
    /// Reserve deducted from a request's deadline for the reply, in addition to the round-trip time.
    pub margin: Duration,
    /// Number of nodes at other sites above which the nodes of a pod (a group of about [`POD_NODES`](super::POD_NODES) nodes of one
    /// site) share their connections, 50 KB each. A shared connection adds a hop within the site, which costs a fifth of a
    /// millisecond and 20 µs of processor time.
    pub shared_from: usize,
    /// Maximum requests per second that one owner (the node of the pod that connects to a destination) should forward to that
    /// destination. This rate uses a tenth of a processor. At higher rates, the destination gets more owners.
    pub owner_rate: u32,
    /// Time for an owner to reach its destination. After this time, the next node of the pod becomes an additional owner.
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
