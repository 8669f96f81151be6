//! Rotation of values by policy.
//!
//! One node at a time holds the lease. This node reads write events and plans when each name is due. It regenerates due values with
//! the parameters they were generated with, and notifies hooks. Every write expects the version that it was planned for, so that an
//! unrecorded rotation is not repeated. Each name with a policy has a row with its due time, so due names are found by index.
//! Writers have no extra cost.

mod error;
mod hook;
mod pace;
mod plan;
mod policy;
mod report;
mod rotate;
mod sender;
mod step;

use std::collections::BTreeSet;
use std::time::Duration;

use events::Event;
use futures_util::FutureExt;
use store::read_event;
use tokio_util::sync::CancellationToken;

use self::pace::PAGES;
use self::plan::{KINDS, ROTATOR, plan};
use crate::tables;
use crate::tables::{HookCall, PlannedNames, insert_hook_calls, plan_rotation_policy};
use crate::{CredentialError, Credentials};

pub use crate::tables::{PlannedRotation, RotationPolicyRow};
pub use hook::HookInfo;
pub(crate) use plan::resolution_events;
pub(crate) use policy::map_cursor_error;
pub use policy::{
    BEFORE_EXPIRY_PERCENT, OVERLAP_MIN_S, OVERLAP_S, ROTATE_EVERY_MIN_S, ROTATE_PERIOD_MAX_S, RotationPolicy,
};
pub use report::RotationReport;
pub use sender::{HOOK_LIMIT, Hook, HookSender};

/// Name of the lease, and of the cursor over the events.
const DUTY: &str = "credential-rotation";
/// Duration of the lease without a renewal, µs. If a round runs longer without a renewal, a round of another node may overlap.
/// This is safe, because each write expects the version that it was planned for.
const LEASE_US: i64 = 60_000_000;
/// Interval of lease renewals during a round: the lease lasts for four intervals.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Interval between rounds.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum events in one read.
const EVENTS: i64 = 1_000;
/// Maximum names that are planned at a time after a policy change.
const NAMES: usize = 500;

impl Credentials {
    /// Runs rotation rounds until `stop` is cancelled.
    pub(crate) async fn rotate(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("credential-rotation");
        while !stop.is_cancelled() {
            let round = tokio::select! {
                () = stop.cancelled() => break,
                round = self.rotation_round() => round,
            };
            if let Err(error) = round {
                tracing::warn!(%error, details = error.details(), "a rotation round ended early");
                self.rotation_totals().lock().broken += 1;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.rotation_requested().notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
        // Another node takes over immediately.
        let _ = self.store().release(DUTY, self.node()).await;
    }

    /// Returns the totals of all rounds of this process.
    #[must_use]
    pub fn rotation_report(&self) -> RotationReport {
        *self.rotation_totals().lock()
    }

    /// Runs one round: follows events, replans changed policies, rotates due values and calls hooks. Does nothing while another
    /// node holds the lease, or in read-only mode.
    ///
    /// # Errors
    /// Errors of the database. A value that cannot be generated is counted and is not an error.
    #[crate::boxed]
    pub async fn rotation_round(&self) -> Result<RotationReport, CredentialError> {
        let mut report = RotationReport::default();
        if self.is_read_only() || !self.try_acquire_lease().await? {
            return Ok(report);
        }
        let ended = tokio::select! {
            // The future of a round is too large for the stack of its callers.
            ended = self.run_leased_round(&mut report).boxed() => ended,
            () = self.wait_until_lease_lost() => Ok(()),
        };
        // Work done before an error counts too.
        self.rotation_totals().lock().add(&report);
        ended.map(|()| report)
    }

    async fn run_leased_round(&self, report: &mut RotationReport) -> Result<(), CredentialError> {
        let timed_out = hook::TimedOutHooks::default();
        self.follow_events().await?;
        self.plan_policies().await?;
        self.rotate_due(&timed_out, report).await?;
        self.follow_events().await?;
        self.call_hooks(&timed_out, report).await
    }

    /// Renews the lease; returns when another node holds it.
    async fn wait_until_lease_lost(&self) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match self.try_acquire_lease().await {
                Ok(true) => {}
                Ok(false) => return tracing::warn!("another node has taken over the rotation lease"),
                // The round itself sees the same database error.
                Err(error) => tracing::warn!(%error, "the rotation lease could not be renewed"),
            }
        }
    }

    async fn try_acquire_lease(&self) -> Result<bool, CredentialError> {
        Ok(self.store().lease(DUTY, self.node(), self.now_us(), LEASE_US).await?)
    }

    /// Plans rotations for written values, and queues hook notifications for rotated values.
    async fn follow_events(&self) -> Result<(), CredentialError> {
        for _ in 0..PAGES {
            let position = self.store().outbox_position(DUTY).await?;
            let events = self.store().outbox_after(position, EVENTS).await?;
            let Some(last) = events.last().map(|event| event.position) else { return Ok(()) };
            let read: Vec<(i64, Event)> =
                events.iter().filter_map(|row| Some((row.at_us, read_event(row)?))).collect();
            let names: BTreeSet<String> = read.iter().filter_map(|(_, event)| name_of(event)).collect();
            let names: Vec<String> = names.into_iter().collect();
            let calls = self.calls_for(&read).await?;
            let now_us = self.now_us();
            let full = i64::try_from(events.len()).unwrap_or(EVENTS) == EVENTS;
            let follow = self.store().write("credential_rotation_events", move |tx| {
                async move {
                    plan(tx, &names, PlannedNames::Changed, now_us).await?;
                    insert_hook_calls(tx, &calls).await?;
                    store::outbox_advance(tx, DUTY, last).await
                }
                .boxed()
            });
            follow.await?;
            if !full {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the pending hook notifications for rotated versions.
    async fn calls_for(&self, events: &[(i64, Event)]) -> Result<Vec<HookCall>, CredentialError> {
        let rotated: Vec<(String, HookCall)> =
            events.iter().filter_map(|(at_us, event)| rotated(*at_us, event)).collect();
        if rotated.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = rotated.iter().map(|(name, _)| name.clone()).collect();
        let hooks = tables::Credentials::of(self.store()).hooks().await?;
        let is_notified = |hook: &str| hooks.iter().any(|known| known.name == hook && known.after);
        let of = tables::Credentials::of(self.store()).rotation_hooks_of(&names).await?;
        let of: std::collections::HashMap<String, String> =
            of.into_iter().filter(|(_, hook)| is_notified(hook)).collect();
        let call = |(name, call): (String, HookCall)| Some(HookCall { hook: of.get(&name)?.clone(), ..call });
        Ok(rotated.into_iter().filter_map(call).collect())
    }

    /// Replans the names of changed policies, some pages in each round.
    async fn plan_policies(&self) -> Result<(), CredentialError> {
        for _ in 0..PAGES {
            let Some(policy) = tables::Credentials::of(self.store()).policy_being_planned().await? else {
                return Ok(());
            };
            let now_us = self.now_us();
            let plan = self.store().write("credential_rotation_plan", move |tx| {
                async move {
                    let recovered = plan_rotation_policy(tx, &policy, KINDS, NAMES).await?;
                    store::emit(tx, resolution_events(&recovered, now_us)).await
                }
                .boxed()
            });
            plan.await?;
        }
        Ok(())
    }
}

/// Returns the name (lower case) that a write event concerns.
fn name_of(event: &Event) -> Option<String> {
    match event {
        Event::CredentialChanged(change) | Event::CredentialDeleted(change) => {
            Some(change.name.to_ascii_lowercase())
        }
        _ => None,
    }
}

/// Returns the name (lower case) of a rotated version and its hook notification.
fn rotated(at_us: i64, event: &Event) -> Option<(String, HookCall)> {
    let Event::CredentialChanged(change) = event else { return None };
    if change.by != ROTATOR {
        return None;
    }
    let kind = change.kind.as_ref()?.parse();
    let kind = kind.inspect_err(|error| {
        tracing::error!(%error, name = change.name, "the hook is not notified: unknown \
     credential type")
    });
    let call = HookCall {
        id: 0,
        hook: String::new(),
        name: change.name.clone(),
        kind: kind.ok()?,
        version: change.version?,
        at_us,
        tries: 0,
    };
    Some((change.name.to_ascii_lowercase(), call))
}
