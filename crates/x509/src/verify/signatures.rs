//! Cache of signature checks: a scan sees the same intermediates at every endpoint.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Fingerprint, SpkiHash};

/// Cache of whether a key signed a certificate. The two hashes cover all bytes that the result depends on, so entries never become
/// stale.
pub trait SignatureCache {
    /// Returns the cached result of a check: whether the key of `issuer` signed `certificate`. Returns `None` if the cache has no
    /// result.
    fn get(&self, issuer: &SpkiHash, certificate: &Fingerprint) -> Option<bool>;
    /// Stores a result. An implementation may ignore it.
    fn put(&self, issuer: &SpkiHash, certificate: &Fingerprint, signed: bool);
}

/// A cache that stores nothing.
impl SignatureCache for () {
    fn get(&self, _: &SpkiHash, _: &Fingerprint) -> Option<bool> {
        None
    }

    fn put(&self, _: &SpkiHash, _: &Fingerprint, _: bool) {}
}

/// In-memory cache with a bounded size and two generations. When the young generation is full, it becomes the old one. Entries that
/// are used again move back to the young generation, so frequently used entries stay. This needs two lookups, but no ordered list.
#[derive(Debug)]
pub struct MemorySignatureCache {
    generations: Mutex<Generations>,
    /// Maximum entries of one generation.
    half: usize,
}

type SignatureResults = HashMap<(SpkiHash, Fingerprint), bool>;

#[derive(Debug, Default)]
struct Generations {
    young: SignatureResults,
    old: SignatureResults,
}

impl MemorySignatureCache {
    /// Creates a cache of up to `entries` results, about 100 bytes each.
    #[must_use]
    pub fn bounded(entries: usize) -> Self {
        Self { generations: Mutex::default(), half: (entries / 2).max(1) }
    }

    /// Returns the number of cached results.
    #[must_use]
    pub fn len(&self) -> usize {
        let generations = self.lock();
        generations.young.len() + generations.old.len()
    }

    /// Returns whether the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ignores lock poisoning: the maps are always consistent, so a panic elsewhere leaves them usable.
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

impl SignatureCache for MemorySignatureCache {
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
    fn signature_cache_keeps_used_entries_and_stays_bounded() {
        let issuer = SpkiHash::of(b"issuer");
        let often = Fingerprint::of(b"often");
        let signatures = MemorySignatureCache::bounded(10);
        signatures.put(&issuer, &often, true);
        for number in 0..100u8 {
            signatures.put(&issuer, &Fingerprint::of(&[number]), false);
            assert_eq!(signatures.get(&issuer, &often), Some(true), "after {number}");
            assert!(signatures.len() <= 10);
        }
        assert_eq!(signatures.get(&issuer, &Fingerprint::of(&[0])), None);
    }
}
