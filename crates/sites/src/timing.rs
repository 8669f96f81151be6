//! How often nodes and servers speak, and how long a node is believed to be there.

use std::time::Duration;

/// A node says this often that it is there.
pub const BEAT_EVERY: Duration = Duration::from_millis(250);
/// How long it is believed: three beats may be lost, or one come 800 ms late; where several servers hear them two, or one 500 ms
/// late, less what their writing takes and their clocks differ. Called gone by mistake, it comes back with its next
/// beat; meanwhile the others ask other nodes, and connect to it again.
pub const LEASE: Duration = Duration::from_millis(1_100);
/// How long a node waits at most before it asks a control plane again that did not answer.
pub const AWAY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Between two rounds of a server: a few statements, however many nodes.
pub(crate) const ROUND: Duration = Duration::from_millis(250);
/// Within which all are told that a node is gone, from its death: its lease, the round that finds it over, that in which
/// another server reads so, and the beat that is answered so. What is left is for statements and for the way.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
const _: () = assert!(
    LEASE.as_millis() + 2 * ROUND.as_millis() + BEAT_EVERY.as_millis() + 100 < TOLD_WITHIN.as_millis()
);
const _: () = assert!(LEASE.as_millis() > 4 * BEAT_EVERY.as_millis(), "three beats may be lost");
const _: () =
    assert!(LEASE.as_millis() > 3 * BEAT_EVERY.as_millis() + ROUND.as_millis(), "or two, elsewhere");
