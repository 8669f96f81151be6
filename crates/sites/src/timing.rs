//! Intervals of heartbeats and rounds, and the duration of leases.

use std::time::Duration;

/// Interval of a node's heartbeats.
pub const BEAT_EVERY: Duration = Duration::from_millis(250);
/// Time after a heartbeat for which a node counts as present. With one server, three heartbeats may be lost, or one may arrive 800
/// ms late. With several servers, two may be lost, or one may arrive 500 ms late. The time for writing and the difference of the
/// clocks reduce these margins. A node that is wrongly recorded as gone returns with its next heartbeat; until then, other nodes do
/// not use it.
pub const LEASE: Duration = Duration::from_millis(1_100);
/// Maximum pause of a node before it retries a control plane that did not respond.
pub const AWAY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Interval of a server's rounds. On PostgreSQL, a round takes a few SQL statements, independent of the number of nodes.
pub(crate) const ROUND: Duration = Duration::from_millis(250);
/// Maximum time from a node's failure until all other nodes are notified. It covers:
///
/// - the node's lease,
/// - the round that detects the expiry of the lease,
/// - the round in which another server reads the change,
/// - the next heartbeat,
/// - a reserve for the database and the network.
const NOTIFY_WITHIN: Duration = Duration::from_secs(2);
const _: () = assert!(
    LEASE.as_millis() + 2 * ROUND.as_millis() + BEAT_EVERY.as_millis() + 100 < NOTIFY_WITHIN.as_millis()
);
const _: () = assert!(LEASE.as_millis() > 4 * BEAT_EVERY.as_millis(), "three beats may be lost");
const _: () =
    assert!(LEASE.as_millis() > 3 * BEAT_EVERY.as_millis() + ROUND.as_millis(), "or two, elsewhere");
