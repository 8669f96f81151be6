//! The set of keys, by identifier.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keys::{KeyRef, KeyType, PrivateKey};
use parking_lot::{Mutex, RwLock};
use x509::SpkiHash;

use crate::destination::KeyDestination;
use crate::in_flight::{ConcurrencyLimit, Permit, TenantCounts};
use crate::limits::REMOTE_PER_KEY_MAX;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::routing::RoutedKey;
use crate::stage::Cost;
use crate::wire::Ski;

/// A signing key of the service, local or remote, with its identifiers and names.
#[derive(Debug)]
pub struct Key {
    /// The implementation that signs with the key.
    pub(crate) signer: KeyRef,
    pub(crate) kind: KeyType,
    /// Identifier of the key (SKI).
    pub(crate) ski: Ski,
    /// SHA-256 of the public key (SubjectPublicKeyInfo).
    pub(crate) spki_sha256: SpkiHash,
    /// Names of the key in its sources (file names, labels), for the permissions of tenants.
    pub(crate) names: Vec<String>,
    /// Cost of a signature on this machine; low for a remote key.
    pub(crate) cost: Cost,
    /// The private key, if the key is in this process.
    pub(crate) in_process_key: Option<PrivateKey>,
    /// Whether the key signs for other nodes too.
    pub(crate) for_nodes: bool,
    /// Policy that the key is sealed to. `None` if any source has the key unsealed or sealed to another policy.
    pub(crate) policy: Option<Arc<str>>,
    /// The route to the key, if other nodes have it.
    pub(crate) route: Option<Arc<RoutedKey>>,
    /// Requests in progress to a remote key. They are also counted by tenant, unless other nodes have the key: nodes have their
    /// own limits.
    remote: ConcurrencyLimit,
    by_tenant: Arc<Mutex<TenantCounts>>,
    /// Destination of the key, cached after the first lookup.
    destination: OnceLock<KeyDestination>,
}

/// Factor of the default timeout: a signature that takes longer than this factor times the 99th percentile is considered lost.
const DEFAULT_TIMEOUT_FACTOR: u32 = 10;
/// Minimum default timeout: time for failover to a second and third node, and for a reconnect.
const DEFAULT_TIMEOUT_MIN: Duration = Duration::from_secs(1);

impl Key {
    fn new(ski: Ski, entry: &SourceKey, of_all: MergedSources) -> Self {
        let (signer, route) = (Arc::clone(&entry.signer), entry.route.clone());
        let (kind, in_process_key) = (signer.key_type(), signer.in_process_key().cloned());
        let MergedSources { names, for_nodes, policy } = of_all;
        let (cost, spki_sha256) = (Cost::of(kind), SpkiHash::of(signer.spki()));
        Self {
            kind,
            ski,
            spki_sha256,
            names,
            cost,
            in_process_key,
            signer,
            for_nodes,
            policy,
            route,
            remote: ConcurrencyLimit::default(),
            by_tenant: Arc::default(),
            destination: OnceLock::new(),
        }
    }

    /// Returns whether the key is sealed to this policy only.
    pub(crate) fn is_under(&self, policy: &str) -> bool {
        self.policy.as_deref() == Some(policy)
    }

    /// Returns the default timeout of a signature: ten times the usual duration on the nodes that have the key, from
    /// [`DEFAULT_TIMEOUT_MIN`] to `most`. If the usual duration is unknown, `most`.
    pub(crate) fn default_timeout(&self, most: Duration) -> Duration {
        let route = self.route.as_ref().filter(|_| self.in_process_key.is_none());
        let usual_duration = route.and_then(|route| route.usual_duration());
        usual_duration.map_or(most, |usual_duration| {
            (usual_duration * DEFAULT_TIMEOUT_FACTOR).max(DEFAULT_TIMEOUT_MIN).min(most)
        })
    }

    /// Returns the destination of requests to an external key; `None` for local keys and keys on other nodes.
    pub(crate) fn destination(&self, metrics: &Metrics) -> Option<&KeyDestination> {
        if self.in_process_key.is_some() || self.route.is_some() {
            return None;
        }
        Some(self.destination.get_or_init(|| metrics.destinations().of(self.signer.destination())))
    }

    /// Takes a permit for one request to this remote key. A tenant may hold at most `most` permits.
    ///
    /// # Errors
    /// The tenant or the key has reached its limit.
    pub(crate) fn acquire(&self, tenant: &str, most: usize, from: Requester) -> Result<KeyPermit, Refusal> {
        let of_tenant = match self.route {
            None if from == Requester::Client => {
                Some(TenantPermit::acquire(&self.by_tenant, tenant, most).ok_or(Refusal::TenantKey)?)
            }
            _ => None,
        };
        let of_all = self.remote.acquire(REMOTE_PER_KEY_MAX).ok_or(Refusal::Key)?;
        Ok(KeyPermit { _of_all: of_all, _of_tenant: of_tenant })
    }
}

/// Sender of a request: a client or another node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Requester {
    Client,
    /// Another node, which has already counted the request for its tenant.
    Node,
}

/// A request in progress to a remote key, counted until dropped.
pub(crate) struct KeyPermit {
    _of_all: Permit,
    _of_tenant: Option<TenantPermit>,
}

struct TenantPermit {
    counts: Arc<Mutex<TenantCounts>>,
    tenant: Box<str>,
}

impl TenantPermit {
    fn acquire(counts: &Arc<Mutex<TenantCounts>>, tenant: &str, most: usize) -> Option<Self> {
        let mut locked = counts.lock();
        if locked.of(tenant) >= most {
            return None;
        }
        locked.add(tenant);
        Some(Self { counts: Arc::clone(counts), tenant: tenant.into() })
    }
}

impl Drop for TenantPermit {
    fn drop(&mut self) {
        self.counts.lock().remove(&self.tenant);
    }
}

/// All keys, by source and identifier. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    inner: Arc<RwLock<KeyIndex>>,
}

#[derive(Debug, Default)]
struct KeyIndex {
    by_source: HashMap<String, HashMap<Ski, SourceKey>>,
    by_ski: HashMap<Ski, Arc<Key>>,
    by_spki: HashMap<SpkiHash, Ski>,
    /// Key identifiers in order, for paginated lists.
    order: BTreeSet<Ski>,
}

#[derive(Debug)]
struct SourceKey {
    signer: KeyRef,
    route: Option<Arc<RoutedKey>>,
    for_nodes: bool,
    policy: Option<Arc<str>>,
    names: Vec<String>,
}

/// Properties of a key, merged from all its sources.
#[derive(Default)]
struct MergedSources {
    names: Vec<String>,
    for_nodes: bool,
    policy: Option<Arc<str>>,
}

impl MergedSources {
    fn new<'a>(entry: impl Iterator<Item = &'a SourceKey> + Clone) -> Self {
        let mut names: Vec<String> = entry.clone().flat_map(|entry| entry.names.iter().cloned()).collect();
        names.sort_unstable();
        names.dedup();
        let for_nodes = entry.clone().any(|entry| entry.for_nodes);
        let mut policies = entry.map(|entry| &entry.policy);
        let first = policies.next().cloned().flatten();
        let policy = first.filter(|first| policies.all(|other| other.as_ref() == Some(first)));
        Self { names, for_nodes, policy }
    }

    fn is_of(&self, key: &Key) -> bool {
        key.names == self.names && key.for_nodes == self.for_nodes && key.policy == self.policy
    }
}

/// A key of one source: local, sealed for a group of nodes, or on other nodes.
#[derive(Clone, Debug)]
pub enum Source {
    /// A key that signs in this process, or in a device or service that only this node can use.
    Own(KeyRef),
    /// A key that signs on this node, also for requests of other nodes.
    Sealed(KeyRef),
    /// A key on other nodes, with the route to them.
    Routed(Arc<RoutedKey>),
}

impl KeySet {
    /// Returns whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.read().by_ski.is_empty()
    }

    /// Replaces all keys of this source. If two sources have the same key, the source that was updated last wins. If that source
    /// loses the key, the other source provides it. Signatures in progress with a removed key are completed.
    pub fn put(&self, source: &str, keys: Vec<KeyRef>) {
        self.put_named(source, keys.into_iter().map(|key| (String::new(), key)).collect());
    }

    /// Like [`Self::put`], with a name for each key, for the permissions of tenants. A key has the names of all its sources.
    pub fn put_named(&self, source: &str, keys: Vec<(String, KeyRef)>) {
        self.put_sources(source, keys.into_iter().map(|(name, key)| (name, Source::Own(key))).collect());
    }

    /// Like [`Self::put_named`], for a set in which some keys are on other nodes. A local key of another source takes precedence.
    pub fn put_sources(&self, source: &str, keys: Vec<(String, Source)>) {
        self.put_all(source, keys.into_iter().map(|(name, key)| (name, key, None)));
    }

    /// Like [`Self::put_sources`], for keys that are sealed to policies, each with the name of its policy if known.
    pub fn put_sealed(&self, source: &str, keys: Vec<(String, Source, Option<Arc<str>>)>) {
        self.put_all(source, keys.into_iter());
    }

    fn put_all(&self, source: &str, keys: impl Iterator<Item = (String, Source, Option<Arc<str>>)>) {
        let mut new: HashMap<Ski, SourceKey> = HashMap::new();
        for (name, key, policy) in keys {
            let (signer, route, for_nodes) = match key {
                Source::Own(signer) => (signer, None, false),
                Source::Sealed(signer) => (signer, None, true),
                Source::Routed(route) => (Arc::clone(&route) as KeyRef, Some(route), false),
            };
            let ski = Ski::of_spki(signer.spki());
            let new_key = || SourceKey { signer, route, for_nodes, policy, names: Vec::new() };
            let entry = new.entry(ski).or_insert_with(new_key);
            if !name.is_empty() {
                entry.names.push(name);
            }
        }
        let mut inner = self.inner.write();
        let had = inner.by_source.remove(source).unwrap_or_default();
        let mut touched: Vec<Ski> = had.into_keys().filter(|ski| !new.contains_key(ski)).collect();
        touched.extend(new.keys());
        inner.by_source.insert(source.to_owned(), new);
        for ski in touched {
            inner.renew(ski, source);
        }
    }

    /// Returns the key with this identifier.
    #[must_use]
    pub fn find(&self, ski: &Ski) -> Option<Arc<Key>> {
        self.inner.read().by_ski.get(ski).cloned()
    }

    /// Returns the key with this public key, by the SHA-256 of its SubjectPublicKeyInfo.
    #[must_use]
    pub fn find_spki(&self, spki: &SpkiHash) -> Option<Arc<Key>> {
        let inner = self.inner.read();
        inner.by_spki.get(spki).and_then(|ski| inner.by_ski.get(ski)).cloned()
    }

    /// Returns up to `max` keys after the given identifier, in order.
    pub(crate) fn page(&self, after: Option<&Ski>, max: usize) -> Vec<Arc<Key>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let inner = self.inner.read();
        let rest = inner.order.range((from, Bound::Unbounded)).filter_map(|ski| inner.by_ski.get(ski));
        rest.take(max).cloned().collect()
    }

    /// Returns identifiers and types of all keys, ordered by identifier.
    #[must_use]
    pub fn list(&self) -> Vec<(Ski, KeyType)> {
        self.page(None, usize::MAX).iter().map(|key| (key.ski, key.kind)).collect()
    }
}

impl KeyIndex {
    /// Updates a key from its sources. `source` has precedence over the others.
    fn renew(&mut self, ski: Ski, source: &str) {
        let of_all = MergedSources::new(self.by_source.values().filter_map(|entry| entry.get(&ski)));
        let own = self.by_source.get(source).and_then(|entry| entry.get(&ski));
        let mut all = own.into_iter().chain(self.by_source.values().filter_map(|entry| entry.get(&ski)));
        // A key that signs locally has precedence over a route to other nodes.
        let first = all.clone().next();
        let entry = all.find(|entry| entry.route.is_none()).or(first);
        if let Some(entry) = entry {
            let same = |key: &Arc<Key>| Arc::ptr_eq(&key.signer, &entry.signer) && of_all.is_of(key);
            if self.by_ski.get(&ski).is_some_and(same) {
                return;
            }
            let key = Arc::new(Key::new(ski, entry, of_all));
            self.by_spki.insert(key.spki_sha256, ski);
            self.order.insert(ski);
            self.by_ski.insert(ski, key);
        } else if let Some(removed) = self.by_ski.remove(&ski) {
            self.by_spki.remove(&removed.spki_sha256);
            self.order.remove(&ski);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::DEFAULT;

    #[test]
    fn latest_update_of_a_source_replaces_its_keys() {
        let generated = || PrivateKey::generate(KeyType::P256).unwrap();
        let key = || -> KeyRef { Arc::new(generated()) };
        let (a, c, b_itself) = (key(), key(), generated());
        // The same key from two sources.
        let (b, b_of_two): (KeyRef, KeyRef) = (Arc::new(b_itself.clone()), Arc::new(b_itself));
        let ski = |key: &KeyRef| Ski::of_spki(key.spki());
        let set = KeySet::default();
        set.put("one", vec![a.clone(), b.clone()]);
        let is = |key: &KeyRef| Arc::ptr_eq(&set.find(&ski(key)).unwrap().signer, key);
        set.put("two", vec![b_of_two.clone(), c.clone()]);
        assert_eq!(set.list().len(), 3);
        assert!(is(&b_of_two), "the last one put");
        set.put("one", vec![a.clone(), b.clone()]);
        assert!(is(&b), "the last one put");
        let before = set.find(&ski(&a)).unwrap();
        set.put("one", vec![a.clone(), b.clone()]);
        assert!(
            Arc::ptr_eq(&set.find(&ski(&a)).unwrap(), &before),
            "what is the same stays, with its bounds"
        );
        set.put("one", vec![]);
        assert!(set.find(&ski(&a)).is_none());
        assert!(is(&b_of_two), "the other source has it still");
        set.put("two", vec![c.clone()]);
        assert_eq!(set.list(), [(ski(&c), KeyType::P256)]);
    }

    #[test]
    fn key_names_are_the_union_of_the_current_sources() {
        let key: KeyRef = Arc::new(PrivateKey::generate(KeyType::P256).unwrap());
        let ski = Ski::of_spki(key.spki());
        let set = KeySet::default();
        let named = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), key.clone())).collect();
        let names = || set.find(&ski).unwrap().names.clone();
        set.put_named("one", named(&["b", "a"]));
        set.put_named("two", named(&["c"]));
        assert_eq!(names(), ["a", "b", "c"]);
        set.put_named("one", Vec::new());
        assert_eq!(names(), ["c"], "what went takes its names along");
        assert!(set.find_spki(&SpkiHash::of(key.spki())).is_some());
        set.put_named("two", Vec::new());
        assert!(set.find_spki(&SpkiHash::of(key.spki())).is_none() && set.list().is_empty());
    }

    #[test]
    fn key_has_a_policy_only_when_every_source_sets_that_policy() {
        let key: KeyRef = Arc::new(PrivateKey::generate(KeyType::P256).unwrap());
        let ski = Ski::of_spki(key.spki());
        let set = KeySet::default();
        let seal = |source: &str, policy: Option<&str>| {
            let sealed = Source::Sealed(key.clone());
            set.put_sealed(source, vec![(String::new(), sealed, policy.map(Into::into))]);
        };
        let is_under = |policy: &str| set.find(&ski).unwrap().is_under(policy);
        seal("sealed", Some("europe"));
        assert!(is_under("europe") && !is_under("asia") && !is_under(""));
        seal("sealed", Some("asia"));
        assert!(is_under("asia") && !is_under("europe"), "sealed anew");
        set.put("folder", vec![key.clone()]);
        assert!(!is_under("asia"), "it lies in a folder, too");
        set.put("folder", Vec::new());
        assert!(is_under("asia"));
        seal("other", Some("europe"));
        assert!(!is_under("asia") && !is_under("europe"));
        seal("other", None);
        assert!(!is_under("asia") && !is_under(""), "whatever is not known is no policy");
    }

    #[test]
    fn remote_key_limits_concurrent_requests() {
        let signer: KeyRef = Arc::new(PrivateKey::generate(KeyType::P256).unwrap());
        let ski = Ski::of_spki(signer.spki());
        let entry = SourceKey { signer, route: None, for_nodes: false, policy: None, names: Vec::new() };
        let key = Key::new(ski, &entry, MergedSources::default());
        let acquire = |from| key.acquire(DEFAULT, usize::MAX, from);
        let (client, node) = (Requester::Client, Requester::Node);
        let permits: Vec<_> = (0..REMOTE_PER_KEY_MAX).map(|_| acquire(client).unwrap()).collect();
        assert_eq!(acquire(client).err(), Some(Refusal::Key));
        assert_eq!(acquire(node).err(), Some(Refusal::Key));
        drop(permits);
        assert!(acquire(client).is_ok());
    }
}
