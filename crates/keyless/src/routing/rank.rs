//! Ranking of nodes for signature requests.

/// Sort key of a node. Order of importance: no overdue reply, not known to lack the signing key, short round trip, few requests in
/// flight.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Rank {
    /// A reply is overdue.
    pub(super) is_suspect: bool,
    /// The node recently replied that it does not have the key.
    pub(super) is_lacking: bool,
    /// Class of the round-trip time: nodes of one site have the same class.
    pub(super) distance: u32,
    /// Requests in flight to the node.
    pub(super) in_flight: usize,
}

/// Returns the class of a round-trip time in microseconds: one class up to 1 ms, then four classes for each doubling.
pub(super) fn distance(round_trip_us: u64) -> u32 {
    let octaves = (round_trip_us as f64 / 1_000.0).max(1.0).log2();
    (octaves * 4.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_round_trip_times_have_equal_distance() {
        assert_eq!(distance(0), distance(900));
        assert_eq!(distance(20_100), distance(20_000));
        assert!(distance(10_000) < distance(20_000));
        assert!(distance(175_000) < distance(u64::MAX));
    }
}
