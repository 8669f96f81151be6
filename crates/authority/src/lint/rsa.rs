//! Detection of RSA keys that can be factored.

use std::sync::LazyLock;

use x509::PublicKey;
use x509::der::{Reader, tag};

use super::fermat;

const BITS_MIN: u32 = 2_048;
const BITS_MAX: u32 = 8_192;
/// Lower bound of the factors of a modulus (BR section 6.1.6).
const FACTOR_MIN: u32 = 752;
/// Largest prime of the published test for CVE-2017-15361 (ROCA). The residues modulo these primes identify weak keys.
const ROCA_PRIME_MAX: u32 = 167;
/// Generator of keys that are vulnerable to ROCA: their primes have the form k·M + (65537^a mod M).
const ROCA_GENERATOR: u32 = 65_537;

/// Returns the reason why the key is weak; `None` for a sound key.
pub(super) fn weakness(key: &PublicKey) -> Option<String> {
    if !(BITS_MIN..=BITS_MAX).contains(&key.bits) {
        return Some(format!("an RSA key of {} bits: use {BITS_MIN} to {BITS_MAX}", key.bits));
    }
    match key.rsa_exponent {
        None => return Some("an RSA exponent over 64 bits: use 65537".to_owned()),
        Some(exponent) if exponent < 3 || exponent % 2 == 0 => {
            return Some(format!("the RSA exponent {exponent}: use 65537"));
        }
        Some(_) => {}
    }
    let Some(modulus) = modulus(key) else { return Some("an RSA key that cannot be parsed".to_owned()) };
    let tables = &*TABLES;
    if modulus.last().is_none_or(|last| last % 2 == 0) {
        return Some("an RSA modulus that is even".to_owned());
    }
    let residues = tables.residues(modulus);
    if let Some((prime, _)) = residues.iter().find(|(_, residue)| *residue == 0) {
        return Some(format!("an RSA modulus divisible by {prime}"));
    }
    let roca = tables.roca.iter().zip(&residues).all(|(powers, (_, residue))| powers[*residue as usize]);
    if roca {
        return Some(
            "an RSA key with the ROCA weakness (CVE-2017-15361): generate a new key with other hardware or software".to_owned(),
        );
    }
    let close = "an RSA key whose primes are too close together (Fermat, CVE-2022-26320): generate a new key with other hardware \
         or software";
    fermat::is_fermat_factorable(modulus).then(|| close.to_owned())
}

/// Returns the modulus, most significant byte first.
pub(super) fn modulus(key: &PublicKey) -> Option<&[u8]> {
    let mut parts = Reader::new(key.key_bytes()).sequence().ok()?;
    Some(parts.expect(tag::INTEGER).ok()?.content)
}

struct Tables {
    /// Groups of consecutive odd primes: their product, which fits in 32 bits, and the primes.
    groups: Vec<(u64, Vec<u32>)>,
    /// For each odd prime up to `ROCA_PRIME_MAX`, and for each residue modulo this prime: whether the residue is a power of
    /// `ROCA_GENERATOR`.
    roca: Vec<Vec<bool>>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

impl Tables {
    fn new() -> Self {
        let is_prime = |n: &u32| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        let primes: Vec<u32> = (3..FACTOR_MIN).filter(is_prime).collect();
        let mut groups: Vec<(u64, Vec<u32>)> = Vec::new();
        for prime in &primes {
            match groups.last_mut().filter(|(product, _)| product * u64::from(*prime) <= u64::from(u32::MAX))
            {
                Some((product, members)) => {
                    *product *= u64::from(*prime);
                    members.push(*prime);
                }
                None => groups.push((u64::from(*prime), vec![*prime])),
            }
        }
        let powers = |prime: &u32| {
            let mut seen = vec![false; *prime as usize];
            let mut power = 1 % prime;
            while !seen[power as usize] {
                seen[power as usize] = true;
                power = (u64::from(power) * u64::from(ROCA_GENERATOR) % u64::from(*prime)) as u32;
            }
            seen
        };
        let roca = primes.iter().take_while(|prime| **prime <= ROCA_PRIME_MAX).map(powers).collect();
        Self { groups, roca }
    }

    /// Returns the odd primes below [`FACTOR_MIN`] with the residue of the modulus for each.
    fn residues(&self, modulus: &[u8]) -> Vec<(u32, u32)> {
        let head = modulus.len() % 4;
        let word = |bytes: &[u8]| bytes.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        let divide = |(product, members): &(u64, Vec<u32>)| {
            let first = word(&modulus[..head]) % product;
            let rest =
                modulus[head..].chunks_exact(4).fold(first, |rest, four| (rest << 32 | word(four)) % product);
            members.iter().map(|prime| (*prime, (rest % u64::from(*prime)) as u32)).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(divide).collect()
    }
}

#[cfg(test)]
mod tests {
    use keys::{KeyType, PrivateKey, Signer};
    use x509::der;

    use super::*;

    fn key_of(modulus: &[u8], exponent: u64) -> PublicKey {
        let spki = der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid_text("1.2.840.113549.1.1.1").null();
                });
                w.bits_containing(|w| {
                    w.sequence(|w| {
                        w.unsigned(modulus).unsigned(&exponent.to_be_bytes());
                    });
                });
            });
        });
        PublicKey::parse(&spki).unwrap()
    }

    fn sound() -> Vec<u8> {
        let key = PrivateKey::generate(KeyType::Rsa2048).unwrap();
        modulus(&PublicKey::parse(key.spki()).unwrap()).unwrap().to_vec()
    }

    /// Computes `octets * factor + add` in place, truncated to the same length.
    fn times(bytes: &mut [u8], factor: u32, add: u32) {
        let mut carry = u64::from(add);
        for byte in bytes.iter_mut().rev() {
            let sum = u64::from(*byte) * u64::from(factor) + carry;
            *byte = sum as u8;
            carry = sum >> 8;
        }
    }

    #[test]
    fn sound_rsa_key_passes_and_each_weakness_is_named() {
        let good = sound();
        assert_eq!(weakness(&key_of(&good, 65_537)), None);
        assert!(weakness(&key_of(&good, 65_536)).unwrap().contains("exponent"));
        assert!(weakness(&key_of(&good, 1)).unwrap().contains("exponent"));
        assert!(weakness(&key_of(&good[..128], 65_537)).unwrap().contains("bits"));
        let mut even = good.clone();
        *even.last_mut().unwrap() &= 0xfe;
        assert!(weakness(&key_of(&even, 65_537)).unwrap().contains("even"));
    }

    #[test]
    fn residues_match_long_division() {
        let mut number = vec![0; 256];
        number[255] = 1;
        let mut expected: Vec<(u32, u64)> = TABLES.residues(&number).iter().map(|(p, _)| (*p, 1)).collect();
        assert_eq!(expected.len(), 132, "odd primes below 752");
        for step in 0..200 {
            times(&mut number, 251, step);
            for (prime, residue) in &mut expected {
                *residue = (*residue * 251 + u64::from(step)) % u64::from(*prime);
            }
        }
        for ((prime, found), (_, residue)) in TABLES.residues(&number[1..]).into_iter().zip(expected) {
            // The first byte is zero, so the number without it is the same.
            assert_eq!((u64::from(found), number[0]), (residue, 0), "{prime}");
        }
    }

    #[test]
    fn small_prime_factor_is_found() {
        // 751 * (2^2047 / 751 + an odd number), computed by multiplication so that the product is exact.
        let mut number = vec![0; 256];
        number[2..].copy_from_slice(&[0xa5; 254]);
        *number.last_mut().unwrap() |= 1;
        times(&mut number, 751, 0);
        while number[0] < 0x80 {
            times(&mut number, 3, 0);
        }
        let refused = weakness(&key_of(&number, 65_537)).unwrap();
        assert!(refused.contains("divisible by"), "{refused}");
    }

    /// A modulus with 2,048 bits of two primes k·M + (65537^a mod M), where M is the product of the first 126 primes. The affected
    /// chips generated such moduli.
    const ROCA: &str = "b362c6fbbe1a88912392731380861036c4af84a1cc1e496e5a19be2ff949a2da746a8ba34e94914ae5c6819aa9d902722170\
     b671c8a6fd41aec89eb15df98a63a2b2f4363bc56736380b37f642ba30fda76b9f6cb1c7dff50eb6e289b6d4bd4a46ffd4d6\
     5ebd10247f4b34e409fe67cb55cd3aec82c8cb70369e8fd6bb072eee16ece65d5222df6da227680f372afc50ce793673fd21\
     a2b6e5e5b8237f8e9c987c587143724615e7ca967b0fbb510d9a4e48829ecfc15e5f294efd1a93ff45c3e1669aec1c0cab16\
     a237f23abd9711761b95f9db2739909750967ceaf7ff1e61af4457a42c8e18babf3fbdda4883943a97ef58ba7d6ccd4e74ef\
     efe23e18f5e3";

    #[test]
    fn roca_key_is_rejected() {
        let modulus = data_encoding::HEXLOWER.decode(ROCA.as_bytes()).unwrap();
        assert!(weakness(&key_of(&modulus, 65_537)).unwrap().contains("ROCA"));
    }

    // A number that is a power of 65537 modulo every prime of the test is typical for these chips.
    #[test]
    fn roca_residues_are_recognized() {
        let mut power = vec![0; 256];
        power[255] = 1;
        while power[0] < 0x80 {
            let before = power.clone();
            times(&mut power, ROCA_GENERATOR, 0);
            if before[..2].iter().any(|byte| *byte > 0) {
                power = before;
                break;
            }
        }
        // The number has about 2,032 bits. The test uses the residues, not the length.
        let residues = TABLES.residues(&power);
        assert!(TABLES.roca.iter().zip(&residues).all(|(powers, (_, residue))| powers[*residue as usize]));
        let sound = TABLES.residues(&sound());
        assert!(!TABLES.roca.iter().zip(&sound).all(|(powers, (_, residue))| powers[*residue as usize]));
    }
}
