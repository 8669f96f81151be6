//! Background work: validations, recovery after a crash, and deletion of expired rows.
//!
//! A node claims a validation or an issuance until a time that is stored in the row. After that time any node takes over the work,
//! so a crash blocks nothing. A node that shuts down releases its claims immediately.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use shared::Shared;
use store::AuditEvent;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};
use uuid::Uuid;

use super::accounts::{Missing, actor};
use super::identifier::Identifier;
use super::limits::Kind as Limited;
use super::orders::{after, uuid_at};
use super::problem::Problem;
use super::queue::WAITING_MAX;
use super::state::{responded_method, token};
use super::validate::{Failure, Proven, ValidationRequest};
use super::writes::FinishedValidation;
use super::{Acme, Server};
use crate::tables;
use crate::tables::acme::{AcmeAuthorization, AcmeAuthorizationStatus, AcmeValidationResult};

/// Maximum number of attempts of a validation.
const ATTEMPTS_MAX: u32 = 3;
/// Maximum number of earlier account keys that `dns-persist-01` accepts.
const EARLIER_KEYS_MAX: usize = 20;
/// Interval between searches for expired claims.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum number of expired claims to take over in one search.
const SWEEP_ROWS: usize = 256;
/// Interval between deletions of expired rows.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);
/// Number of rows to delete in one transaction.
const CLEANUP_ROWS: usize = 1_000;
/// Maximum transactions of one clean-up.
const CLEANUP_BATCHES_MAX: usize = 100;
/// Extra time in microseconds of a validation claim, in addition to the attempts and delays.
const SLACK_US: i64 = 15_000_000;

/// A claim of this node, with its expiry in microseconds.
#[derive(Clone, Copy)]
enum Claim {
    Validation(Uuid, i64),
    Issuance(Uuid, i64),
}

/// Validations and issuances in progress, with the claim of each task.
#[derive(Default)]
struct Tasks {
    set: JoinSet<()>,
    claims: HashMap<Id, Claim>,
}

impl Tasks {
    fn spawn(&mut self, claim: Claim, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.set.spawn(work);
        self.claims.insert(task.id(), claim);
    }

    /// Removes finished tasks and their claims.
    fn reap(&mut self) {
        while let Some(ended) = self.set.try_join_next_with_id() {
            self.claims.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
        }
    }

    /// Cancels tasks in progress. Returns their claims.
    async fn stop(mut self) -> Vec<Claim> {
        self.set.abort_all();
        while let Some(ended) = self.set.join_next_with_id().await {
            if let Ok((id, ())) = ended {
                self.claims.remove(&id);
            }
        }
        self.claims.into_values().collect()
    }
}

/// Counters and queue lengths of the ACME server, for metrics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Number of validations in the in-memory queue.
    pub validations_waiting: u64,
    /// Number of validations in progress.
    pub validations_running: u64,
    /// Number of successful validations since startup.
    pub validations_proven: u64,
    /// Number of failed validations since startup.
    pub validations_failed: u64,
    /// Number of clients and names that rate limits track.
    pub limits_tracked: u64,
}

impl Acme {
    /// Runs validations, takes over expired claims and deletes expired rows until `stop` completes. Then releases the claims of
    /// unfinished work. Only one call processes the queue; a concurrent second call only takes over claims.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let inner = &self.0;
        let mut queue = inner.queue.receiver.lock().take();
        let permits = Arc::new(Semaphore::new(inner.options.validation.concurrency));
        if queue.is_some() {
            inner.queue.stopped.store(false, Ordering::SeqCst);
        }
        let mut tasks = Tasks::default();
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        let mut clean_up = tokio::time::interval(CLEANUP_INTERVAL);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        clean_up.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut first = true;
        tokio::pin!(stop);
        loop {
            tasks.reap();
            let next = async {
                match (&mut queue, permits.clone().acquire_owned().await) {
                    (Some(queue), Ok(permit)) => queue.recv().await.map(|row| (row, permit)),
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stop => break,
                next = next => if let Some((row, permit)) = next {
                    let inner = inner.clone();
                    let guard = telemetry::tasks::guard("acme-validation");
                    tasks.spawn(validation(&row), async move {
                        let (_guard, _permit) = (guard, permit);
                        inner.validate(row).await;
                    });
                },
                _ = sweep.tick() => {
                    self.sweep(first, &permits, &mut tasks).await;
                    first = false;
                }
                _ = clean_up.tick() => inner.clean_up().await,
            }
        }
        let mut claims = tasks.stop().await;
        if let Some(queue) = &mut queue {
            inner.queue.stopped.store(true, Ordering::SeqCst);
            claims.extend(std::iter::from_fn(|| queue.try_recv().ok()).map(|row| validation(&row)));
        }
        inner.release(claims).await;
        *inner.queue.receiver.lock() = queue;
    }

    /// Returns the counters and queue lengths of the ACME server on this node.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let queue = &self.0.queue;
        Figures {
            validations_waiting: (WAITING_MAX - queue.queue.capacity()) as u64,
            validations_running: queue.running.load(Ordering::Relaxed),
            validations_proven: queue.proven.load(Ordering::Relaxed),
            validations_failed: queue.failed.load(Ordering::Relaxed),
            limits_tracked: self.0.limiter.len() as u64,
        }
    }

    /// Takes over work with expired claims. On SQLite the first sweep takes over everything, because no other node exists.
    async fn sweep(&self, first: bool, permits: &Arc<Semaphore>, tasks: &mut Tasks) {
        let server = &self.0;
        let now_us = server.now_us();
        let lapsed = if first && !server.store.is_postgres() { i64::MAX } else { now_us };
        let until = now_us + server.claim_duration_us();
        // Take over only as many validations as can start now. If they waited for a permit, their claims could expire before they
        // start.
        let free = permits.available_permits().min(SWEEP_ROWS);
        match tables::Acme::of(&server.store).claim_validations(lapsed, until, free).await {
            Ok(ids) => {
                for id in ids {
                    let (inner, permits) = (Shared::clone(server), permits.clone());
                    let guard = telemetry::tasks::guard("acme-validation");
                    tasks.spawn(Claim::Validation(id, until), async move {
                        let _guard = guard;
                        let Ok(_permit) = permits.acquire_owned().await else { return };
                        match tables::Acme::of(&inner.store).authorization(id).await {
                            Ok(Some(row)) if row.status == AcmeAuthorizationStatus::Pending => {
                                inner.validate(row).await;
                            }
                            Ok(_) => {}
                            Err(error) => {
                                tracing::warn!(%error, authorization = %id, "cannot read an authorization");
                            }
                        }
                    });
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list abandoned validations"),
        }
        let until = server.issuance_claim_until_us();
        match tables::Acme::of(&server.store).claim_issuances(lapsed, until, SWEEP_ROWS).await {
            Ok(ids) => {
                for id in ids {
                    let inner = Shared::clone(server);
                    let guard = telemetry::tasks::guard("acme-issuing");
                    tasks.spawn(Claim::Issuance(id, until), async move {
                        let _guard = guard;
                        if let Ok(Some(order)) = tables::Acme::of(&inner.store).order(id).await {
                            inner.issue(order).await;
                        }
                    });
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list abandoned orders"),
        }
    }
}

/// Returns the claim of a queued validation.
fn validation(row: &AcmeAuthorization) -> Claim {
    Claim::Validation(row.id, row.claimed_until_us.unwrap_or(i64::MIN))
}

impl Server {
    /// Releases the claims of work that this node will not do.
    async fn release(&self, claims: Vec<Claim>) {
        if claims.is_empty() {
            return;
        }
        let (mut validations, mut issuances) = (Vec::new(), Vec::new());
        for claim in claims {
            match claim {
                Claim::Validation(id, until_us) => validations.push((id, until_us)),
                Claim::Issuance(id, until_us) => issuances.push((id, until_us)),
            }
        }
        if let Err(error) =
            tables::Acme::of(&self.store).release_claims(validations, issuances, self.now_us()).await
        {
            tracing::warn!(%error, "cannot release validations and orders in progress; other nodes take them over when \
             their claims expire");
        }
    }

    /// Returns the time in microseconds that this node may take for a validation before another node takes over.
    pub(crate) fn claim_duration_us(&self) -> i64 {
        let options = &self.options.validation;
        let tries = u64::from(ATTEMPTS_MAX) * options.try_milliseconds + 4 * options.pause_milliseconds;
        i64::try_from(tries).unwrap_or(i64::MAX).saturating_mul(1_000).saturating_add(SLACK_US)
    }

    /// Deletes old orders and authorizations in limited batches: rows whose longest possible lifetime plus `keep_ended_seconds` has
    /// passed since their creation.
    async fn clean_up(&self) {
        let directories = self.options.directories.values().chain(&self.options.other_profiles);
        let default = super::DirectoryOptions::default();
        let lives = directories.chain([&default]).map(|one| (one.order_seconds, one.reuse_seconds));
        let (orders, reuse) = lives.fold((0, 0), |(a, b), (c, d)| (a.max(c), b.max(d)));
        let keep = self.options.keep_ended_seconds;
        let before = |seconds: u64| lowest_uuid_at(2 * self.now_us() - after(self.now_us(), seconds));
        let (old_orders, old_proofs) = (before(orders + keep), before(orders + reuse + keep));
        for batch in 0..CLEANUP_BATCHES_MAX {
            let deleted = async {
                let orders =
                    tables::Acme::of(&self.store).delete_orders_before(old_orders, CLEANUP_ROWS).await?;
                let proofs = tables::Acme::of(&self.store)
                    .delete_authorizations_before(old_proofs, CLEANUP_ROWS)
                    .await?;
                Ok::<u64, store::StoreError>(orders + proofs)
            };
            match deleted.await {
                Ok(0) => return,
                Ok(rows) => tracing::debug!(rows, batch, "deleted old orders and authorizations"),
                Err(error) => return tracing::warn!(%error, "cannot delete old orders"),
            }
        }
    }

    /// Validates an authorization from the response to its challenge to the final state.
    async fn validate(&self, row: AcmeAuthorization) {
        if row.claimed_until_us.is_none_or(|until| until <= self.now_us()) {
            // The claim expired while the authorization was queued. The next sweep takes it over, perhaps on another node.
            return;
        }
        self.queue.running.fetch_add(1, Ordering::Relaxed);
        let outcome = match self.question(&row).await {
            Ok(question) => Some(self.tries(&question).await.map_err(|failure| failure.problem())),
            Err(problem) => problem.map(Err),
        };
        self.queue.running.fetch_sub(1, Ordering::Relaxed);
        let Some(outcome) = outcome else { return };
        let counter = if outcome.is_ok() { &self.queue.proven } else { &self.queue.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            let (account, key) = (row.account.to_string(), &row.identifier);
            let _ =
                self.take(Limited::FailedValidations, &format!("{account} {key}"), &[&account, key]).await;
        }
        let validated = self.outcome(&row, outcome);
        if self.writes.validated(validated).await.is_err() {
            // The authorization keeps its state. After the claim expires, it is validated again.
            tracing::warn!(authorization = %row.id, "cannot store the result of a validation; it is repeated later");
        }
    }

    /// Returns the input of a validation. `Err(Some)` is the reason for which the validation fails; `Err(None)` is a temporary
    /// error.
    async fn question(&self, row: &AcmeAuthorization) -> Result<ValidationRequest, Option<Problem>> {
        let account = match self.accounts.get(&self.store, row.account).await {
            Ok(account) => account,
            Err(Missing::Unknown) => return Err(Some(Problem::unauthorized("the account no longer exists"))),
            Err(Missing::Busy | Missing::Broken) => return Err(None),
        };
        account.check().map_err(Some)?;
        let account = &account.row;
        let method = responded_method(row);
        let mut thumbprints = vec![account.thumbprint];
        if method == Some(super::Method::DnsPersist01) {
            let earlier = tables::Acme::of(&self.store).earlier_keys(account.id, EARLIER_KEYS_MAX).await;
            thumbprints.extend(earlier.map_err(|error| {
                tracing::warn!(%error, "cannot read the earlier keys of an account");
                None
            })?);
        }
        let encode = |thumbprint: [u8; 32]| {
            use base64::Engine as _;
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(thumbprint)
        };
        Ok(ValidationRequest {
            identifier: Identifier::from_key(&row.identifier).ok_or_else(|| Some(Problem::internal()))?,
            wildcard: row.wildcard,
            method,
            token: token(row),
            account_url: self.account_url(account.id),
            thumbprints: thumbprints.into_iter().map(encode).collect(),
        })
    }

    async fn tries(&self, question: &ValidationRequest) -> Result<Proven, Failure> {
        let mut pause = self.options.validation.pause();
        let mut last = self.validator.prove(question, self.now_us()).await;
        for _ in 1..ATTEMPTS_MAX {
            match &last {
                Err(failure) if failure.transient => {}
                _ => break,
            }
            tokio::time::sleep(pause).await;
            pause *= 3;
            last = self.validator.prove(question, self.now_us()).await;
        }
        last
    }

    fn outcome(&self, row: &AcmeAuthorization, outcome: Result<Proven, Problem>) -> FinishedValidation {
        let at_us = self.now_us();
        let method = responded_method(row).map_or("", super::Method::name);
        let mut details = json!({ "identifier": row.identifier, "wildcard": row.wildcard, "method": method });
        let mut validated = AcmeValidationResult {
            id: row.id,
            status: AcmeAuthorizationStatus::Invalid,
            at_us,
            expires_at_us: row.expires_at_us,
            reusable_until_us: None,
            error: None,
        };
        let action = match outcome {
            Ok(proven) => {
                let reuse =
                    self.options.directory(&row.profile).map_or(0, |directory| directory.reuse_seconds);
                let cap = proven.until_us.unwrap_or(i64::MAX);
                validated.status = AcmeAuthorizationStatus::Valid;
                validated.expires_at_us = row.expires_at_us.max(after(at_us, reuse)).min(cap);
                // A pre-authorization is always reusable, because it exists for later orders.
                let later = row.reusable_until_us.or((reuse > 0).then_some(i64::MIN));
                validated.reusable_until_us = later.map(|until| until.max(after(at_us, reuse)).min(cap));
                details["evidence"] = proven.evidence.into();
                "acme_authorization.prove"
            }
            Err(problem) => {
                let error = problem.json();
                validated.error = Some(error.to_string());
                details["error"] = error;
                "acme_authorization.fail"
            }
        };
        let resource = format!("acme-authorization/{}", row.id);
        let audit = AuditEvent { at_us, actor: actor(row.account), action, resource, details };
        FinishedValidation { row: validated, audit }
    }
}

/// Returns the smallest UUIDv7 of a time.
fn lowest_uuid_at(us: i64) -> Uuid {
    let mut bytes = *uuid_at(us.max(0)).as_bytes();
    bytes[6..].fill(0);
    Uuid::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_ordered_ids_sort_by_their_time() {
        let (early, late) = (uuid_at(1_795_219_200_000_000), uuid_at(1_795_219_200_001_000));
        assert!(
            lowest_uuid_at(1_795_219_200_000_000) < early && early < lowest_uuid_at(1_795_219_200_001_000)
        );
        assert!(lowest_uuid_at(1_795_219_200_001_000) < late);
    }
}
