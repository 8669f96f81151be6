//! All leases of a proxy that are in use, by identity and role.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use futures_util::future::{BoxFuture, join};
use futures_util::{FutureExt, StreamExt};
use http_relay::client::Ended;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::issuer::{LeaseError, LeaseIssuer};
use super::slot::{Leased, LiveLease, Slot, SlotRef, SlotState};

/// Maximum concurrent leases, including leases that wait for their revocation. The store allows 1,000 leases for one caller, so
/// that a proxy can restart while the leases of a killed proxy still exist.
pub const LEASES_MAX: usize = 500;
/// Time for which a request waits for a new lease. The creation continues without the request.
const WAIT: Duration = Duration::from_secs(10);
/// Interval between rounds of renewals and revocations.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a failed creation is cached: requests in this time get the same error.
const FAILURE_KEPT: Duration = Duration::from_secs(1);
/// Minimum time between two checks of a lease that servers reject.
const CHECK_AGAIN: Duration = Duration::from_secs(10);
/// Delay before the next attempt to renew a lease, if the store did not respond.
const RENEW_AGAIN: Duration = Duration::from_secs(5);
/// Maximum delay between two attempts to revoke a lease.
const REVOKE_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Maximum concurrent calls of one round, for renewals and for revocations separately.
const CALLS_AT_ONCE: usize = 8;

/// Function that returns whether an identity may still have leases of a role.
pub(crate) type Entitled = dyn Fn(&str, &str) -> bool + Send + Sync;

/// Identity and role.
type Key = (Arc<str>, Arc<str>);

/// The leases of all identities. Clones share them.
#[derive(Clone, Debug)]
pub struct IdentityLeases(Arc<Leases>);

#[derive(Debug)]
struct Leases {
    issuer: Arc<dyn LeaseIssuer>,
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    /// Slots that have ended, until their leases are moved to `ending`.
    ended_slots: Mutex<Vec<(Key, Arc<Slot>)>>,
    ending: Mutex<Vec<Ending>>,
    permits: Arc<Semaphore>,
    is_closed: AtomicBool,
}

/// A lease that must be revoked.
#[derive(Debug)]
struct Ending {
    live: LiveLease,
    key: Key,
    next: Instant,
    tries: u32,
}

impl IdentityLeases {
    /// Creates an empty set of leases. `issuer` creates, renews and revokes the leases.
    pub fn new(issuer: Arc<dyn LeaseIssuer>) -> Self {
        Self(Arc::new(Leases {
            issuer,
            slots: Mutex::default(),
            ended_slots: Mutex::default(),
            ending: Mutex::default(),
            permits: Arc::new(Semaphore::new(LEASES_MAX)),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Returns the lease of an identity, and creates it if there is none. `ended` signals that the client's token or password was
    /// removed.
    ///
    /// # Errors
    /// [`LeaseError`]
    ///
    /// # Cancellation
    /// The creation continues, for the next request.
    pub(crate) async fn fetch(
        &self,
        identity: &Arc<str>,
        role: &str,
        ended: Option<&Ended>,
    ) -> Result<(Leased, SlotRef), LeaseError> {
        if self.0.is_closed.load(Acquire) || ended.is_some_and(Ended::has_ended) {
            return Err(stopped());
        }
        let key = (Arc::clone(identity), Arc::<str>::from(role));
        let slot = Arc::clone(self.0.slots.lock().entry(key.clone()).or_default());
        slot.used_by(ended);
        if let Some(leased) = slot.cached_lease() {
            return Ok((leased, SlotRef(slot)));
        }
        let (leases, work) = (Arc::clone(&self.0), Arc::clone(&slot));
        let making = tokio::spawn(async move {
            let _live = telemetry::tasks::guard("proxy-lease");
            let mut state = work.state.lock().await;
            leases.current(&key, &work, &mut state).await
        });
        let late = || LeaseError::StoreUnavailable(format!("a lease was not created within {WAIT:?}"));
        let made = timeout(WAIT, making).await.map_err(|_| late())?;
        let leased = made.map_err(|error| LeaseError::StoreUnavailable(error.to_string()))??;
        Ok((leased, SlotRef(slot)))
    }

    /// Renews leases that are in use, and revokes leases whose identity `is_entitled` no longer accepts, until `stop`.
    pub(crate) async fn keep(self, is_entitled: Box<Entitled>, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("proxy-leases");
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(ROUND_INTERVAL) => {}
            }
            // A round is not cancelled: while a round revokes a lease, the lease is in no list and would be lost.
            self.round(&*is_entitled).await;
        }
    }

    /// Runs one round of renewals and revocations.
    pub(super) async fn round(&self, is_entitled: &Entitled) {
        let leases = &self.0;
        let slots: Vec<(Key, Arc<Slot>)> =
            leases.slots.lock().iter().map(|(key, slot)| (key.clone(), Arc::clone(slot))).collect();
        let mut due = Vec::new();
        for (key, slot) in slots {
            if slot.is_abandoned() || !is_entitled(&key.0, &key.1) {
                leases.stop(key, slot);
            } else if slot.must_renew() {
                due.push((key, slot));
            }
        }
        leases.collect_ended();
        leases.forget_empty();
        let renew = |(key, slot): (Key, Arc<Slot>)| async move { leases.renew(&key, &slot).await }.boxed();
        let renewals: Vec<BoxFuture<'_, ()>> = due.into_iter().map(renew).collect();
        join(run(renewals), leases.revoke_due()).await;
    }

    /// Revokes all leases, and creates no new ones. Waits at most `within`; leases that are not revoked by then expire.
    pub(crate) async fn close(&self, within: Duration) {
        let leases = &self.0;
        leases.is_closed.store(true, Release);
        let slots: Vec<(Key, Arc<Slot>)> = leases.slots.lock().drain().collect();
        slots.into_iter().for_each(|(key, slot)| leases.stop(key, slot));
        let revoked = timeout(within, async {
            let ended_slots = std::mem::take(&mut *leases.ended_slots.lock());
            for (key, slot) in ended_slots {
                // A creation in progress ends first.
                let all = slot.state.lock().await.take_all();
                leases.end_all(&key, all);
            }
            leases.revoke_due().await;
        });
        let is_late = revoked.await.is_err();
        let left = leases.ending.lock().len();
        if is_late || left > 0 {
            tracing::warn!(
                left,
                "the proxy stops before all leases are revoked: the rest ends at its expiry"
            );
        }
    }
}

impl Slot {
    /// Returns the lease if no call to the store is needed.
    fn cached_lease(&self) -> Option<Leased> {
        let state = self.state.try_lock().ok()?;
        let live = state.live.as_ref().filter(|live| live.is_usable())?;
        let is_sure = !self.is_suspect.load(Relaxed) && !self.is_over.load(Acquire);
        is_sure.then(|| live.leased())
    }

    /// Returns whether the lease is due for a renewal, and was used since the last renewal.
    fn must_renew(&self) -> bool {
        let Ok(state) = self.state.try_lock() else { return false };
        let live = state
            .live
            .as_ref()
            .filter(|live| live.renew_at <= Instant::now() && live.renew_at < live.expires);
        live.is_some_and(|live| !live.has_expired()) && self.is_used.load(Relaxed)
    }
}

impl Leases {
    /// Returns the lease of a slot, or creates one. The caller has the lock of the slot.
    async fn current(&self, key: &Key, slot: &Slot, state: &mut SlotState) -> Result<Leased, LeaseError> {
        if slot.is_suspect.swap(false, Relaxed) {
            self.check(key, state).await;
        }
        if slot.is_over.load(Acquire) || self.is_closed.load(Acquire) {
            return Err(stopped());
        }
        if let Some(live) = state.live.as_ref().filter(|live| live.is_usable()) {
            return Ok(live.leased());
        }
        if let Some((at, error)) = &state.failure
            && at.elapsed() < FAILURE_KEPT
        {
            return Err(error.clone());
        }
        state.retired.extend(state.live.take());
        state.retired.retain(|live| !live.has_expired());
        let made = self.create(key).await;
        state.failure = made.as_ref().err().map(|error| (Instant::now(), error.clone()));
        let live = made?;
        let leased = live.leased();
        state.live = Some(live);
        // The identity may have lost its right to the lease during the creation.
        if slot.is_over.load(Acquire) || self.is_closed.load(Acquire) {
            let all = state.take_all();
            self.end_all(key, all);
            self.revoke_due().await;
            return Err(stopped());
        }
        Ok(leased)
    }

    async fn create(&self, (identity, role): &Key) -> Result<LiveLease, LeaseError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit =
            permit.map_err(|_| LeaseError::StoreUnavailable(format!("the proxy has {LEASES_MAX} leases")))?;
        let lease = self.issuer.create(role).await?;
        tracing::info!(%identity, %role, lease = %lease.id, "created a lease");
        Ok(LiveLease::new(lease, permit))
    }

    /// Renews a lease that a server rejected, to check whether the lease still exists.
    async fn check(&self, key: &Key, state: &mut SlotState) {
        if state.checked_at.is_some_and(|at| at.elapsed() < CHECK_AGAIN) {
            return;
        }
        state.checked_at = Some(Instant::now());
        self.renew_live(key, state).await;
    }

    async fn renew(&self, key: &Key, slot: &Slot) {
        let mut state = slot.state.lock().await;
        slot.is_used.store(false, Relaxed);
        self.renew_live(key, &mut state).await;
    }

    /// Renews the lease. If the store refuses, the next request gets a new one.
    async fn renew_live(&self, key: &Key, state: &mut SlotState) {
        let Some(live) = &mut state.live else { return };
        match self.issuer.renew(live.id).await {
            Ok(expires_at) => live.renewed(expires_at),
            Err(LeaseError::StoreUnavailable(error)) => {
                live.renew_at = Instant::now() + RENEW_AGAIN;
                tracing::warn!(identity = %key.0, role = %key.1, lease = %live.id, error, "a lease was not renewed");
            }
            Err(LeaseError::Refused(error) | LeaseError::Denied(error)) => {
                tracing::warn!(identity = %key.0, role = %key.1, lease = %live.id, error, "a lease cannot be renewed: a new one replaces it");
                self.end_all(key, state.live.take());
            }
        }
    }

    /// Ends a slot. Its leases are revoked by [`Self::collect_ended`].
    fn stop(&self, key: Key, slot: Arc<Slot>) {
        slot.is_over.store(true, Release);
        let mut slots = self.slots.lock();
        if slots.get(&key).is_some_and(|current| Arc::ptr_eq(current, &slot)) {
            slots.remove(&key);
        }
        drop(slots);
        self.ended_slots.lock().push((key, slot));
    }

    /// Moves the leases of ended slots to the list of leases to revoke. A slot with a call in progress stays for the next round.
    fn collect_ended(&self) {
        let ended_slots = std::mem::take(&mut *self.ended_slots.lock());
        for (key, slot) in ended_slots {
            let all = slot.state.try_lock().ok().map(|mut state| state.take_all());
            match all {
                Some(all) => self.end_all(&key, all),
                None => self.ended_slots.lock().push((key, slot)),
            }
        }
    }

    /// Removes slots without a lease, unless a request uses the slot or a failure is cached in it.
    fn forget_empty(&self) {
        self.slots.lock().retain(|_, slot| {
            let Ok(mut state) = slot.state.try_lock() else { return true };
            state.retired.retain(|live| !live.has_expired());
            if state.live.as_ref().is_some_and(LiveLease::has_expired) {
                state.live = None;
            }
            let is_failing = state.failure.as_ref().is_some_and(|(at, _)| at.elapsed() < FAILURE_KEPT);
            // A request that holds a reference to the slot is about to lock it.
            state.live.is_some() || !state.retired.is_empty() || is_failing || Arc::strong_count(slot) > 1
        });
    }

    fn end_all(&self, key: &Key, all: impl IntoIterator<Item = LiveLease>) {
        let next = Instant::now();
        let all = all.into_iter().map(|live| Ending { live, key: key.clone(), next, tries: 0 });
        self.ending.lock().extend(all);
    }

    /// Revokes leases that have ended. If the store does not revoke a lease, the revocation is retried until the lease expires.
    async fn revoke_due(&self) {
        let now = Instant::now();
        let due: Vec<Ending> = self.ending.lock().extract_if(.., |ending| ending.next <= now).collect();
        let calls: Vec<BoxFuture<'_, ()>> =
            due.into_iter().map(|ending| self.revoke(ending).boxed()).collect();
        run(calls).await;
    }

    async fn revoke(&self, mut ending: Ending) {
        let ((identity, role), lease) = (ending.key.clone(), ending.live.id);
        match self.issuer.revoke(lease).await {
            Ok(()) => tracing::info!(%identity, %role, %lease, "revoked a lease"),
            Err(LeaseError::Refused(error)) => {
                tracing::info!(%identity, %role, %lease, error, "a lease had ended");
            }
            Err(LeaseError::StoreUnavailable(_) | LeaseError::Denied(_)) if ending.live.has_expired() => {}
            Err(LeaseError::StoreUnavailable(error) | LeaseError::Denied(error)) => {
                tracing::warn!(%identity, %role, %lease, error, "a lease is not revoked yet");
                let wait = Duration::from_secs(1 << ending.tries.min(6)).min(REVOKE_AGAIN_MAX);
                ending.next = Instant::now() + wait;
                ending.tries += 1;
                self.ending.lock().push(ending);
            }
        }
    }
}

/// Runs calls, at most [`CALLS_AT_ONCE`] concurrently.
async fn run(calls: Vec<BoxFuture<'_, ()>>) {
    futures_util::stream::iter(calls).buffer_unordered(CALLS_AT_ONCE).collect::<()>().await;
}

fn stopped() -> LeaseError {
    LeaseError::Refused("the client's identity or token was removed, or the proxy stops".to_owned())
}
