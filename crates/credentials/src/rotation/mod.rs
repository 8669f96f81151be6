//! Values made again by policy.
//!
//! One node at a time, under a lease, follows the events of writes and plans from them when each name is due; makes what is
//! due again by the parameters that it was made by; and tells hooks. A value that was made and not noted is not made again:
//! every write expects the version that it was planned for. What holds a name to its policy is a row, so that being due is
//! a range of an index and writers pay nothing.

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
pub use hook::ShownHook;
pub(crate) use plan::over;
pub(crate) use policy::unpaged;
pub use policy::{
    BEFORE_EXPIRY_PERCENT, OVERLAP_MIN_S, OVERLAP_S, ROTATE_EVERY_MIN_S, ROTATE_PERIOD_MAX_S, RotationPolicy,
};
pub use report::RotationReport;
pub use sender::{HOOK_LIMIT, Hook, HookSender};

/// The lease, and the name under which events are followed.
const DUTY: &str = "credential-rotation";
/// How long a node keeps the duty without a word. A round that was silent for longer may meet another node's: both expect
/// the versions they were planned for.
const LEASE_US: i64 = 60_000_000;
/// While a round takes longer, the duty is renewed so often: three times before it ends.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Interval between rounds.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Events read at a time.
const EVENTS: i64 = 1_000;
/// Names planned at a time where a policy changed.
const NAMES: usize = 500;

impl Credentials {
    /// Rounds, until `stop`.
    pub(crate) async fn rotate(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("credential-rotation");
        while !stop.is_cancelled() {
            let round = tokio::select! {
                () = stop.cancelled() => break,
                round = self.rotation_round() => round,
            };
            if let Err(error) = round {
                tracing::warn!(%error, details = error.details(), "a round of rotation ended early");
                self.rotation_totals().lock().broken += 1;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.rotation_asked().notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        // Another takes over at once.
        let _ = self.store().release(DUTY, self.node()).await;
    }

    /// What all rounds of this process have done.
    #[must_use]
    pub fn rotation_report(&self) -> RotationReport {
        *self.rotation_totals().lock()
    }

    /// One round: events, policies that changed, what is due, hooks. Nothing while another node has the duty, or while
    /// nothing is to be changed.
    ///
    /// # Errors
    /// Those of the database; a value that cannot be made is counted, not an error.
    #[crate::boxed]
    pub async fn rotation_round(&self) -> Result<RotationReport, CredentialError> {
        let mut report = RotationReport::default();
        if self.is_read_only() || !self.has_duty().await? {
            return Ok(report);
        }
        let ended = tokio::select! {
            // All that a round may do is one large future: too large for the stacks of those who wait for it.
            ended = self.round_of_duty(&mut report).boxed() => ended,
            () = self.duty_lost() => Ok(()),
        };
        // What was done before an error was done.
        self.rotation_totals().lock().add(&report);
        ended.map(|()| report)
    }

    async fn round_of_duty(&self, report: &mut RotationReport) -> Result<(), CredentialError> {
        let silent = hook::Silent::default();
        self.follow_events().await?;
        self.plan_policies().await?;
        self.rotate_due(&silent, report).await?;
        self.follow_events().await?;
        self.call_hooks(&silent, report).await
    }

    /// Renews the duty; returns when another node has it.
    async fn duty_lost(&self) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match self.has_duty().await {
                Ok(true) => {}
                Ok(false) => return tracing::warn!("another node has taken over the duty of rotating"),
                // The round meets the same database.
                Err(error) => tracing::warn!(%error, "the duty of rotating could not be renewed"),
            }
        }
    }

    async fn has_duty(&self) -> Result<bool, CredentialError> {
        Ok(self.store().lease(DUTY, self.node(), self.now_us(), LEASE_US).await?)
    }

    /// Plans rotations for written values, and queues hook notifications for rotated ones.
    async fn follow_events(&self) -> Result<(), CredentialError> {
        for _ in 0..PAGES {
            let place = self.store().outbox_place(DUTY).await?;
            let events = self.store().outbox_after(place, EVENTS).await?;
            let Some(last) = events.last().map(|event| event.place) else { return Ok(()) };
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

    /// What hooks are to be told of versions that were rotated.
    async fn calls_for(&self, events: &[(i64, Event)]) -> Result<Vec<HookCall>, CredentialError> {
        let rotated: Vec<(String, HookCall)> =
            events.iter().filter_map(|(at_us, event)| rotated(*at_us, event)).collect();
        if rotated.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> = rotated.iter().map(|(name, _)| name.clone()).collect();
        let hooks = tables::Credentials::of(self.store()).hooks().await?;
        let told = |hook: &str| hooks.iter().any(|known| known.name == hook && known.after);
        let of = tables::Credentials::of(self.store()).rotation_hooks_of(&names).await?;
        let of: std::collections::HashMap<String, String> =
            of.into_iter().filter(|(_, hook)| told(hook)).collect();
        let call = |(name, call): (String, HookCall)| Some(HookCall { hook: of.get(&name)?.clone(), ..call });
        Ok(rotated.into_iter().filter_map(call).collect())
    }

    /// Plans the names of policies that changed, some pages a round.
    async fn plan_policies(&self) -> Result<(), CredentialError> {
        for _ in 0..PAGES {
            let Some(policy) = tables::Credentials::of(self.store()).rotation_policy_planning().await? else {
                return Ok(());
            };
            let now_us = self.now_us();
            let plan = self.store().write("credential_rotation_plan", move |tx| {
                async move {
                    let healed = plan_rotation_policy(tx, &policy, KINDS, NAMES).await?;
                    store::emit(tx, over(&healed, now_us)).await
                }
                .boxed()
            });
            plan.await?;
        }
        Ok(())
    }
}

/// The name (lower case) that a write was about.
fn name_of(event: &Event) -> Option<String> {
    match event {
        Event::CredentialChanged(change) | Event::CredentialDeleted(change) => {
            Some(change.name.to_ascii_lowercase())
        }
        _ => None,
    }
}

/// A version that was rotated: its name in lower case, and the call that tells of it.
fn rotated(at_us: i64, event: &Event) -> Option<(String, HookCall)> {
    let Event::CredentialChanged(change) = event else { return None };
    if change.by != ROTATOR {
        return None;
    }
    let kind = change.kind.as_ref()?.parse();
    let kind = kind.inspect_err(|error| tracing::error!(%error, name = change.name, "no hook is told"));
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
