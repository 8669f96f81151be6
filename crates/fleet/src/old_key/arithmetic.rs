//! Arithmetic modulo an odd number with Montgomery multiplication (1985). Not constant-time: for keys that protect nothing.

/// Limbs, least significant first.
pub(super) type Limbs = Vec<u64>;

/// Converts big-endian bytes to limbs; at least `at_least` of them.
pub(super) fn limbs(octets: &[u8], at_least: usize) -> Limbs {
    let mut out: Limbs =
        octets.rchunks(8).map(|chunk| chunk.iter().fold(0, |limb, b| (limb << 8) | u64::from(*b))).collect();
    out.resize(out.len().max(at_least), 0);
    out
}

/// Converts limbs to `length` big-endian bytes.
pub(super) fn octets(limbs: &[u64], length: usize) -> Vec<u8> {
    let all: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
    let mut out = vec![0; length.saturating_sub(all.len())];
    out.extend_from_slice(&all[all.len().saturating_sub(length)..]);
    out
}

/// An odd modulus.
#[derive(Debug)]
pub(super) struct Modulus {
    pub(super) n: Limbs,
    /// −n⁻¹ modulo 2⁶⁴.
    negated_inverse: u64,
    /// R² modulo n, where R is 2 to the bits of all limbs.
    r_squared: Limbs,
}

impl Modulus {
    pub(super) fn new(n: &[u8]) -> Self {
        let n = limbs(n, 1);
        // Newton iteration: each step doubles the number of correct bits, starting with three.
        let mut inverse = n[0];
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(n[0].wrapping_mul(inverse)));
        }
        let mut square = vec![0; 2 * n.len() + 1];
        square[2 * n.len()] = 1;
        let r_squared = remainder(&square, &n);
        Self { negated_inverse: inverse.wrapping_neg(), r_squared, n }
    }

    pub(super) fn remainder(&self, value: &[u8]) -> Limbs {
        remainder(&limbs(value, 1), &self.n)
    }

    /// Computes a·b modulo n.
    pub(super) fn multiply(&self, a: &[u64], b: &[u64]) -> Limbs {
        self.montgomery(&self.montgomery(a, b), &self.r_squared)
    }

    /// Computes base to the power of `exponent` (big-endian bytes) modulo n.
    pub(super) fn power(&self, base: &[u64], exponent: &[u8]) -> Limbs {
        let mut one = vec![0; self.n.len()];
        one[0] = 1;
        let base = self.montgomery(base, &self.r_squared);
        let mut power = self.montgomery(&one, &self.r_squared);
        for bit in exponent.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1)) {
            power = self.montgomery(&power, &power);
            if bit == 1 {
                power = self.montgomery(&power, &base);
            }
        }
        self.montgomery(&power, &one)
    }

    /// Computes (a + b) modulo n. Both must be below n.
    pub(super) fn add(&self, a: &[u64], b: &[u64]) -> Limbs {
        let mut sum = a.to_vec();
        sum.push(0);
        add_into(&mut sum, b);
        reduce_once(&mut sum, &self.n);
        sum.truncate(self.n.len());
        sum
    }

    /// Computes a·b·R⁻¹ modulo n.
    fn montgomery(&self, a: &[u64], b: &[u64]) -> Limbs {
        let size = self.n.len();
        let mut t = vec![0u64; size + 2];
        for &limb in a.iter().take(size) {
            multiply_add(&mut t, limb, b);
            let factor = t[0].wrapping_mul(self.negated_inverse);
            multiply_add(&mut t, factor, &self.n);
            t.copy_within(1.., 0);
            t[size + 1] = 0;
        }
        t.truncate(size + 1);
        reduce_once(&mut t, &self.n);
        t.truncate(size);
        t
    }
}

/// Adds factor·b to t.
fn multiply_add(t: &mut [u64], factor: u64, b: &[u64]) {
    let mut carry = 0u128;
    for (i, slot) in t.iter_mut().enumerate() {
        let limb = b.get(i).copied().unwrap_or(0);
        let sum = u128::from(*slot) + u128::from(factor) * u128::from(limb) + carry;
        *slot = sum as u64;
        carry = sum >> 64;
    }
}

fn add_into(sum: &mut [u64], b: &[u64]) {
    multiply_add(sum, 1, b);
}

/// Subtracts n from value if value is at least n.
fn reduce_once(value: &mut [u64], n: &[u64]) {
    if less(value, n) {
        return;
    }
    let mut borrow = false;
    for (i, slot) in value.iter_mut().enumerate() {
        let (first, a) = slot.overflowing_sub(n.get(i).copied().unwrap_or(0));
        let (second, b) = first.overflowing_sub(u64::from(borrow));
        *slot = second;
        borrow = a | b;
    }
}

fn less(a: &[u64], b: &[u64]) -> bool {
    for i in (0..a.len().max(b.len())).rev() {
        let (x, y) = (a.get(i).copied().unwrap_or(0), b.get(i).copied().unwrap_or(0));
        if x != y {
            return x < y;
        }
    }
    false
}

/// Computes the remainder bit by bit: slow, but used only a few times.
fn remainder(value: &[u64], n: &[u64]) -> Limbs {
    let mut rest = vec![0; n.len() + 1];
    for bit in value.iter().rev().flat_map(|limb| (0..64).rev().map(move |i| limb >> i & 1)) {
        for i in (1..rest.len()).rev() {
            rest[i] = rest[i] << 1 | rest[i - 1] >> 63;
        }
        rest[0] = rest[0] << 1 | bit;
        reduce_once(&mut rest, n);
    }
    rest.truncate(n.len());
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modular_power_matches_known_values() {
        for (base, exponent, modulus, expected) in
            [(4u8, 13u8, 497u16, 445u64), (2, 10, 1_025, 1_024), (3, 0, 7, 1), (5, 117, 19, 1)]
        {
            let modulus = Modulus::new(&modulus.to_be_bytes());
            assert_eq!(modulus.power(&modulus.remainder(&[base]), &[exponent]), [expected]);
        }
    }
}
