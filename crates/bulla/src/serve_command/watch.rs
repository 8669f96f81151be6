//! Periodic checks that no other component does: offline agents, failing issuers, the audit log, old data.

use std::collections::HashMap;
use std::time::Duration;

use agent::{AgentQuery, Agents};
use alerts::Alerts;
use audit::{AuditError, AuditLog};
use events::{AgentContact, AuditBroken, Event, IssuerCondition};
use issuers::Issuers;
use store::{Clock, DAY_US, NewEvent, Store, StoreError, new_event};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Interval of checks of agents and issuers.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Number of checks between two verifications of the audit log, which are six hours apart.
const VERIFY_EVERY: u64 = 720;
/// Number of checks between two clean-ups, which are one hour apart.
const TRIM_EVERY: u64 = 120;
/// Duration of the lease that lets one process run the checks, in µs: three check intervals.
const LEASE_US: i64 = 90_000_000;
/// Days for which events are stored for consumers that lag behind.
pub(super) const EVENTS_KEPT_DAYS: u64 = 7;
/// [`EVENTS_KEPT_DAYS`] in µs.
const EVENTS_KEPT_US: i64 = EVENTS_KEPT_DAYS as i64 * DAY_US;
/// Maximum number of rows in one read from the database.
const PAGE: usize = 1_000;

/// A detector of changes, which writes events to the outbox. Alerts are derived from these events.
pub(super) struct ChangeDetector {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) agents: Agents,
    pub(super) issuers: Issuers,
    pub(super) alerts: Alerts,
    pub(super) audit: AuditLog,
}

type CheckError = Box<dyn std::error::Error + Send + Sync>;

/// Whether each subject had a problem at the last check. The first check after this process gets the lease reports every subject:
/// an alert that is already open is not duplicated, and an alert whose problem has ended is resolved.
#[derive(Default)]
struct SubjectStates {
    wrong: HashMap<String, bool>,
    /// Time at which this process last held the lease, in microseconds since 1970; `None` if it has not held the lease since the
    /// states were last deleted.
    leased_at_us: Option<i64>,
}

impl SubjectStates {
    /// Runs one check if this process holds the lease. Deletes the states if the check fails, if the lease is unknown, or if
    /// another process may have held the lease. The next check then reports every subject.
    async fn round<Check>(&mut self, lease: Result<bool, StoreError>, now_us: i64, check: Check)
    where
        Check: AsyncFnOnce(&mut Self) -> Result<(), CheckError>,
    {
        match lease {
            Ok(true) => {
                if self.leased_at_us.is_some_and(|last| now_us.saturating_sub(last) > LEASE_US) {
                    *self = Self::default();
                }
                self.leased_at_us = Some(now_us);
                if let Err(error) = check(self).await {
                    tracing::warn!(%error, "cannot check the agents and issuers");
                    *self = Self::default();
                }
            }
            // Another process holds the lease. This process does not know what that process reports.
            Ok(false) => *self = Self::default(),
            Err(error) => {
                tracing::warn!(%error, "no lease: the database is unreachable");
                *self = Self::default();
            }
        }
    }

    /// Stores whether the subject has a problem. Returns whether to report the subject: its state changed, or this is its first
    /// check.
    fn should_report(&mut self, subject: &str, wrong: bool) -> bool {
        self.wrong.insert(subject.to_owned(), wrong) != Some(wrong)
    }
}

impl ChangeDetector {
    /// Checks until `stop`. Only one process of a cluster checks at a time.
    pub(super) async fn run(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("watch");
        let (node, mut states, mut rounds) = (Uuid::new_v4(), SubjectStates::default(), 0_u64);
        loop {
            let now_us = self.clock.now_us();
            let lease = self.store.lease("watch", node, now_us, LEASE_US).await;
            let round = rounds;
            rounds += u64::from(matches!(lease, Ok(true)));
            states.round(lease, now_us, async |states| self.check(states, round).await).await;
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
        // Release the lease, so that another process takes over immediately.
        let _ = self.store.release("watch", node).await;
    }

    async fn check(&self, states: &mut SubjectStates, rounds: u64) -> Result<(), CheckError> {
        let mut events = self.agents(states).await?;
        events.extend(self.issuers(states).await?);
        if rounds % VERIFY_EVERY == 1 {
            events.extend(self.audit().await?);
        }
        if rounds % TRIM_EVERY == 2 {
            self.trim().await?;
        }
        if !events.is_empty() {
            self.store
                .write("watch", move |tx| Box::pin(async move { store::emit(tx, events).await }))
                .await?;
        }
        Ok(())
    }

    async fn agents(&self, states: &mut SubjectStates) -> Result<Vec<NewEvent>, CheckError> {
        let (mut events, mut after) = (Vec::new(), None);
        loop {
            let page = self.agents.list(&AgentQuery::default(), after.as_ref(), PAGE).await?;
            for agent in &page.rows {
                let subject = format!("agent/{}", agent.id);
                let contact = AgentContact { name: agent.name.clone() };
                let silent = !self.agents.is_online(agent);
                let event = if silent { Event::AgentOffline(contact) } else { Event::AgentOnline(contact) };
                events.extend(self.changed(states, subject, silent, &event));
            }
            after = page.next;
            if after.is_none() {
                return Ok(events);
            }
        }
    }

    async fn issuers(&self, states: &mut SubjectStates) -> Result<Vec<NewEvent>, StoreError> {
        let (mut events, mut after) = (Vec::new(), None);
        loop {
            let page = self.issuers.page(after.as_ref(), PAGE).await?;
            for issuer in page.rows.iter().filter(|issuer| issuer.row.enabled) {
                let health = &issuer.row.health;
                let ill = health.last_error_at_us > health.last_success_at_us;
                let subject = format!("issuer/{}", issuer.row.id);
                let (name, detail) = (issuer.row.name.clone(), health.last_error.clone());
                let condition = IssuerCondition { name, detail };
                let unhealthy = ill && health.breaker.rests();
                let event = if unhealthy {
                    Event::IssuerUnhealthy(condition)
                } else {
                    Event::IssuerHealthy(condition)
                };
                events.extend(self.changed(states, subject, unhealthy, &event));
            }
            after = page.next;
            if after.is_none() {
                return Ok(events);
            }
        }
    }

    /// Returns the event for the subject if [`SubjectStates::should_report`] returns true.
    fn changed(
        &self,
        states: &mut SubjectStates,
        subject: String,
        wrong: bool,
        event: &Event,
    ) -> Option<NewEvent> {
        states.should_report(&subject, wrong).then(|| new_event(self.clock.now_us(), subject, event))
    }

    async fn audit(&self) -> Result<Option<NewEvent>, AuditError> {
        let verified = self.audit.verify().await?.chains;
        if verified.faults.is_empty() {
            return Ok(None);
        }
        tracing::error!(faults = ?verified.faults, "the audit log was altered");
        let broken = Event::AuditBroken(AuditBroken { detail: verified.faults.join("; ") });
        Ok(Some(new_event(self.clock.now_us(), "audit/log".to_owned(), &broken)))
    }

    async fn trim(&self) -> Result<(), CheckError> {
        let now_us = self.clock.now_us();
        self.store.outbox_trim(now_us - EVENTS_KEPT_US).await?;
        let keep_days = i64::from(self.alerts.settings().await?.keep_days);
        alerts::tables::Alerts::of(&self.store).trim(now_us - keep_days * DAY_US).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_state_and_each_change_are_reported() {
        let mut states = SubjectStates::default();
        for (subject, wrong, news) in [
            ("agent/a", false, true),
            ("agent/a", false, false),
            ("agent/a", true, true),
            ("agent/a", true, false),
            ("agent/b", true, true),
            ("agent/a", false, true),
        ] {
            assert_eq!(states.should_report(subject, wrong), news, "{subject} {wrong}");
        }
    }

    #[tokio::test]
    async fn a_state_is_reported_again_whenever_its_report_may_be_lost() {
        /// Runs one round of checks. Returns whether an offline agent was reported.
        async fn round(
            states: &mut SubjectStates,
            lease: Result<bool, StoreError>,
            now_us: i64,
            written: bool,
        ) -> bool {
            let mut reported = false;
            let check = async |states: &mut SubjectStates| {
                reported = states.should_report("agent/a", true);
                if written { Ok(()) } else { Err("the events cannot be written".into()) }
            };
            states.round(lease, now_us, check).await;
            reported
        }
        let mut states = SubjectStates::default();
        assert!(round(&mut states, Ok(true), 0, true).await);
        assert!(!round(&mut states, Ok(true), LEASE_US, true).await, "the lease was renewed in time");
        assert!(
            round(&mut states, Ok(true), 2 * LEASE_US + 1, true).await,
            "another process could have held it"
        );
        assert!(!round(&mut states, Err(StoreError::Corrupt(String::new())), 2 * LEASE_US + 2, true).await);
        assert!(
            round(&mut states, Ok(true), 2 * LEASE_US + 3, true).await,
            "the lease was unknown in between"
        );
        assert!(!round(&mut states, Ok(false), 2 * LEASE_US + 4, true).await);
        assert!(round(&mut states, Ok(true), 2 * LEASE_US + 5, true).await, "another process held it");
        assert!(!round(&mut states, Ok(true), 2 * LEASE_US + 6, false).await);
        assert!(round(&mut states, Ok(true), 2 * LEASE_US + 7, false).await, "a check failed");
        assert!(round(&mut states, Ok(true), 2 * LEASE_US + 8, true).await, "its report was lost");
        assert!(!round(&mut states, Ok(true), 2 * LEASE_US + 9, true).await);
    }
}
