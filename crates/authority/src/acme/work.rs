//! What goes on without a request: validations, what a crash left half done, and the deletion of what is over.
//!
//! An answered challenge and a finalized order carry until when their node works on them. Past that time any node takes
//! them over, so nothing is stuck and nothing needs to know of another's crash. A node that is stopped gives back what it
//! has, so that nobody waits for that time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use store::AuditEvent;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};
use uuid::Uuid;

use super::accounts::{Missing, actor};
use super::identifier::Identifier;
use super::limits::Kind as Limited;
use super::orders::{after, id_at};
use super::problem::Problem;
use super::queue::WAITING_MAX;
use super::state::{answered, token};
use super::validate::{Failure, Proven, Question};
use super::writes::Validated;
use super::{Acme, Server};
use crate::tables;
use crate::tables::acme::{AcmeAuthorization, AcmeAuthorizationStatus, AcmeValidated};

/// Tries of a validation.
const TRIES: u32 = 3;
/// Earlier keys of an account that `dns-persist-01` looks at.
const EARLIER_KEYS_MAX: usize = 20;
/// How often to look for what nobody works on any more.
const SWEEP: Duration = Duration::from_secs(3);
/// Taken over at a time.
const SWEEP_ROWS: usize = 256;
/// Interval between deletions of expired rows.
const TIDY: Duration = Duration::from_secs(60);
/// Deleted in one transaction, and such transactions at a time.
const TIDY_ROWS: usize = 1_000;
const TIDY_BATCHES: usize = 100;
/// What a validation may take beside its tries and pauses before another node takes over, µs.
const SLACK_US: i64 = 15_000_000;

/// What this node works on, with the end of its claim, µs.
#[derive(Clone, Copy)]
enum Claim {
    Validation(Uuid, i64),
    Issuance(Uuid, i64),
}

/// Validations and issuances under way, each with what it has claimed: as many as the tasks.
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

    /// Removes finished validations.
    fn reap(&mut self) {
        while let Some(ended) = self.set.try_join_next_with_id() {
            self.claims.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
        }
    }

    /// Cancels validations in progress; returns their claims.
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

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Validations that wait in memory.
    pub validations_waiting: u64,
    /// Validations under way.
    pub validations_running: u64,
    /// Validations that ended in a proof since the start.
    pub validations_proven: u64,
    /// Validations that failed since the start.
    pub validations_failed: u64,
    /// Clients and names under a limit.
    pub limits_kept: u64,
}

impl Acme {
    /// Validates, finishes what was left, and tidies up, until `stop` ends; then it gives back what was under way. One
    /// such call at a time; a second one only sweeps.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let inner = &self.0;
        let mut queue = inner.queue.waiting.lock().take();
        let room = Arc::new(Semaphore::new(inner.options.validation.concurrency));
        if queue.is_some() {
            inner.queue.stopped.store(false, Ordering::SeqCst);
        }
        let mut tasks = Tasks::default();
        let mut sweep = tokio::time::interval(SWEEP);
        let mut tidy = tokio::time::interval(TIDY);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tidy.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut first = true;
        tokio::pin!(stop);
        loop {
            tasks.reap();
            let next = async {
                match (&mut queue, room.clone().acquire_owned().await) {
                    (Some(queue), Ok(place)) => queue.recv().await.map(|row| (row, place)),
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stop => break,
                next = next => if let Some((row, place)) = next {
                    let inner = inner.clone();
                    let guard = telemetry::tasks::guard("acme-validation");
                    tasks.spawn(validation(&row), async move {
                        let (_guard, _place) = (guard, place);
                        inner.validate(row).await;
                    });
                },
                _ = sweep.tick() => {
                    inner.sweep(first, &room, &mut tasks).await;
                    first = false;
                }
                _ = tidy.tick() => inner.tidy().await,
            }
        }
        let mut claims = tasks.stop().await;
        if let Some(queue) = &mut queue {
            inner.queue.stopped.store(true, Ordering::SeqCst);
            claims.extend(std::iter::from_fn(|| queue.try_recv().ok()).map(|row| validation(&row)));
        }
        inner.release(claims).await;
        *inner.queue.waiting.lock() = queue;
    }

    /// Figures for metrics.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let queue = &self.0.queue;
        Figures {
            validations_waiting: (WAITING_MAX - queue.queue.capacity()) as u64,
            validations_running: queue.running.load(Ordering::Relaxed),
            validations_proven: queue.proven.load(Ordering::Relaxed),
            validations_failed: queue.failed.load(Ordering::Relaxed),
            limits_kept: self.0.limiter.len() as u64,
        }
    }
}

/// The claim under which an answered challenge waits here.
fn validation(row: &AcmeAuthorization) -> Claim {
    Claim::Validation(row.id, row.claimed_until_us.unwrap_or(i64::MIN))
}

impl Server {
    /// Gives back what is not going to be done here.
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
            tracing::warn!(%error, "what was under way is taken over when its claims end");
        }
    }

    /// How long this node may take for a validation before another takes over, µs.
    pub(crate) fn claim_us(&self) -> i64 {
        let options = &self.options.validation;
        let tries = u64::from(TRIES) * options.try_milliseconds + 4 * options.pause_milliseconds;
        i64::try_from(tries).unwrap_or(i64::MAX).saturating_mul(1_000).saturating_add(SLACK_US)
    }

    /// Takes over what nobody works on. At the start on SQLite that is everything: there is no other node.
    async fn sweep(self: &Arc<Self>, first: bool, room: &Arc<Semaphore>, tasks: &mut Tasks) {
        let now_us = self.now_us();
        let lapsed = if first && !self.store.is_postgres() { i64::MAX } else { now_us };
        let until = now_us + self.claim_us();
        // Only as many as can begin now: what waits here would be taken over by another again.
        let free = room.available_permits().min(SWEEP_ROWS);
        match tables::Acme::of(&self.store).claim_validations(lapsed, until, free).await {
            Ok(ids) => {
                for id in ids {
                    let (inner, room) = (self.clone(), room.clone());
                    let guard = telemetry::tasks::guard("acme-validation");
                    tasks.spawn(Claim::Validation(id, until), async move {
                        let _guard = guard;
                        let Ok(_place) = room.acquire_owned().await else { return };
                        match tables::Acme::of(&inner.store).authorization(id).await {
                            Ok(Some(row)) if row.status == AcmeAuthorizationStatus::Pending => {
                                inner.validate(row).await;
                            }
                            Ok(_) => {}
                            Err(error) => {
                                tracing::warn!(%error, authorization = %id, "an authorization cannot be read");
                            }
                        }
                    });
                }
            }
            Err(error) => tracing::warn!(%error, "left validations cannot be found"),
        }
        let until = self.issuing_until_us();
        match tables::Acme::of(&self.store).claim_issuances(lapsed, until, SWEEP_ROWS).await {
            Ok(ids) => {
                for id in ids {
                    let inner = self.clone();
                    let guard = telemetry::tasks::guard("acme-issuing");
                    tasks.spawn(Claim::Issuance(id, until), async move {
                        let _guard = guard;
                        if let Ok(Some(order)) = tables::Acme::of(&inner.store).order(id).await {
                            inner.issue(order).await;
                        }
                    });
                }
            }
            Err(error) => tracing::warn!(%error, "left orders cannot be found"),
        }
    }

    /// Deletes orders and authorizations that have been over for long enough, in bounded batches.
    async fn tidy(&self) {
        let directories = self.options.directories.values().chain(&self.options.other_profiles);
        let default = super::DirectoryOptions::default();
        let lives = directories.chain([&default]).map(|one| (one.order_seconds, one.reuse_seconds));
        let (orders, reuse) = lives.fold((0, 0), |(a, b), (c, d)| (a.max(c), b.max(d)));
        let keep = self.options.keep_ended_seconds;
        let before = |seconds: u64| lowest_id_at(2 * self.now_us() - after(self.now_us(), seconds));
        let (old_orders, old_proofs) = (before(orders + keep), before(orders + reuse + keep));
        for batch in 0..TIDY_BATCHES {
            let deleted = async {
                let orders = tables::Acme::of(&self.store).tidy_orders(old_orders, TIDY_ROWS).await?;
                let proofs = tables::Acme::of(&self.store).tidy_authorizations(old_proofs, TIDY_ROWS).await?;
                Ok::<u64, store::StoreError>(orders + proofs)
            };
            match deleted.await {
                Ok(0) => return,
                Ok(rows) => tracing::debug!(rows, batch, "orders and authorizations deleted"),
                Err(error) => return tracing::warn!(%error, "old orders cannot be deleted"),
            }
        }
    }

    /// One authorization, from its answered challenge to its end.
    async fn validate(&self, row: AcmeAuthorization) {
        if row.claimed_until_us.is_none_or(|until| until <= self.now_us()) {
            // It waited for too long: anyone who sweeps next takes it, perhaps has it already.
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
            // It stays answered; once the claim is over it is validated again.
            tracing::warn!(authorization = %row.id, "the end of a validation is not stored");
        }
    }

    /// What is to be proven. An error: the proof fails with it; without one it cannot be told now.
    async fn question(&self, row: &AcmeAuthorization) -> Result<Question, Option<Problem>> {
        let account = match self.accounts.get(&self.store, row.account).await {
            Ok(account) => account,
            Err(Missing::Unknown) => return Err(Some(Problem::unauthorized("the account is gone"))),
            Err(Missing::Busy | Missing::Broken) => return Err(None),
        };
        account.check().map_err(Some)?;
        let account = &account.row;
        let method = answered(row);
        let mut thumbprints = vec![account.thumbprint];
        if method == Some(super::Method::DnsPersist01) {
            let earlier = tables::Acme::of(&self.store).earlier_keys(account.id, EARLIER_KEYS_MAX).await;
            thumbprints.extend(earlier.map_err(|error| {
                tracing::warn!(%error, "earlier keys cannot be read");
                None
            })?);
        }
        let encode = |thumbprint: [u8; 32]| {
            use base64::Engine as _;
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(thumbprint)
        };
        Ok(Question {
            identifier: Identifier::from_key(&row.identifier).ok_or_else(|| Some(Problem::internal()))?,
            wildcard: row.wildcard,
            method,
            token: token(row),
            account_url: self.account_url(account.id),
            thumbprints: thumbprints.into_iter().map(encode).collect(),
        })
    }

    async fn tries(&self, question: &Question) -> Result<Proven, Failure> {
        let mut pause = self.options.validation.pause();
        let mut last = self.validator.prove(question, self.now_us()).await;
        for _ in 1..TRIES {
            match &last {
                Err(failure) if failure.passing => {}
                _ => break,
            }
            tokio::time::sleep(pause).await;
            pause *= 3;
            last = self.validator.prove(question, self.now_us()).await;
        }
        last
    }

    fn outcome(&self, row: &AcmeAuthorization, outcome: Result<Proven, Problem>) -> Validated {
        let at_us = self.now_us();
        let method = answered(row).map_or("", super::Method::name);
        let mut details = json!({ "identifier": row.identifier, "wildcard": row.wildcard, "method": method });
        let mut validated = AcmeValidated {
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
                // A pre-authorization is for later orders from the first.
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
        Validated { row: validated, audit }
    }
}

/// The least UUIDv7 of a moment.
fn lowest_id_at(us: i64) -> Uuid {
    let mut octets = *id_at(us.max(0)).as_bytes();
    octets[6..].fill(0);
    Uuid::from_bytes(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_by_the_clock() {
        let (early, late) = (id_at(1_795_219_200_000_000), id_at(1_795_219_200_001_000));
        assert!(lowest_id_at(1_795_219_200_000_000) < early && early < lowest_id_at(1_795_219_200_001_000));
        assert!(lowest_id_at(1_795_219_200_001_000) < late);
    }
}
