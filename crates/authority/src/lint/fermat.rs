//! Detection of RSA moduli whose primes are close together. Fermat's method factors them (BR section 6.1.1.3; CVE-2022-26320
//! describes such a key generator).

use num_bigint::BigUint;

/// Number of rounds of Fermat's method. BR section 6.1.1.3 requires CAs to reject keys that these rounds factor.
const ROUNDS: u32 = 100;

/// Returns whether [`ROUNDS`] rounds factor the modulus (most significant byte first, odd), or whether it is a square.
pub(super) fn is_fermat_factorable(modulus: &[u8]) -> bool {
    fermat_factor_round(&BigUint::from_bytes_be(modulus), ROUNDS).is_some()
}

/// Returns the round in which a² - n is the square of b, so that n is (a - b)(a + b). a starts at √n and is incremented.
fn fermat_factor_round(n: &BigUint, rounds: u32) -> Option<u32> {
    let mut a = n.sqrt();
    if &a * &a == *n {
        return Some(0);
    }
    a += 1_u32;
    let mut rest = &a * &a - n;
    for round in 1..=rounds {
        if is_square(&rest) {
            return Some(round);
        }
        rest += (&a << 1_u32) + 1_u32;
        a += 1_u32;
    }
    None
}

fn is_square(n: &BigUint) -> bool {
    // Most numbers are not squares modulo these values. Compute the square root only for the remaining ones.
    let may_be = [64, 63, 65, 11].into_iter().all(|modulus: u32| {
        let left = (n % modulus).iter_u32_digits().next().unwrap_or(0);
        (0..modulus).any(|root| root * root % modulus == left)
    });
    may_be && {
        let root = n.sqrt();
        &root * &root == *n
    }
}

#[cfg(test)]
mod tests {
    use keys::{KeyType, PrivateKey, Signer};
    use x509::PublicKey;

    use super::*;

    /// The product of two neighboring primes.
    const NEIGHBOURS: &str = "f1059d40c5602c883c0e815c2287bf674ebb6f90142f24ec8ee43d7f35b058a4942af3d80b10b775013d4267bc9eb7366828\
     2729e6f1c5dfa3719a4c90427eccd39d0038524412d14c2cd0a6f5cbdd2ca724f8e4f6c702fbf3f3400bf0c60bef74e57c3f\
     fcd740e23bbd45e0f7c00744349b4610020c72f0855e77634e48adfe8d4ad203b1be7575cbdf11fc8393baccc577bd26e58b\
     6c98d140ca5a927319b2b96b1cd08567ff1eaf1513a6808f40d7e28bd534e31939bcc43728f267765b45a00d00fbe989d630\
     265a51380cba62252e888dde0210bfcad25a64e4958c49099e10ab16839b291615659eb905c5693af9b387dd44895c11bd07\
     5e82e6189aa1";
    /// A modulus that round 96 factors.
    const NEAR: &str = "f1059d40c5602c883c0e815c2287bf674ebb6f90142f24ec8ee43d7f35b058a4942af3d80b10b775013d4267bc9eb7366828\
     2729e6f1c5dfa3719a4c90427ee72d095d794a969a5654dad41616411bc2d5043cee50fa81a3bd7d088ec84fd9352292e63d\
     f2ddda768f35ec6179059376683811d3e1f746320b9e8cc595725523c53d25a7fa061c96d43ccdecd23342bc1f7191bb1e9d\
     6921e8e0b7376f70a0e22eecec9047f9ccae3edcb27af56454663548b841e95e25157fe1f823dffc29e58b0468f46876cf3a\
     af357d8c09ee21d9b2a8a90cf0d254ab16799c9856a8f1f5f7861a0396045db8437dc17e581dc11ac4754a0a0c61cb96c848\
     83fde16d90dd";
    /// A modulus that round 132 factors, beyond the required number of rounds.
    const FARTHER: &str = "f1059d40c5602c883c0e815c2287bf674ebb6f90142f24ec8ee43d7f35b058a4942af3d80b10b775013d4267bc9eb7366828\
     2729e6f1c5dfa3719a4c90427eebc4ab3229f154f696caa201bb73a0c219efe910a183fc3d9e093fc67f8fb5a0c2de2dee4a\
     437b10aa434ec4eed171c01cd1358549c031044b897d935d8d96be7545f4f703a34bad321a2ebc11fbbd81df9f3c0af70e9a\
     5c267ca0aed775b8e310d57bf6643a361bc376037d9081108390bb4e5052189bce34fd4f383a04e058e2b2060ebc04bf57df\
     e70cd8fd50fbc8881c1031db417ec6c89318f3c7d5076aa5d415b6e8f800c4924554927a93d317ac236597a89cae6c3fe26e\
     60d4bcaf5e3f";

    fn number(hex: &str) -> BigUint {
        BigUint::parse_bytes(hex.as_bytes(), 16).unwrap()
    }

    #[test]
    fn close_primes_are_found_within_the_round_limit() {
        for (hex, round) in [(NEIGHBOURS, 1), (NEAR, 96), (FARTHER, 132)] {
            let n = number(hex);
            assert_eq!(n.bits(), 2_048);
            assert_eq!(fermat_factor_round(&n, 1_000), Some(round));
            assert_eq!(is_fermat_factorable(&n.to_bytes_be()), round <= ROUNDS);
        }
        assert!(is_fermat_factorable(&(number(NEAR) * number(NEAR)).to_bytes_be()), "a square");
    }

    #[test]
    fn generated_rsa_keys_are_not_factored() {
        for kind in [KeyType::Rsa2048, KeyType::Rsa3072] {
            let key = PrivateKey::generate(kind).unwrap();
            let key = PublicKey::parse(key.spki()).unwrap();
            assert!(!is_fermat_factorable(super::super::rsa::modulus(&key).unwrap()), "{kind}");
        }
    }

    #[test]
    fn perfect_squares_are_detected() {
        let squares: Vec<u32> = (0..2_000_u32).filter(|n| is_square(&BigUint::from(*n))).collect();
        let expected: Vec<u32> = (0..45_u32).map(|root| root * root).collect();
        assert_eq!(squares, expected);
    }
}
