//! An issuer with its limits: concurrency, rate, circuit breaker, verification of deliveries, and stored orders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use futures_util::future::{BoxFuture, FutureExt};
use keys::{KeyRef, Secret};
use outbound::rate::Bucket;
use parking_lot::Mutex;
use store::{Clock, Store};
use tokio::sync::Semaphore;
use x509::crl::Reason;
use x509::{Certificate, UnixTime};

use crate::breaker::{Breaker, Health};
use crate::check::Check;
use crate::config::{IssuerKind, Limits};
use crate::counts::Counts;
use crate::delivery::DeliveredChain;
use crate::error::IssuerError;
use crate::issuer::{Issuer, IssuerIdentity};
use crate::memory::{OrderStore, parse_order_csr};
use crate::order::{Order, Window};
use crate::tables;
use crate::tables::IssuerHealth;

/// Maximum wait of an order for a free slot, before it returns to the queue.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which to retry when there is no free slot.
const SLOT_RETRY: Duration = Duration::from_secs(10);
/// Time for cleanup after the order's deadline. Then the issuer is aborted.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum interval in µs between two stored successes. Failures and state changes are always stored.
const SUCCESS_EVERY_US: i64 = 60 * 1_000_000;
/// Maximum bytes of an error that are stored.
const ERROR_MAX: usize = 500;

pub(crate) struct LimitedIssuer {
    identity: IssuerIdentity,
    inner: Box<dyn Issuer>,
    limits: Limits,
    check: Check,
    /// Stored orders. `None` for issuers that are idempotent by themselves.
    memory: Option<OrderStore>,
    slots: Semaphore,
    state: Mutex<State>,
    store: Store,
    clock: Clock,
    counts: Arc<Counts>,
}

impl std::fmt::Debug for LimitedIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitedIssuer")
            .field("name", &self.identity.name)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    breaker: Breaker,
    bucket: Bucket,
    success_stored_us: Option<i64>,
}

/// Dependencies of a [`LimitedIssuer`].
pub(crate) struct LimitedIssuerParts {
    pub(crate) identity: IssuerIdentity,
    pub(crate) inner: Box<dyn Issuer>,
    pub(crate) limits: Limits,
    pub(crate) check: Check,
    pub(crate) breaker: Breaker,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) counts: Arc<Counts>,
}

impl LimitedIssuer {
    pub(crate) fn new(parts: LimitedIssuerParts) -> Self {
        let LimitedIssuerParts { identity, inner, limits, check, breaker, store, clock, counts } = parts;
        let own_memory = inner.kind() == IssuerKind::Internal;
        let memory = (!own_memory).then(|| OrderStore::new(store.clone(), clock.clone(), identity.id));
        let slots = Semaphore::new(limits.concurrency.clamp(1, 1_000) as usize);
        let state = Mutex::new(State { breaker, ..State::default() });
        Self { identity, inner, limits, check, memory, slots, state, store, clock, counts }
    }

    async fn obtain(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        parse_order_csr(order)?.verify().map_err(|error| IssuerError::Refused {
            reason: format!("the CSR is not signed by its own key: {error}"),
        })?;
        let now = UnixTime(self.clock.now_seconds());
        if let Some(memory) = &self.memory
            && let Some(chain) = memory.load_order_state(order).await?.chain
        {
            match self.check.delivery(order, &chain, now) {
                Ok(delivered) => return Ok(delivered),
                // The stored chain is unusable: the names under this key changed, or the certificate has expired.
                Err(_) => memory.forget(order).await?,
            }
        }
        let _permit = self.enter(order.deadline).await?;
        let started = Instant::now();
        let result = self.attempt(order).await;
        self.counts.add(
            self.inner.kind().name(),
            &self.identity.name,
            result.as_ref().err(),
            started.elapsed(),
        );
        self.record_outcome(result.as_ref().err()).await;
        result
    }

    /// Sends the order, and checks and stores the certificate.
    async fn attempt(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        let own = Duration::from_secs(self.limits.order_seconds.max(1).into());
        let deadline = order.deadline.min(Instant::now() + own);
        let order = Order { deadline, ..order.clone() };
        let outcome =
            tokio::time::timeout_at((deadline + CLEANUP_TIMEOUT).into(), self.inner.issue(&order)).await;
        let delivered =
            outcome.unwrap_or(Err(IssuerError::TimedOut { stage: "the issuer processes the order" }))?;
        let now = UnixTime(self.clock.now_seconds());
        let checked = self.check.delivery(&order, &delivered.chain, now);
        if let Some(memory) = &self.memory {
            match &checked {
                // Store the chain as received, with a root if there was one, so that it can be verified again.
                Ok(_) => memory.delivered(&order, &delivered.chain).await?,
                // The next attempt must not reuse this result.
                Err(_) => memory.forget(&order).await?,
            }
        }
        checked
    }

    /// Checks the circuit breaker, the rate limit and the concurrency limit, in that order.
    async fn enter(&self, deadline: Instant) -> Result<tokio::sync::SemaphorePermit<'_>, IssuerError> {
        let until = deadline.min(Instant::now() + SLOT_TIMEOUT);
        let permit = match tokio::time::timeout_at(until.into(), self.slots.acquire()).await {
            Ok(Ok(permit)) => permit,
            _ => {
                let reason = format!("{} orders are already in progress", self.limits.concurrency);
                return Err(self.deferred(SLOT_RETRY, reason));
            }
        };
        let now = self.clock.now_us();
        let mut state = self.state.lock();
        let next = state.breaker.attempt(now, &self.limits).map_err(|until| {
            self.deferred(
                micros(until.saturating_sub(now)),
                "the issuer failed repeatedly; its circuit breaker is open".to_owned(),
            )
        })?;
        if let Some(rate) = self.limits.rate() {
            state.bucket.take(now, rate).map_err(|wait| {
                self.deferred(micros(wait), "the limit of orders per minute is reached".to_owned())
            })?;
        }
        state.breaker = next;
        drop(state);
        Ok(permit)
    }

    fn deferred(&self, retry_after: Duration, reason: String) -> IssuerError {
        let error =
            IssuerError::Deferred { retry_after: retry_after.max(Duration::from_millis(100)), reason };
        self.counts.add(self.inner.kind().name(), &self.identity.name, Some(&error), Duration::ZERO);
        error
    }

    /// Updates the circuit breaker, and stores the issuer's health for display and for the other servers.
    async fn record_outcome(&self, error: Option<&IssuerError>) {
        let now = self.clock.now_us();
        let health = error.map_or(Health::Working, Health::of);
        let row = {
            let mut state = self.state.lock();
            let before = state.breaker;
            state.breaker = before.record_outcome(health, now, &self.limits, random());
            let recently_stored =
                state.success_stored_us.is_some_and(|at| (0..SUCCESS_EVERY_US).contains(&(now - at)));
            if error.is_none() && before == state.breaker && recently_stored {
                return;
            }
            if error.is_none() {
                state.success_stored_us = Some(now);
            }
            if before.code() != state.breaker.code() {
                tracing::warn!(issuer = %self.identity.name, breaker = state.breaker.code(), "circuit breaker");
            }
            issuer_health(state.breaker, error, now)
        };
        if let Err(error) = tables::ExternalIssuers::of(&self.store).set_health(self.identity.id, row).await {
            tracing::warn!(issuer = %self.identity.name, %error, "the issuer's health was not stored");
        }
    }
}

fn issuer_health(breaker: Breaker, error: Option<&IssuerError>, now_us: i64) -> IssuerHealth {
    IssuerHealth {
        breaker,
        last_success_at_us: error.is_none().then_some(now_us),
        last_error_at_us: error.map(|_| now_us),
        last_error_code: error.map(|error| error.code().to_owned()),
        last_error: error
            .map(|error| error.to_string().chars().filter(|c| *c != '\0').take(ERROR_MAX).collect()),
    }
}

fn micros(wait: i64) -> Duration {
    Duration::from_micros(u64::try_from(wait).unwrap_or(0))
}

/// Returns a number between 0 (inclusive) and 1 (exclusive). Without randomness, returns the value for the longest open state.
fn random() -> f64 {
    let mut bytes = [0; 4];
    rand::fill(&mut bytes).map_or(1.0, |()| f64::from(u32::from_be_bytes(bytes)) / 4_294_967_296.0)
}

impl Issuer for LimitedIssuer {
    fn kind(&self) -> IssuerKind {
        self.inner.kind()
    }

    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.obtain(order).boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.inner.revoke(certificate, reason)
    }

    fn revoke_with_key<'a>(
        &'a self,
        certificate: &'a Certificate,
        key: KeyRef,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.inner.revoke_with_key(certificate, key, reason)
    }

    fn renew_with_key<'a>(
        &'a self,
        chain: &'a [Vec<u8>],
        key: &'a Secret,
    ) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.inner.renew_with_key(chain, key)
    }

    fn renewal_window<'a>(
        &'a self,
        certificate: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>> {
        self.inner.renewal_window(certificate)
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        self.inner.test()
    }

    fn upkeep<'a>(&'a self) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.inner.upkeep()
    }
}
