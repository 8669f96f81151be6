//! Which node is asked before which.

/// Who is asked before whom: who answers, then who holds the key, then who is nearer, then who has less to do.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Rank {
    /// It owes an answer for longer than it usually takes.
    pub(super) is_suspect: bool,
    /// It said lately that it does not hold the key.
    pub(super) is_lacking: bool,
    /// The way there and back, as a class: those of one site are as near as each other.
    pub(super) distance: u32,
    /// Requests under way there.
    pub(super) in_flight: usize,
}

/// The class of a way of so many microseconds there and back: all up to 1 ms are one, then four to each doubling.
pub(super) fn distance(round_trip_us: u64) -> u32 {
    let octaves = (round_trip_us as f64 / 1_000.0).max(1.0).log2();
    (octaves * 4.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_as_near_is_as_near() {
        assert_eq!(distance(0), distance(900));
        assert_eq!(distance(20_100), distance(20_000));
        assert!(distance(10_000) < distance(20_000));
        assert!(distance(175_000) < distance(u64::MAX));
    }
}
