//! Iterates over a range in pseudorandom order with constant memory.

/// Rounds of the Feistel network. Four give a permutation without visible pattern (Luby and Rackoff). The order need not resist
/// an adversary.
const ROUNDS: u64 = 4;

/// Iterator that returns every number below `count` exactly once, in a fixed order in which neighbours are far apart. A scan of a
/// network thus does not probe the hosts of a rack one after the other, which could trigger a firewall's rate limit.
///
/// A Feistel network permutes the next larger power of four; numbers that fall outside `count` are
/// permuted again until they fall inside ("cycle walking"), at most four times on average.
#[derive(Clone, Debug)]
pub(super) struct Shuffled {
    count: u64,
    next: u64,
    half_bits: u32,
    seed: u64,
}

impl Shuffled {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, next: 0, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Returns the count of remaining numbers.
    pub(super) fn left(&self) -> u64 {
        self.count - self.next
    }

    fn permute(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (mix(right ^ self.seed, round) & mask));
        }
        (left << self.half_bits) | right
    }
}

impl Iterator for Shuffled {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next >= self.count {
            return None;
        }
        let mut number = self.permute(self.next);
        while number >= self.count {
            number = self.permute(number);
        }
        self.next += 1;
        Some(number)
    }
}

/// Mixes the bits of `value` by the finalizer of SplitMix64: every bit of the result depends on every bit of the input.
pub(super) fn mix(value: u64, round: u64) -> u64 {
    let mut z = value.wrapping_add((round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shuffle_yields_every_number_exactly_once(count in 0_u64..5_000, seed: u64) {
            let mut numbers: Vec<u64> = Shuffled::new(count, seed).collect();
            prop_assert_eq!(numbers.len() as u64, count);
            numbers.sort_unstable();
            prop_assert!(numbers.iter().copied().eq(0..count));
        }
    }

    #[test]
    fn shuffle_order_is_reproducible_from_its_seed() {
        let first: Vec<u64> = Shuffled::new(1_000, 7).collect();
        assert_eq!(first, Shuffled::new(1_000, 7).collect::<Vec<_>>());
        assert_ne!(first, Shuffled::new(1_000, 8).collect::<Vec<_>>());
    }

    #[test]
    fn shuffle_separates_neighboring_numbers() {
        let order: Vec<u64> = Shuffled::new(65_536, 1).collect();
        let close = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 16).count();
        // In a random order, 31 of 65,535 steps would be that short.
        assert!(close < 120, "{close} short steps");
    }

    #[test]
    fn shuffle_of_the_largest_range_starts_immediately() {
        let mut all = Shuffled::new(u64::MAX, 3);
        assert!(all.next().is_some());
    }
}
