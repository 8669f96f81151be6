//! Slots for connections. They are taken by those who have shown who they are; those who have not yet have few,
//! and one address only some of these, so that nobody without a certificate keeps anybody out.

use inbound::{OriginLimit, Slots, TrustedProxies};

/// TLS handshakes under way of one listener, some 50 KB each: at 1 ms of a processor a handshake, half a second's worth.
pub const HANDSHAKES_MAX: usize = 512;

/// Of one address: a terminator has one connection, a host with many behind it some. Of IPv6 one address is a whole /64,
/// of which any host may have all.
pub(super) const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;

/// The places there are.
pub(super) struct ConnectionSlots {
    /// Of clients that have shown who they are.
    pub(super) known: Slots,
    /// Of local ones: those from elsewhere cannot take theirs.
    pub(super) local: Slots,
    /// Of other nodes: clients cannot take theirs.
    pub(super) nodes: Slots,
}

impl ConnectionSlots {
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            known: Slots::new(connections_max),
            local: Slots::new(connections_max),
            nodes: Slots::new(connections_max),
        }
    }
}

/// The handshakes of one listener: no other listener's clients take them.
pub(super) fn handshakes(proxies: &TrustedProxies) -> Slots {
    let of_one = OriginLimit::PerNetwork(HANDSHAKES_PER_ADDRESS_MAX);
    Slots::limited(HANDSHAKES_MAX, of_one).behind(proxies.clone())
}
