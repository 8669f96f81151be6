//! Signature checks remembered: a scan meets the same intermediates at every endpoint.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Fingerprint, SpkiHash};

/// Remembers whether a key signed a certificate. Both hashes cover all the bytes that the answer
/// depends on, so it never goes stale.
pub trait SignatureCache {
    /// The cached result.
    fn get(&self, issuer: &SpkiHash, certificate: &Fingerprint) -> Option<bool>;
    /// Remembers, or does not.
    fn put(&self, issuer: &SpkiHash, certificate: &Fingerprint, signed: bool);
}

/// Remembers nothing.
impl SignatureCache for () {
    fn get(&self, _: &SpkiHash, _: &Fingerprint) -> Option<bool> {
        None
    }

    fn put(&self, _: &SpkiHash, _: &Fingerprint, _: bool) {}
}

/// Remembers in memory up to a bound, in two generations: when the young one is full it becomes
/// the old one, and what is asked for again moves back. So the often used stay, at the cost of two
/// look-ups and no list to keep in order.
#[derive(Debug)]
pub struct Signatures {
    generations: Mutex<Generations>,
    /// Entries in one generation.
    half: usize,
}

type SignatureResults = HashMap<(SpkiHash, Fingerprint), bool>;

#[derive(Debug, Default)]
struct Generations {
    young: SignatureResults,
    old: SignatureResults,
}

impl Signatures {
    /// Remembers up to `entries` answers, about 100 bytes each.
    #[must_use]
    pub fn bounded(entries: usize) -> Self {
        Self { generations: Mutex::default(), half: (entries / 2).max(1) }
    }

    /// SignatureResults remembered now.
    #[must_use]
    pub fn len(&self) -> usize {
        let generations = self.lock();
        generations.young.len() + generations.old.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The maps are whole at every moment, so a panic elsewhere leaves them usable.
    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn insert(&mut self, key: (SpkiHash, Fingerprint), signed: bool, half: usize) {
        if self.young.len() >= half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, signed);
    }
}

impl SignatureCache for Signatures {
    fn get(&self, issuer: &SpkiHash, certificate: &Fingerprint) -> Option<bool> {
        let key = (*issuer, *certificate);
        let mut generations = self.lock();
        if let Some(signed) = generations.young.get(&key) {
            return Some(*signed);
        }
        let signed = generations.old.remove(&key)?;
        generations.insert(key, signed, self.half);
        Some(signed)
    }

    fn put(&self, issuer: &SpkiHash, certificate: &Fingerprint, signed: bool) {
        self.lock().insert((*issuer, *certificate), signed, self.half);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_bound_holds() {
        let issuer = SpkiHash::of(b"issuer");
        let often = Fingerprint::of(b"often");
        let signatures = Signatures::bounded(10);
        signatures.put(&issuer, &often, true);
        for number in 0..100u8 {
            signatures.put(&issuer, &Fingerprint::of(&[number]), false);
            assert_eq!(signatures.get(&issuer, &often), Some(true), "after {number}");
            assert!(signatures.len() <= 10);
        }
        assert_eq!(signatures.get(&issuer, &Fingerprint::of(&[0])), None);
    }
}
