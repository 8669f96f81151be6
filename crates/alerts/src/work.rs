//! Results of a batch of events or expiring certificates: alerts raised and resolved, messages and schedules. Stored in one
//! transaction.

use std::collections::HashMap;

use serde_json::json;
use store::states::DeliveryState;
use store::{OutboxPosition, OutboxRow, StoreError, Tx, read_event};
use uuid::Uuid;
use x509::Severity;

use crate::event::{AlertEffect, event_effects};
use crate::message::{MessageReason, rfc3339};
use crate::rule::{Attributes, Routing, Rule, Silence, route, silence};
use crate::tables as rows;
use crate::tables::{AlertScheduleRow, NewAlert, NewAlertDelivery, Raised};
use crate::threshold::{Settings, due};

/// Name of the outbox consumer and of its lease.
pub(crate) const CONSUMER: &str = "alerts";

/// Rules, silences, settings and channels as loaded for one round.
pub(super) struct Plan {
    pub(super) rules: Vec<(Uuid, Rule)>,
    pub(super) silences: Vec<(Uuid, Silence)>,
    pub(super) settings: Settings,
    pub(super) channels: HashMap<String, Uuid>,
}

/// The changes of one round, stored in one transaction.
#[derive(Default)]
pub(super) struct AlertChanges {
    pub(super) raise: Vec<(NewAlert, Routing)>,
    resolve: Vec<(String, String)>,
    watch: Vec<AlertScheduleRow>,
    forget: Vec<String>,
}

impl AlertChanges {
    /// Computes the changes of a batch of events. Of several events about a subject, the last one wins.
    pub(super) fn of(plan: &Plan, events: &[OutboxRow], now_us: i64) -> Self {
        let mut work = Self::default();
        for row in events {
            for effect in read_event(row).iter().flat_map(|event| event_effects(&row.subject, event)) {
                work.add(plan, effect, row.at_us, now_us);
            }
        }
        work
    }

    fn add(&mut self, plan: &Plan, effect: AlertEffect, at_us: i64, now_us: i64) {
        match effect {
            AlertEffect::Raise { kind, subject, severity, title, attributes } => {
                let dedup = format!("{kind}/{subject}");
                self.raise.push(plan.alert(
                    dedup,
                    kind,
                    subject,
                    severity,
                    title,
                    &attributes,
                    at_us,
                    now_us,
                ));
            }
            AlertEffect::Resolve { subject, kinds } => {
                // The event also resolves an alert of the same batch.
                self.raise
                    .retain(|(alert, _)| alert.subject != subject || !kinds.contains(&alert.kind.as_str()));
                self.resolve.extend(kinds.iter().map(|kind| (subject.clone(), (*kind).to_owned())));
            }
            AlertEffect::Watch { subject, not_before_us, not_after_us, attributes } => {
                self.forget.retain(|forgotten| *forgotten != subject);
                self.watch.push(AlertScheduleRow {
                    subject,
                    // A certificate that is issued close to its expiry raises an alert immediately.
                    next_at_us: due(&plan.settings, not_before_us, not_after_us, not_before_us).next_at_us,
                    not_before_us,
                    not_after_us,
                    attributes: json!(attributes).to_string(),
                });
            }
            AlertEffect::Forget { subject } => {
                self.watch.retain(|row| row.subject != subject);
                self.forget.push(subject);
            }
        }
    }

    /// Computes the changes for certificates that reached a threshold.
    pub(super) fn for_reached_thresholds(plan: &Plan, reached: Vec<AlertScheduleRow>, now_us: i64) -> Self {
        let mut work = Self::default();
        for mut row in reached {
            let status = due(&plan.settings, row.not_before_us, row.not_after_us, now_us);
            if let Some((position, severity)) = status.reached {
                let mut of: Attributes = serde_json::from_str(&row.attributes).unwrap_or_default();
                of.not_after = Some(rfc3339(row.not_after_us));
                let title = expiry_title(&row, &of, now_us);
                let dedup = format!("certificate.expiring/{}/{position}", row.subject);
                let (kind, subject) = ("certificate.expiring", row.subject.clone());
                work.raise.push(plan.alert(dedup, kind, subject, severity, title, &of, now_us, now_us));
            }
            row.next_at_us = status.next_at_us;
            work.watch.push(row);
        }
        work
    }

    pub(super) async fn store(
        self,
        tx: &mut Tx,
        plan: &Plan,
        position: Option<OutboxPosition>,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let mut deliveries = Vec::new();
        let waiting = |row, channel, reason| delivery(row, channel, reason, DeliveryState::Waiting, now_us);
        for row in rows::resolve_alerts(tx, distinct(self.resolve), now_us).await? {
            let notified = rows::notified_channels(tx, row).await?;
            let resolved = notified.into_iter().map(|channel| waiting(row, channel, MessageReason::Resolved));
            deliveries.extend(resolved);
        }
        let (alerts, routings): (Vec<NewAlert>, Vec<Routing>) = self.raise.into_iter().unzip();
        let quiet: HashMap<String, bool> =
            alerts.iter().map(|alert| (alert.dedup.clone(), alert.silenced_by.is_some())).collect();
        let by_key: HashMap<String, Routing> =
            alerts.iter().map(|alert| alert.dedup.clone()).zip(routings).collect();
        for Raised { row, dedup, new } in rows::raise_alerts(tx, alerts).await? {
            let Some(routing) = by_key.get(&dedup).filter(|_| new && !quiet[&dedup]) else { continue };
            let raised = MessageReason::Raised;
            let for_digest = |channel| delivery(row, channel, raised, DeliveryState::Held, now_us);
            deliveries.extend(plan.to(&routing.now).map(|channel| waiting(row, channel, raised)));
            deliveries.extend(plan.to(&routing.digest).map(for_digest));
        }
        rows::insert_alert_deliveries(tx, deliveries).await?;
        rows::schedule_alerts(tx, self.watch).await?;
        rows::unschedule_alerts(tx, self.forget).await?;
        match position {
            Some(position) => store::outbox_advance(tx, CONSUMER, position).await,
            None => Ok(()),
        }
    }
}

impl Plan {
    /// Returns the ids of the named channels. Skips unknown names: a channel may be deleted after a rule that names it was stored.
    pub(super) fn to<'p>(&'p self, names: &'p [String]) -> impl Iterator<Item = Uuid> + 'p {
        names.iter().filter_map(|name| self.channels.get(name).copied())
    }

    #[allow(clippy::too_many_arguments, reason = "the columns of one row")]
    fn alert(
        &self,
        dedup: String,
        kind: &'static str,
        subject: String,
        severity: Severity,
        title: String,
        of: &Attributes,
        at_us: i64,
        now_us: i64,
    ) -> (NewAlert, Routing) {
        let routing = route(&self.rules, kind, &subject, severity, of);
        let escalate = routing.escalate_after.map(|after| now_us + i64::from(after) * 1_000_000);
        let silenced_by = silence(&self.silences, kind, &subject, severity, of, now_us);
        let alert = NewAlert {
            dedup,
            kind: kind.to_owned(),
            severity,
            title,
            attributes: json!(of).to_string(),
            escalate_at_us: escalate.filter(|_| silenced_by.is_none()),
            silenced_by,
            at_us,
            subject,
        };
        (alert, routing)
    }
}

fn expiry_title(row: &AlertScheduleRow, of: &Attributes, now_us: i64) -> String {
    let name = of.name.as_deref().unwrap_or(&row.subject);
    let left = row.not_after_us - now_us;
    if left <= 0 {
        return format!("{name} has expired");
    }
    let hours = left / 3_600_000_000;
    match hours {
        0 => format!("{name} expires within the hour"),
        1..48 => format!("{name} expires in {hours} h"),
        _ => format!("{name} expires in {} days", hours / 24),
    }
}

fn distinct(mut all: Vec<(String, String)>) -> Vec<(String, String)> {
    all.sort();
    all.dedup();
    all
}

pub(super) fn delivery(
    alert: i64,
    channel: Uuid,
    reason: MessageReason,
    state: DeliveryState,
    at_us: i64,
) -> NewAlertDelivery {
    NewAlertDelivery { alert, channel, reason, state, at_us }
}
