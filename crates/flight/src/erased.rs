//! The only instantiation of moka, shared by all maps of a program.
//!
//! Each instantiation of moka adds about 80 KB of code. Here keys and values have one erased type each; [`crate::BoundedMap`]
//! converts them to the caller's types.

use std::any::Any;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use equivalent::Equivalent;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

/// A value of any type.
pub(crate) type AnyValue = Arc<dyn Any + Send + Sync>;

/// A key of any type.
pub(crate) trait AnyKey: Any + Send + Sync {
    /// Returns whether the other key has the same type and is equal.
    fn equals(&self, other: &dyn AnyKey) -> bool;
}

impl<K: Eq + Send + Sync + 'static> AnyKey for K {
    fn equals(&self, other: &dyn AnyKey) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<K>().is_some_and(|other| self == other)
    }
}

/// An owned key with its hash.
pub(crate) struct OwnedKey {
    pub(crate) hash: u64,
    pub(crate) key: Box<dyn AnyKey>,
}

/// A borrowed key for lookups, with its hash.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a dyn AnyKey,
}

impl Hash for OwnedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for OwnedKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.key.equals(&*other.key)
    }
}

impl Eq for OwnedKey {}

impl Equivalent<OwnedKey> for KeyRef<'_> {
    fn equivalent(&self, stored: &OwnedKey) -> bool {
        self.hash == stored.hash && stored.key.equals(self.key)
    }
}

/// A hasher that returns a precomputed hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct PrecomputedHasher(u64);

impl BuildHasher for PrecomputedHasher {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self::default()
    }
}

impl Hasher for PrecomputedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Mixes the bytes into the hash. Never called: keys write only their hash.
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

/// Function that returns the weight of an entry.
pub(crate) type Weigher = Box<dyn Fn(&dyn AnyKey, &(dyn Any + Send + Sync)) -> u32 + Send + Sync>;

/// Function that creates a value.
type Make<'a> = Box<dyn FnOnce() -> AnyValue + 'a>;
/// Function that creates a value or fails.
type TryMake<'a> = Box<dyn FnOnce() -> Result<AnyValue, AnyValue> + 'a>;
/// Function that creates a value from the old one.
type Change<'a> = Box<dyn FnOnce(Option<AnyValue>) -> AnyValue + 'a>;

/// Eviction policy of a bounded map.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Eviction {
    /// Evicts the least frequently used entry, which may be the new one (TinyLFU).
    #[default]
    LeastOften,
    /// Evicts the least recently used entry; a new entry is always stored.
    LeastRecent,
}

/// Maximum weight of a map and lifetimes of its entries.
#[derive(Default)]
pub(crate) struct Bounds {
    pub(crate) weight_max: u64,
    pub(crate) weigher: Option<Weigher>,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) time_to_idle: Option<Duration>,
    pub(crate) eviction: Eviction,
}

/// A bounded map of keys and values of any type.
#[derive(Clone)]
pub(crate) struct ErasedMap(Cache<OwnedKey, AnyValue, PrecomputedHasher>);

impl ErasedMap {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let policy = match bounds.eviction {
            Eviction::LeastOften => EvictionPolicy::tiny_lfu(),
            Eviction::LeastRecent => EvictionPolicy::lru(),
        };
        let mut builder = Cache::builder().max_capacity(bounds.weight_max).eviction_policy(policy);
        if let Some(weigh) = bounds.weigher {
            builder = builder.weigher(move |key: &OwnedKey, value: &AnyValue| weigh(&*key.key, &**value));
        }
        if let Some(life) = bounds.time_to_live {
            builder = builder.time_to_live(life);
        }
        if let Some(idle) = bounds.time_to_idle {
            builder = builder.time_to_idle(idle);
        }
        Self(builder.build_with_hasher(PrecomputedHasher::default()))
    }

    pub(crate) fn get(&self, key: KeyRef<'_>) -> Option<AnyValue> {
        self.0.get(&key)
    }

    pub(crate) fn contains(&self, key: KeyRef<'_>) -> bool {
        self.0.contains_key(&key)
    }

    pub(crate) fn insert(&self, key: OwnedKey, value: AnyValue) {
        self.0.insert(key, value);
    }

    pub(crate) fn remove(&self, key: KeyRef<'_>) -> Option<AnyValue> {
        self.0.remove(&key)
    }

    pub(crate) fn invalidate(&self, key: KeyRef<'_>) {
        self.0.invalidate(&key);
    }

    pub(crate) fn invalidate_all(&self) {
        self.0.invalidate_all();
    }

    pub(crate) fn get_with(&self, key: OwnedKey, make: Make<'_>) -> AnyValue {
        self.0.get_with(key, make)
    }

    pub(crate) fn try_get_with(&self, key: OwnedKey, make: TryMake<'_>) -> Result<AnyValue, Arc<AnyValue>> {
        self.0.try_get_with(key, make)
    }

    pub(crate) fn upsert_with(&self, key: OwnedKey, change: Change<'_>) -> AnyValue {
        let change =
            |before: Option<moka::Entry<OwnedKey, AnyValue>>| change(before.map(moka::Entry::into_value));
        self.0.entry(key).and_upsert_with(change).into_value()
    }

    pub(crate) fn run_pending_tasks(&self) {
        self.0.run_pending_tasks();
    }

    pub(crate) fn entry_count(&self) -> u64 {
        self.0.entry_count()
    }
}
