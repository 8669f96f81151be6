//! The revocation of due leases: expired leases, leases of deleted identities, and leases that a caller revoked.

use std::collections::BTreeSet;
use std::time::Duration;

use callout::RemoteError;
use events::{CredentialLeaseRevocation, Event};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use store::NewEvent;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::CONFIRM_US;
use super::connection::target;
use super::lease::end_role;
use super::report::LeaseReport;
use crate::tables::{
    self, LeaseRetry, LeaseRow, Requester, delay_leases, delete_leases, end_due_leases,
    end_leases_of_identity, has_failed_leases, retry_leases,
};
use crate::{CredentialError, Credentials};

/// Name of the cluster-wide lease that a node holds while it revokes due leases of credentials.
const DUTY: &str = "credential-leases";
/// The actor of revocations in the audit log.
const ACTOR: &str = "system:leases";
/// Duration of the cluster-wide lease without a renewal, µs.
const DUTY_US: i64 = 60_000_000;
/// Interval of renewals of the cluster-wide lease during a round: three renewals within the duration.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Interval between rounds. A round without due leases is two reads.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum leases of one connection that a round revokes.
const LEASES_PER_ROUND: i64 = 64;
/// Maximum databases at which a round works concurrently.
const DATABASES_AT_ONCE: usize = 8;
/// Timeout of the statements that drop one role.
const DROP_LIMIT: Duration = Duration::from_secs(45);
/// Delay after the first failed attempt, µs. It doubles with each attempt.
const RETRY_MIN_US: i64 = 1_000_000;
/// Maximum delay while a database does not answer, µs.
const UNAVAILABLE_MAX_US: i64 = 60_000_000;
/// Maximum delay after a database refused to drop a role, µs: an hour.
const RETRY_MAX_US: i64 = 3_600_000_000;
/// Number of failed attempts after which the alert is raised.
const ALERT_TRIES: i64 = 3;
/// Maximum characters of a stored error.
const ERROR_MAX: usize = 500;

/// Results of the attempts at one database.
#[derive(Default)]
struct Outcomes {
    done: Vec<LeaseRow>,
    retries: Vec<LeaseRetry>,
    /// Error that ended the attempts at this database, such as a connection error or a timeout.
    unavailable: Option<String>,
}

impl Credentials {
    /// Runs revocation rounds until `stop` is cancelled.
    pub(crate) async fn run_lease_upkeep(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("credential-leases");
        while !stop.is_cancelled() {
            let round = tokio::select! {
                () = stop.cancelled() => break,
                round = self.lease_round() => round,
            };
            if let Err(error) = round {
                tracing::warn!(%error, details = error.details(), "a round of lease revocations ended early");
                self.lease_upkeep().totals().broken += 1;
            }
            if let Some(databases) = self.databases() {
                databases.close_idle();
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.lease_upkeep().requested() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        // Another node takes over immediately.
        let _ = self.store().release(DUTY, self.node()).await;
    }

    /// Returns the totals of all rounds of this process.
    #[must_use]
    pub fn lease_report(&self) -> LeaseReport {
        *self.lease_upkeep().totals()
    }

    /// Runs one round: marks leases that are due, and drops their roles. Does nothing without due leases, while another node does this
    /// work, or in read-only mode.
    ///
    /// # Errors
    /// Errors of the store. A database that does not answer is counted and is not an error.
    #[crate::boxed]
    pub async fn lease_round(&self) -> Result<LeaseReport, CredentialError> {
        let mut report = LeaseReport::default();
        if self.is_read_only() || self.databases().is_none() {
            return Ok(report);
        }
        let rows = tables::Credentials::of(self.store());
        let ended = rows.ended_lease_identities(self.now_us()).await?;
        let due = rows.any_lease_due(self.now_us()).await?;
        if (due || !ended.is_empty()) && self.try_acquire_lease_duty().await? {
            let round = tokio::select! {
                // The future of a round is too large for the stack of its callers.
                round = self.revoke_due(&ended, &mut report).boxed() => round,
                () = self.renew_lease_duty() => Ok(()),
            };
            self.lease_upkeep().totals().add(&report);
            round?;
        } else if !due {
            self.lease_upkeep().totals().late_us = 0;
        }
        Ok(report)
    }

    async fn try_acquire_lease_duty(&self) -> Result<bool, CredentialError> {
        Ok(self.store().lease(DUTY, self.node(), self.now_us(), DUTY_US).await?)
    }

    /// Renews the cluster-wide lease; returns when another node holds the lease.
    async fn renew_lease_duty(&self) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match self.try_acquire_lease_duty().await {
                Ok(true) => {}
                Ok(false) => return tracing::warn!("another node has taken over the revocation of leases"),
                // The round itself sees the same error.
                Err(error) => tracing::warn!(%error, "the right to revoke leases could not be renewed"),
            }
        }
    }

    async fn revoke_due(&self, ended: &[Uuid], report: &mut LeaseReport) -> Result<(), CredentialError> {
        for identity in ended {
            self.end_identity(*identity).await?;
        }
        let now_us = self.now_us();
        let mark = self.store().write("credential_leases_end_due", move |tx| {
            async move { end_due_leases(tx, now_us).await }.boxed()
        });
        mark.await?;
        let connections = tables::Credentials::of(self.store()).connections_with_due_leases(now_us).await?;
        let work = connections.into_iter().map(|name| async move { self.revoke_due_at(&name).await });
        let mut rounds = futures_util::stream::iter(work).buffer_unordered(DATABASES_AT_ONCE);
        while let Some(round) = rounds.next().await {
            let round = round?;
            report.revoked += round.revoked;
            report.failed += round.failed;
            report.late_us = report.late_us.max(round.late_us);
        }
        Ok(())
    }

    /// Marks the leases of an identity that was deleted or disabled, or has expired.
    async fn end_identity(&self, identity: Uuid) -> Result<(), CredentialError> {
        let actor = Requester::actor(ACTOR);
        let event = self.event(&actor, "credential.lease_revoke", "", json!({ "identity": identity }));
        let end = self.store().write("credential_leases_end_identity", move |tx| {
            async move {
                let count = end_leases_of_identity(tx, identity, event.at_us).await?;
                if count > 0 {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(())
            }
            .boxed()
        });
        Ok(end.await?)
    }

    /// Drops the roles of due leases at one database, over one session.
    async fn revoke_due_at(&self, connection: &str) -> Result<LeaseReport, CredentialError> {
        let now_us = self.now_us();
        let rows = tables::Credentials::of(self.store());
        let due = rows.due_leases(connection, now_us, LEASES_PER_ROUND).await?;
        let Some(oldest) = due.iter().map(|lease| lease.expires_at_us.min(lease.next_at_us)).min() else {
            return Ok(LeaseReport::default());
        };
        let tries = due.iter().map(|lease| lease.tries).max().unwrap_or_default();
        let late_us = now_us.saturating_sub(oldest).max(0);
        let outcomes = self.end_roles(connection, due).await;
        let revoked = u64::try_from(outcomes.done.len()).unwrap_or_default();
        let failures = outcomes.retries.iter().filter(|retry| retry.error.is_some()).count();
        let mut report = LeaseReport { revoked, late_us, ..LeaseReport::default() };
        report.failed = u64::try_from(failures).unwrap_or_default();
        report.failed += self.record_lease_outcomes(connection, outcomes, (now_us, tries)).await?;
        Ok(report)
    }

    /// Drops the roles of these leases one after the other, until the database does not answer.
    async fn end_roles(&self, connection: &str, due: Vec<LeaseRow>) -> Outcomes {
        let mut outcomes = Outcomes::default();
        let session = async {
            let (row, password) = self.opened_connection(connection).await?;
            Ok::<_, CredentialError>(self.sessions()?.session(&target(&row, &password)).await?)
        };
        let session = match session.await {
            Ok(session) => session,
            Err(error) => {
                outcomes.unavailable = Some(error.details().unwrap_or_else(|| error.to_string()));
                return outcomes;
            }
        };
        for lease in due {
            let now_us = self.now_us();
            let ended = tokio::time::timeout(DROP_LIMIT, end_role(&session, &lease)).await;
            let ended = ended.unwrap_or_else(|_| {
                Err(RemoteError::Unavailable("the database did not answer in time".to_owned()))
            });
            match ended {
                // The creation may still run: its transaction could begin after this attempt.
                Ok(false) if now_us < lease.created_at_us.saturating_add(CONFIRM_US) => {
                    let next_at_us = lease.created_at_us.saturating_add(CONFIRM_US);
                    outcomes.retries.push(LeaseRetry { id: lease.id, next_at_us, error: None });
                }
                Ok(_) => outcomes.done.push(lease),
                Err(error @ RemoteError::Rejected { .. }) => {
                    let next_at_us = now_us.saturating_add(backoff_us(lease.tries, RETRY_MAX_US));
                    let error = Some(shortened(&error.to_string()));
                    outcomes.retries.push(LeaseRetry { id: lease.id, next_at_us, error });
                }
                Err(error) => {
                    outcomes.unavailable = Some(error.to_string());
                    return outcomes;
                }
            }
        }
        session.keep();
        outcomes
    }

    /// Records the results at one database. Returns the number of leases that were delayed because the database does not answer.
    async fn record_lease_outcomes(
        &self,
        connection: &str,
        outcomes: Outcomes,
        (now_us, tries): (i64, i64),
    ) -> Result<u64, CredentialError> {
        let Outcomes { done, retries, unavailable } = outcomes;
        for retry in retries.iter().filter(|retry| retry.error.is_some()) {
            tracing::warn!(connection, lease = %retry.id, error = retry.error, "a lease could not be revoked at its database");
        }
        if let Some(error) = &unavailable {
            tracing::warn!(connection, error, "leases cannot be revoked: the database does not answer");
        }
        let actor = Requester::actor(ACTOR);
        let events: Vec<(Uuid, store::AuditEvent)> = done
            .iter()
            .map(|lease| {
                let details = json!({ "lease": lease.id, "user": lease.username, "by": lease.ended_by, "of": lease.actor });
                (lease.id, self.event(&actor, "credential.lease_end", &lease.name, details))
            })
            .collect();
        let (connection, next_at_us) =
            (connection.to_owned(), self.now_us().saturating_add(backoff_us(tries, UNAVAILABLE_MAX_US)));
        let failing = unavailable.clone().or_else(|| retries.iter().find_map(|retry| retry.error.clone()));
        // Only this attempt raises the alert, because later attempts would repeat it.
        let failed = failing.filter(|_| tries + 1 == ALERT_TRIES);
        let may_recover = done.iter().any(|lease| lease.tries >= ALERT_TRIES);
        let settle = self.store().write("credential_leases_settle", move |tx| {
            async move {
                let deleted = delete_leases(tx, events.iter().map(|(id, _)| *id).collect()).await?;
                let deleted: BTreeSet<Uuid> = deleted.into_iter().collect();
                let events = events.into_iter().filter(|(id, _)| deleted.contains(id));
                store::audit(tx, events.map(|(_, event)| event).collect()).await?;
                retry_leases(tx, &retries).await?;
                let delayed = match unavailable {
                    Some(error) => {
                        delay_leases(tx, &connection, now_us, next_at_us, &shortened(&error)).await?
                    }
                    None => 0,
                };
                if failed.is_some() {
                    store::emit(tx, vec![revocation_event(&connection, now_us, failed)]).await?;
                } else if may_recover && !has_failed_leases(tx, &connection, ALERT_TRIES).await? {
                    store::emit(tx, vec![revocation_event(&connection, now_us, None)]).await?;
                }
                Ok(delayed)
            }
            .boxed()
        });
        Ok(settle.await?)
    }

    /// Drops the role of one marked lease now. Returns whether the lease has ended.
    pub(super) async fn revoke_marked(&self, lease: &LeaseRow) -> Result<bool, CredentialError> {
        if self.is_read_only() {
            return Ok(false);
        }
        let now_us = self.now_us();
        let outcomes = self.end_roles(&lease.connection, vec![lease.clone()]).await;
        if let Some(error) = outcomes.unavailable {
            return Err(CredentialError::Remote(error));
        }
        let ended = !outcomes.done.is_empty();
        self.record_lease_outcomes(&lease.connection, outcomes, (now_us, lease.tries)).await?;
        Ok(ended)
    }
}

/// Returns the event that raises the alert about a connection's leases. Without an error, returns the event that resolves this
/// alert.
fn revocation_event(connection: &str, at_us: i64, error: Option<String>) -> NewEvent {
    let failed = error.is_some();
    let body =
        CredentialLeaseRevocation { name: connection.to_owned(), error: error.map(|text| shortened(&text)) };
    let event = match failed {
        true => Event::CredentialLeaseRevocationFailed(body),
        false => Event::CredentialLeaseRevocationRecovered(body),
    };
    store::new_event(at_us, format!("credential_connection/{connection}"), &event)
}

/// Returns the delay after a failed attempt, without jitter: one node at a time retries.
fn backoff_us(tries: i64, max: i64) -> i64 {
    let doubled = u32::try_from(tries.clamp(0, 32)).unwrap_or_default();
    RETRY_MIN_US.saturating_mul(1_i64 << doubled).min(max)
}

fn shortened(text: &str) -> String {
    text.chars().take(ERROR_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_repeated_after_a_second_and_then_twice_as_late() {
        let seconds = |tries| backoff_us(tries, UNAVAILABLE_MAX_US) / 1_000_000;
        assert_eq!([0, 1, 2, 5, 6, 90].map(seconds), [1, 2, 4, 32, 60, 60]);
        assert_eq!(backoff_us(i64::MAX, RETRY_MAX_US), RETRY_MAX_US);
    }
}
