//! Keys by their identifiers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keys::{KeyRef, KeyType, PrivateKey};
use parking_lot::RwLock;

use crate::stage::Cost;
use crate::wire::Ski;

/// Requests to one key elsewhere (a token, a service) that may be under way: at 2 s each 1,000 a second, and 4 MB.
pub const ELSEWHERE_PER_KEY_MAX: usize = 2_048;

/// A key that signs.
#[derive(Debug)]
pub struct Key {
    /// What signs.
    pub(crate) signer: KeyRef,
    /// What it is.
    pub(crate) kind: KeyType,
    /// What a signature costs here; nothing of note for a key elsewhere.
    pub(crate) cost: Cost,
    /// The key itself, where it is in this process.
    pub(crate) here: Option<PrivateKey>,
    /// Requests under way to a key elsewhere.
    elsewhere: Arc<AtomicUsize>,
}

/// One request under way to a key elsewhere, until dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Key {
    fn new(signer: KeyRef) -> Self {
        let (kind, here) = (signer.key_type(), signer.here().cloned());
        Self { kind, cost: Cost::of(kind), here, signer, elsewhere: Arc::default() }
    }

    /// `None` when as many are under way as may.
    pub(crate) fn place(&self) -> Option<Place> {
        take(&self.elsewhere, ELSEWHERE_PER_KEY_MAX).map(Place)
    }
}

/// Counts one more, unless there are `max`.
fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Arc<AtomicUsize>> {
    if count.fetch_add(1, Relaxed) >= max {
        count.fetch_sub(1, Relaxed);
        return None;
    }
    Some(Arc::clone(count))
}

/// A count with a bound, for requests to keys elsewhere in all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

impl Places {
    /// `None` when there are `max` already.
    pub(crate) fn take(&self, max: usize) -> Option<Place> {
        take(&self.0, max).map(Place)
    }
}

/// All keys, by source and identifier. Cheap to clone; the clones share them.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    inner: Arc<RwLock<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    by_source: HashMap<String, HashMap<Ski, Arc<Key>>>,
    by_ski: HashMap<Ski, Arc<Key>>,
}

impl KeySet {
    /// Makes `keys` all that this source has. Where two sources have a key of one identifier, the last one put counts, and
    /// the other one's when that goes. Signatures under way by a key that goes are finished.
    pub fn put(&self, source: &str, keys: Vec<KeyRef>) {
        let new: HashMap<Ski, Arc<Key>> = keys
            .into_iter()
            .map(|signer| (Ski::of_spki(signer.spki()), Arc::new(Key::new(signer))))
            .collect();
        let mut inner = self.inner.write();
        let had = inner.by_source.remove(source).unwrap_or_default();
        for ski in had.into_keys().filter(|ski| !new.contains_key(ski)) {
            match inner.by_source.values().find_map(|others| others.get(&ski)).cloned() {
                Some(other) => inner.by_ski.insert(ski, other),
                None => inner.by_ski.remove(&ski),
            };
        }
        inner.by_ski.extend(new.iter().map(|(ski, key)| (*ski, Arc::clone(key))));
        inner.by_source.insert(source.to_owned(), new);
    }

    /// The key with this identifier.
    #[must_use]
    pub fn find(&self, ski: &Ski) -> Option<Arc<Key>> {
        self.inner.read().by_ski.get(ski).cloned()
    }

    /// Identifiers and kinds of all, in the order of the identifiers.
    #[must_use]
    pub fn list(&self) -> Vec<(Ski, KeyType)> {
        let mut all: Vec<_> = self.inner.read().by_ski.iter().map(|(ski, key)| (*ski, key.kind)).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_what_was_put_last() {
        let key = || -> KeyRef { Arc::new(PrivateKey::generate(KeyType::P256).unwrap()) };
        let (a, b, c) = (key(), key(), key());
        let ski = |key: &KeyRef| Ski::of_spki(key.spki());
        let set = KeySet::default();
        set.put("one", vec![a.clone(), b.clone()]);
        set.put("two", vec![b.clone(), c.clone()]);
        assert_eq!(set.list().len(), 3);
        let of_two = set.find(&ski(&b)).unwrap();
        set.put("one", vec![a.clone(), b.clone()]);
        assert!(!Arc::ptr_eq(&set.find(&ski(&b)).unwrap(), &of_two), "the last one put");
        set.put("one", vec![]);
        assert!(set.find(&ski(&a)).is_none());
        assert!(Arc::ptr_eq(&set.find(&ski(&b)).unwrap(), &of_two), "the other source has it still");
        set.put("two", vec![c.clone()]);
        assert_eq!(set.list(), [(ski(&c), KeyType::P256)]);
    }

    #[test]
    fn a_key_elsewhere_has_so_many_places() {
        let key = Key::new(Arc::new(PrivateKey::generate(KeyType::P256).unwrap()));
        let places: Vec<_> = (0..ELSEWHERE_PER_KEY_MAX).map(|_| key.place().unwrap()).collect();
        assert!(key.place().is_none());
        drop(places);
        assert!(key.place().is_some());
    }
}
