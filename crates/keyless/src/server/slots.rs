//! Slots for connections. A client gets a slot after it has authenticated. Handshakes have separate slots. Each address can use
//! only some of them, so that clients without a certificate cannot block others.

use inbound::{OriginLimit, Slots, TrustedProxies};

/// Maximum concurrent TLS handshakes of one listener, about 50 KB each: half a second of work at 1 ms of processor time each.
pub const HANDSHAKES_MAX: usize = 512;

/// Maximum concurrent handshakes of one address. A terminator has one connection, and a host with many terminators has several. An
/// IPv6 /64 counts as one address, because one host may use all of it.
pub(super) const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;

pub(super) struct ConnectionSlots {
    /// Slots of authenticated clients.
    pub(super) known: Slots,
    /// Slots of clients on Unix sockets, which remote clients cannot use up.
    pub(super) local: Slots,
    /// Slots of other nodes, which clients cannot use up.
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

/// Creates the handshake slots of one listener. Other listeners have their own.
pub(super) fn handshakes(proxies: &TrustedProxies) -> Slots {
    let of_one = OriginLimit::PerNetwork(HANDSHAKES_PER_ADDRESS_MAX);
    Slots::limited(HANDSHAKES_MAX, of_one).behind(proxies.clone())
}
