//! Delays by hash that spread the periodic work of many nodes, without randomness.

use aws_lc_rs::digest::{SHA256, digest};

/// Returns a delay below `bound_us`, derived from a hash: every node gets the same delay for the same subject and planned time. 0
/// when `bound_us` is 0 or less.
#[must_use]
pub fn by_hash(subject: &[u8], planned_at_us: i64, bound_us: i64) -> i64 {
    if bound_us <= 0 {
        return 0;
    }
    let hash = digest(&SHA256, &[subject, &planned_at_us.to_be_bytes()].concat());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.as_ref()[..8]);
    (u64::from_be_bytes(first) % bound_us.unsigned_abs()) as i64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::by_hash;

    #[test]
    fn delays_differ_by_subject_and_stay_below_the_maximum() {
        let delays: HashSet<i64> = (0..100_u128).map(|n| by_hash(&n.to_be_bytes(), 7, 1_000_000)).collect();
        assert!(delays.len() > 95, "{}", delays.len());
        assert!(delays.iter().all(|delay| (0..1_000_000).contains(delay)));
        assert_eq!(by_hash(b"subject", 7, 0), 0);
    }
}
