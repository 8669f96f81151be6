//! Concurrency limits by key, for example by principal.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// A limit on the concurrent uses of each key. Clones share it.
#[derive(Debug)]
pub struct KeyedConcurrencyLimit<K> {
    per_key_max: usize,
    counts: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K> Clone for KeyedConcurrencyLimit<K> {
    fn clone(&self) -> Self {
        Self { per_key_max: self.per_key_max, counts: Arc::clone(&self.counts) }
    }
}

impl<K: Clone + Eq + Hash> KeyedConcurrencyLimit<K> {
    /// Creates a limit of `per_key_max` concurrent uses for each key. Zero counts as one.
    #[must_use]
    pub fn new(per_key_max: usize) -> Self {
        Self { per_key_max: per_key_max.max(1), counts: Arc::default() }
    }

    /// Takes one more use of `key`. Returns `None` if the key is at its limit.
    #[must_use]
    pub fn take(&self, key: K) -> Option<KeyedPermit<K>> {
        let mut counts = self.counts.lock();
        let count = counts.entry(key.clone()).or_default();
        if *count >= self.per_key_max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(KeyedPermit { limit: self.clone(), key })
    }
}

/// A permit for one concurrent use of a key, released on drop.
#[derive(Debug)]
pub struct KeyedPermit<K: Clone + Eq + Hash> {
    limit: KeyedConcurrencyLimit<K>,
    key: K,
}

impl<K: Clone + Eq + Hash> Drop for KeyedPermit<K> {
    fn drop(&mut self) {
        let mut counts = self.limit.counts.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_limited_per_key_and_unused_keys_are_removed() {
        let limit = KeyedConcurrencyLimit::new(2);
        let mut permits = vec![limit.take("a").unwrap(), limit.take("a").unwrap(), limit.take("b").unwrap()];
        assert!(limit.take("a").is_none());
        drop(permits.remove(0));
        assert!(limit.take("a").is_some());
        drop(permits);
        assert!(limit.counts.lock().is_empty());
    }
}
