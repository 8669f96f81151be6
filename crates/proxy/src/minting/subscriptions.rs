//! Subscribed names of one stream, and their changes: a new leaf, a renewed leaf, no leaf.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_relay::clock::now;
use tokio::sync::OwnedSemaphorePermit;

use super::consumer::Consumer;
use super::leaf_issuer::NoLeaf;
use super::metrics::MintingProtocol;
use super::service::MintingService;
use crate::mint::Leaf;

/// First pause before a failed leaf is requested again; it doubles with each failure, up to the maximum.
const RETRY: Duration = Duration::from_secs(10);
/// Maximum pause before a failed leaf is requested again.
const RETRY_LAST: Duration = Duration::from_secs(160);
/// Maximum bytes of a name; a host name has at most 253.
pub(super) const NAME_MAX: usize = 255;
/// A leaf is requested again when only one part in `RENEW_PARTS` of its current remaining validity is left. If the store has not
/// renewed the leaf by then, the request starts the renewal.
const RENEW_PARTS: u32 = 4;

/// A notification for a consumer.
#[derive(Debug)]
pub(super) enum Change {
    /// A leaf is available: name, leaf and version.
    Leaf(String, Arc<Leaf>, String),
    /// No leaf exists for this name.
    Removed(String),
}

struct Subscription {
    /// Version of the leaf that the consumer has; empty if it has no leaf.
    version: String,
    /// Whether the consumer was notified that there is no leaf.
    is_absence_reported: bool,
    pending: AbortHandle,
    /// Number of failures to get the leaf since the consumer last got a new leaf.
    failures: u32,
    _permit: OwnedSemaphorePermit,
}

type FetchedLeaf = (String, Result<Arc<Leaf>, NoLeaf>);

pub(super) struct Subscriptions {
    shared: Arc<MintingService>,
    consumer: Consumer,
    names: HashMap<String, Subscription>,
    pending: FuturesUnordered<Abortable<BoxFuture<'static, FetchedLeaf>>>,
}

/// Reason why a subscription is rejected.
#[derive(Debug)]
pub(super) enum Refused {
    /// The stream, or all streams together, have the maximum number of names.
    TooMany,
    /// The name is longer than any host name.
    TooLong,
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.names.values().for_each(|subscription| subscription.pending.abort());
    }
}

impl Subscriptions {
    pub(super) fn new(shared: Arc<MintingService>, consumer: Consumer) -> Self {
        Self { shared, consumer, names: HashMap::new(), pending: FuturesUnordered::new() }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    /// Subscribes to `name`. The leaf is sent immediately, unless the consumer already has this `version`.
    pub(super) fn add(&mut self, name: &str, version: &str) -> Result<(), Refused> {
        if name.len() > NAME_MAX {
            return Err(Refused::TooLong);
        }
        self.remove(name);
        if self.names.len() >= self.shared.names_per_stream_max {
            return Err(Refused::TooMany);
        }
        let permit = Arc::clone(&self.shared.names).try_acquire_owned();
        let _permit = permit.map_err(|_| Refused::TooMany)?;
        let pending = self.fetch(name, Duration::ZERO);
        let subscription = Subscription {
            version: version.to_owned(),
            is_absence_reported: false,
            pending,
            failures: 0,
            _permit,
        };
        self.names.insert(name.to_owned(), subscription);
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(subscription) = self.names.remove(name) {
            subscription.pending.abort();
        }
    }

    /// Returns the next change. Waits forever without subscriptions.
    ///
    /// # Cancellation
    /// No change is lost.
    pub(super) async fn changed(&mut self) -> Change {
        loop {
            let Some(fetched) = self.pending.next().await else {
                return std::future::pending().await;
            };
            // An error means that the consumer has unsubscribed from the name.
            if let Ok((name, fetched)) = fetched
                && let Some(change) = self.take(name, fetched)
            {
                return change;
            }
        }
    }

    fn take(&mut self, name: String, fetched: Result<Arc<Leaf>, NoLeaf>) -> Option<Change> {
        let next_fetch = match &fetched {
            // Permitted names do not change at runtime.
            Err(NoLeaf::NotAllowed) => None,
            Err(_) => {
                let subscription = self.names.get_mut(&name)?;
                subscription.failures = subscription.failures.saturating_add(1);
                Some(retry_after(subscription.failures, &name))
            }
            Ok(leaf) => {
                self.names.get_mut(&name)?.failures = 0;
                Some(refresh_delay(leaf))
            }
        };
        let version = fetched.as_ref().ok().map(|leaf| version_of(leaf));
        let unchanged = version.as_ref() == Some(&self.names.get(&name)?.version);
        let pending = next_fetch.map(|after| self.fetch(&name, after));
        let subscription = self.names.get_mut(&name)?;
        if let Some(pending) = pending {
            subscription.pending = pending;
        }
        match (fetched, version) {
            (Ok(leaf), Some(version)) if !unchanged => {
                subscription.version.clone_from(&version);
                subscription.is_absence_reported = false;
                Some(Change::Leaf(name, leaf, version))
            }
            (Err(NoLeaf::NotAllowed), _) => {
                self.names.remove(&name);
                Some(Change::Removed(name))
            }
            // Without permission, the consumer's leaf is withdrawn.
            (Err(NoLeaf::NotPermitted), _) if !subscription.is_absence_reported => {
                subscription.version.clear();
                subscription.is_absence_reported = true;
                Some(Change::Removed(name))
            }
            // After any other error, the consumer keeps its current leaf.
            (Err(_), _) if subscription.version.is_empty() && !subscription.is_absence_reported => {
                subscription.is_absence_reported = true;
                Some(Change::Removed(name))
            }
            _ => None,
        }
    }

    fn fetch(&self, name: &str, after: Duration) -> AbortHandle {
        let (shared, consumer, name) = (Arc::clone(&self.shared), self.consumer.clone(), name.to_owned());
        let work: BoxFuture<'static, FetchedLeaf> = Box::pin(async move {
            tokio::time::sleep(after).await;
            let kind = shared.leaf_issuer.kind_of(&consumer);
            let fetched = shared.leaf_issuer.leaf(&consumer, &name, kind, MintingProtocol::Sds).await;
            (name, fetched)
        });
        let (work, handle) = futures_util::future::abortable(work);
        self.pending.push(work);
        handle
    }
}

/// Returns a pause between half and all of the retry pause. It depends on `name` and `failures`, so that names that failed at the
/// same time are retried at different times.
fn retry_after(failures: u32, name: &str) -> Duration {
    let pause = RETRY.saturating_mul(1 << (failures.clamp(1, 8) - 1)).min(RETRY_LAST);
    let mut hasher = DefaultHasher::new();
    (name, failures).hash(&mut hasher);
    pause / 2 + pause.mul_f64((hasher.finish() % 1_000) as f64 / 2_000.0)
}

/// Returns the time until the leaf is requested again. This time is short if the leaf is already due for a renewal.
fn refresh_delay(leaf: &Leaf) -> Duration {
    let seconds = |from| Duration::from_secs(leaf.not_after.since(from).max(0) as u64);
    let (left, whole) = (seconds(now()), seconds(leaf.not_before));
    match left < whole / RENEW_PARTS {
        true => RETRY,
        false => left / RENEW_PARTS * (RENEW_PARTS - 1),
    }
}

/// Returns the version of a leaf, which changes only with the leaf.
pub(super) fn version_of(leaf: &Leaf) -> String {
    leaf.certified.cert.first().map(|der| version_of_certificate(der)).unwrap_or_default()
}

/// Returns 64 bits of a certificate's digest. Clients send it with each name when they reconnect.
fn version_of_certificate(der: &[u8]) -> String {
    x509::Fingerprint::of(der).to_string().chars().filter(char::is_ascii_hexdigit).take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate_store::{CertificateStore, NewNameLimit};
    use inbound::ServiceTasks;
    use std::collections::HashSet;

    use crate::mint::{Authority, LeafKeys, Minter, new_root};
    use crate::minting::leaf_issuer::LeafIssuer;
    use crate::minting::{LeafSource, MintingMetrics};
    use crate::permission::Permission;
    use crate::{Action, Rules};
    use keys::{KeyType, PrivateKey, RsaStock};
    use tokio::sync::Semaphore;

    fn subscriptions(names_per_stream_max: usize) -> Subscriptions {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let root = new_root(&key, now()).unwrap();
        let authority = Authority::new(&[root], Arc::new(key), Vec::new()).unwrap();
        let minter = Minter::new(authority, Arc::new(LeafKeys::new().unwrap()), Duration::from_secs(86_400));
        let store = CertificateStore::new(1 << 20, NewNameLimit::new(1_000, 1_000));
        let mut names = Rules::new(Action::Reject);
        names.add(&["*.example".to_owned()], Action::Intercept).unwrap();
        let metrics = MintingMetrics::default();
        let (permission, stock) = (Permission::default(), RsaStock::new(1));
        let profile = minter.profile().into();
        let leaves = LeafSource { minter, profile, store, permission, stock };
        let keys = (Duration::from_secs(3_600), HashSet::new());
        let leaf_issuer = LeafIssuer::new(leaves, names, keys, metrics.clone());
        let streams = Arc::new(Semaphore::new(1));
        let tasks = ServiceTasks::default();
        let names = Arc::new(Semaphore::new(3));
        let shared = MintingService { leaf_issuer, streams, names, names_per_stream_max, tasks, metrics };
        Subscriptions::new(Arc::new(shared), Consumer::local())
    }

    #[tokio::test(start_paused = true)]
    async fn leaf_is_renewed_before_expiry_without_a_request() {
        let mut names = subscriptions(10);
        names.add("a.example", "").unwrap();
        let Change::Leaf(_, _, first) = names.changed().await else { panic!("no leaf") };
        let Change::Leaf(name, _, second) = names.changed().await else { panic!("no other leaf") };
        assert_eq!(name, "a.example");
        assert_ne!(first, second);
    }

    #[tokio::test(start_paused = true)]
    async fn removed_subscriptions_leave_no_pending_work() {
        let mut names = subscriptions(2);
        for _ in 0..1_000 {
            names.add("a.example", "").unwrap();
            names.remove("a.example");
        }
        names.add("b.other", "").unwrap();
        assert!(matches!(names.changed().await, Change::Removed(name) if name == "b.other"));
        assert!(names.pending.is_empty(), "{}", names.pending.len());
        // A name without a leaf uses no permit.
        names.add("c.example", "").unwrap();
        names.add("d.example", "").unwrap();
        assert!(matches!(names.add("e.example", ""), Err(Refused::TooMany)), "more than it may have");
        assert!(matches!(names.add(&"x".repeat(300), ""), Err(Refused::TooLong)));
    }

    #[tokio::test(start_paused = true)]
    async fn name_limit_is_shared_by_all_streams() {
        let mut one = subscriptions(10);
        let mut other = Subscriptions::new(Arc::clone(&one.shared), Consumer::local());
        for name in ["a.example", "b.example"] {
            one.add(name, "").unwrap();
        }
        other.add("c.example", "").unwrap();
        assert!(matches!(other.add("d.example", ""), Err(Refused::TooMany)));
        one.remove("a.example");
        other.add("d.example", "").unwrap();
        drop(one);
        other.add("e.example", "").unwrap();
    }

    #[test]
    fn retry_delay_doubles_up_to_a_maximum_with_jitter() {
        for (failures, least, most) in
            [(1, 5, 10), (2, 10, 20), (5, 80, 160), (9, 80, 160), (u32::MAX, 80, 160)]
        {
            let pause = retry_after(failures, "a.example");
            assert!(pause >= Duration::from_secs(least) && pause <= Duration::from_secs(most), "{pause:?}");
        }
        assert_ne!(retry_after(1, "a.example"), retry_after(1, "b.example"));
    }
}
