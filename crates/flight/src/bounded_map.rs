//! A concurrent map with a maximum total weight, whose entries may expire.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::erased::{AnyValue, Bounds, ErasedMap, Eviction, KeyRef, OwnedKey};

/// A concurrent map with a maximum total weight; entries may expire.
///
/// Reads take no lock. Evictions run as part of later reads and writes: see [`BoundedMap::run_pending_tasks`]. Clones share one
/// map.
pub struct BoundedMap<K, V> {
    values: ErasedMap,
    hasher: RandomState,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for BoundedMap<K, V> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), hasher: self.hasher.clone(), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for BoundedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedMap").field("entries", &self.values.entry_count()).finish_non_exhaustive()
    }
}

/// Builder of a [`BoundedMap`]: weights, lifetimes and eviction policy.
pub struct BoundedMapBuilder<K, V> {
    bounds: Bounds,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for BoundedMapBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedMapBuilder")
            .field("weight_max", &self.bounds.weight_max)
            .finish_non_exhaustive()
    }
}

impl<K, V> BoundedMapBuilder<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Sets the weight of entries to `weigh`; by default each entry weighs 1.
    #[must_use]
    pub fn weigher(mut self, weigh: impl Fn(&K, &V) -> u32 + Send + Sync + 'static) -> Self {
        self.bounds.weigher = Some(Box::new(move |key, value| {
            let key: &dyn Any = key;
            match (key.downcast_ref(), value.downcast_ref()) {
                (Some(key), Some(value)) => weigh(key, value),
                // All keys and values in the map have these types.
                _ => 1,
            }
        }));
        self
    }

    /// Expires each entry this long after it was written.
    #[must_use]
    pub fn time_to_live(mut self, life: Duration) -> Self {
        self.bounds.time_to_live = Some(life);
        self
    }

    /// Expires each entry this long after it was last read or written.
    #[must_use]
    pub fn time_to_idle(mut self, idle: Duration) -> Self {
        self.bounds.time_to_idle = Some(idle);
        self
    }

    /// Sets the eviction policy; [`Eviction::LeastOften`] by default.
    #[must_use]
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.bounds.eviction = eviction;
        self
    }

    /// Creates the map with these settings.
    #[must_use]
    pub fn build(self) -> BoundedMap<K, V> {
        BoundedMap { values: ErasedMap::new(self.bounds), hasher: RandomState::new(), types: PhantomData }
    }
}

impl<K, V> BoundedMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates a map of at most `entries_max` entries.
    #[must_use]
    pub fn new(entries_max: u64) -> Self {
        Self::builder(entries_max).build()
    }

    /// Returns a builder for a map whose entries weigh at most `weight_max` together.
    #[must_use]
    pub fn builder(weight_max: u64) -> BoundedMapBuilder<K, V> {
        BoundedMapBuilder { bounds: Bounds { weight_max, ..Bounds::default() }, types: PhantomData }
    }

    fn key_ref<'k>(&self, key: &'k K) -> KeyRef<'k> {
        KeyRef { hash: self.hasher.hash_one(key), key }
    }

    fn owned_key(&self, key: K) -> OwnedKey {
        OwnedKey { hash: self.hasher.hash_one(&key), key: Box::new(key) }
    }

    /// Returns the value of `key`, shared.
    #[must_use]
    pub fn get_shared(&self, key: &K) -> Option<Arc<V>> {
        self.values.get(self.key_ref(key))?.downcast().ok()
    }

    /// Returns whether `key` is in the map. Does not count as a use of the entry.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.values.contains(self.key_ref(key))
    }

    /// Stores a value for `key`, and replaces an earlier value.
    pub fn insert(&self, key: K, value: V) {
        self.values.insert(self.owned_key(key), Arc::new(value));
    }

    /// Removes `key` and returns its value.
    pub fn remove(&self, key: &K) -> Option<Arc<V>> {
        self.values.remove(self.key_ref(key))?.downcast().ok()
    }

    /// Removes the entry of `key`, if there is one.
    pub fn invalidate(&self, key: &K) {
        self.values.invalidate(self.key_ref(key));
    }

    /// Removes all entries.
    pub fn invalidate_all(&self) {
        self.values.invalidate_all();
    }

    /// Runs the pending evictions; they also run as part of reads and writes.
    pub fn run_pending_tasks(&self) {
        self.values.run_pending_tasks();
    }

    /// Returns the number of entries after the last evictions: see [`Self::run_pending_tasks`].
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.values.entry_count()
    }
}

impl<K, V> BoundedMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Returns the value of `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V> {
        self.values.get(self.key_ref(key))?.downcast_ref().cloned()
    }

    /// Returns the value of `key`. If there is none, calls `make` once for all concurrent callers and stores its result.
    pub fn get_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.get(&key) {
            return value;
        }
        typed(&self.values.get_with(self.owned_key(key), Box::new(|| Arc::new(make()))))
    }

    /// Like [`Self::get_with`]; clones the key only if it has no value.
    pub fn get_with_by_ref(&self, key: &K, make: impl FnOnce() -> V) -> V
    where
        K: Clone,
    {
        self.get(key).unwrap_or_else(|| self.get_with(key.clone(), make))
    }

    /// Like [`Self::get_with`], but `make` may fail; then nothing is stored.
    ///
    /// # Errors
    /// The error of `make`, shared by all concurrent callers.
    pub fn try_get_with<E: Send + Sync + 'static>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, Arc<E>> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let make = || match make() {
            Ok(value) => Ok(Arc::new(value) as AnyValue),
            Err(error) => Err(Arc::new(error) as AnyValue),
        };
        match self.values.try_get_with(self.owned_key(key), Box::new(make)) {
            Ok(value) => Ok(typed(&value)),
            Err(error) => {
                Err(AnyValue::clone(&error).downcast().unwrap_or_else(|_| unreachable!("{ONE_TYPE}")))
            }
        }
    }

    /// Replaces the value of `key` by the result of `change` for the old value, and returns the new value. Concurrent changes of
    /// one key run one after the other.
    pub fn upsert_with(&self, key: K, change: impl FnOnce(Option<V>) -> V) -> V {
        let change =
            |before: Option<AnyValue>| Arc::new(change(before.map(|before| typed(&before)))) as AnyValue;
        typed(&self.values.upsert_with(self.owned_key(key), Box::new(change)))
    }
}

const ONE_TYPE: &str = "a map takes in values of its own type alone";

fn typed<V: Clone + 'static>(value: &AnyValue) -> V {
    value.downcast_ref().cloned().unwrap_or_else(|| unreachable!("{ONE_TYPE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_returns_inserted_updated_and_removed_values() {
        let map: BoundedMap<String, u32> = BoundedMap::new(10);
        let key = "a".to_owned();
        assert_eq!(map.get(&key), None);
        map.insert(key.clone(), 1);
        assert_eq!((map.get(&key), map.get_shared(&key).as_deref()), (Some(1), Some(&1)));
        assert_eq!(map.get_with_by_ref(&key, || 2), 1);
        assert_eq!(map.upsert_with(key.clone(), |before| before.unwrap_or(0) + 4), 5);
        assert_eq!(map.remove(&key).as_deref(), Some(&5));
        assert_eq!(map.upsert_with(key.clone(), |before| before.unwrap_or(0) + 4), 4);
        map.invalidate(&key);
        assert!(!map.contains_key(&key));
        assert_eq!(map.get_with(key.clone(), || 6), 6);
        map.invalidate_all();
        assert_eq!(map.get(&key), None);
    }

    #[test]
    fn failed_initialization_is_not_cached() {
        let map: BoundedMap<u8, u32> = BoundedMap::new(10);
        assert_eq!(map.try_get_with(1, || Err::<u32, _>("no")).map_err(|error| *error), Err("no"));
        assert_eq!(map.try_get_with(1, || Ok::<_, &str>(1)), Ok(1));
        assert_eq!(map.try_get_with(1, || Err::<u32, _>("no")), Ok(1));
    }

    #[test]
    fn least_recently_used_entries_are_evicted_above_the_maximum_weight() {
        let builder = BoundedMap::<u32, u32>::builder(10).weigher(|_, weight| *weight);
        let map = builder.eviction(Eviction::LeastRecent).build();
        (0..20).for_each(|key| {
            map.insert(key, 5);
            map.run_pending_tasks();
        });
        assert_eq!(map.entry_count(), 2);
        assert!(map.contains_key(&19) && map.contains_key(&18));
    }

    #[test]
    fn keys_with_equal_hashes_are_distinguished() {
        #[derive(Clone, Eq, PartialEq)]
        struct Same(u32);
        impl Hash for Same {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                0.hash(state);
            }
        }
        let map = BoundedMap::new(100);
        (0..50).for_each(|key| map.insert(Same(key), key));
        assert!((0..50).all(|key| map.get(&Same(key)) == Some(key)));
    }
}
