//! The alert engine: turns events into alerts and alerts into messages, and sends them.
//!
//! Every round needs a constant number of statements plus the due work. In a cluster, one node at a time turns events into alerts
//! (a lease). Every node sends messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use authority::keystore::KeyStore;
use futures_util::{FutureExt, StreamExt};
use keys::Context;
use parking_lot::Mutex;
use serde_json::{Value, json};
use shared::Shared;
use store::states::DeliveryState;
use store::{AuditEvent, Clock, Store, StoreError, Tx, audit};
use telemetry::spans::{Kind, Span, TraceParent, part, within};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::Fingerprint;

use crate::channel::{ChannelConfig, ChannelError, Channels};
use crate::digest::{digests, last_digest_at};
use crate::message::{Message, MessageReason};
use crate::rule::{Attributes, Rule, Silence, escalation_channels};
use crate::tables;
use crate::tables as rows;
use crate::tables::{AlertChannelRow, AlertDeliveryOutcome, AlertDeliveryRow, AlertDocument, AlertRow};
use crate::threshold::Settings;
use crate::work::{AlertChanges, CONSUMER, Plan, delivery};

/// Maximum number of events, thresholds and escalations per batch.
const BATCH: i64 = 1_000;

/// Maximum number of messages claimed at a time.
const CLAIM: i64 = 128;

/// Maximum number of messages that one process sends concurrently.
const SENDING_MAX: usize = 16;

/// Duration of a claim in µs: longer than the longest attempt.
const CLAIM_US: i64 = 120_000_000;

/// Duration of the lease in µs. A crashed node delays alerts by at most this time.
const LEASE_US: i64 = 30_000_000;

/// Maximum number of attempts for a message. With the waits below they take about half a day.
const TRIES_MAX: i64 = 12;

/// The first wait between attempts in µs. It doubles each time, up to [`WAIT_MAX_US`].
const WAIT_US: i64 = 30_000_000;

/// The longest wait between attempts in µs.
const WAIT_MAX_US: i64 = 4 * 3_600_000_000;

/// Pause between rounds when no work is due.
const PAUSE: Duration = Duration::from_secs(2);

const KIND_RULE: &str = "rule";
const KIND_SILENCE: &str = "silence";
const KIND_SETTINGS: &str = "settings";

/// Options of the alert engine: the server's external URL.
#[derive(Clone, Debug, Default)]
pub struct AlertOptions {
    /// External URL of the server, for links in messages.
    pub server_url: Option<String>,
}

/// Reason why an operation on alerts failed.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The channel's configuration is invalid, or the channel failed.
    #[error("the channel cannot be used: {0}")]
    Channel(#[from] ChannelError),
    /// The object does not exist.
    #[error("there is no {0}")]
    Unknown(String),
    /// The rule, the silence or the settings are invalid.
    #[error("{0}")]
    Invalid(String),
    /// The sealed configuration cannot be decrypted.
    #[error(
        "the configuration of channel {0} cannot be decrypted: check the master key, or set the configuration again"
    )]
    Sealed(String),
}

/// Numbers of events, alerts and messages in one round of the alert engine.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AlertReport {
    /// Number of events read.
    pub events: u64,
    /// Number of alerts raised or repeated.
    pub raised: u64,
    /// Number of alerts escalated.
    pub escalated: u64,
    /// Number of messages that their channels accepted.
    pub sent: u64,
    /// Number of failed attempts to send a message.
    pub failed: u64,
    /// Number of messages whose last attempt failed.
    pub dead: u64,
}

impl AlertReport {
    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.raised += other.raised;
        self.escalated += other.escalated;
        self.sent += other.sent;
        self.failed += other.failed;
        self.dead += other.dead;
    }
}

/// A channel to create or change.
#[derive(Clone, Debug)]
pub struct NewChannel {
    /// Unique name.
    pub name: String,
    /// JSON form of [`ChannelConfig`], with secrets.
    pub config: Value,
    /// Whether messages are sent to the channel.
    pub enabled: bool,
}

/// A channel without its secrets.
#[derive(Clone, Debug)]
pub struct ChannelView {
    /// Row of the channel in the database.
    pub row: AlertChannelRow,
    /// Configuration without secrets. Null when it cannot be decrypted.
    pub config: Value,
}

/// Alerts and their channels. Cheap to clone.
#[derive(Clone)]
pub struct Alerts(Shared<Engine>);

struct Engine {
    store: Store,
    keystore: KeyStore,
    clock: Clock,
    channels: Channels,
    options: AlertOptions,
    node: Uuid,
    totals: Mutex<AlertReport>,
}

impl std::fmt::Debug for Alerts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alerts").finish_non_exhaustive()
    }
}

impl Alerts {
    /// Creates the engine for the alerts in a store. Nothing runs before [`Alerts::run`] or [`Alerts::round`].
    #[must_use]
    pub fn new(
        store: Store,
        keystore: KeyStore,
        clock: Clock,
        channels: Channels,
        options: AlertOptions,
    ) -> Self {
        keystore.register_sealed_column(&tables::SEALED_CHANNELS);
        Self(Shared::new(Engine {
            store,
            keystore,
            clock,
            channels,
            options,
            node: Uuid::new_v4(),
            totals: Mutex::default(),
        }))
    }

    /// Runs rounds until `stop` is cancelled.
    #[crate::boxed]
    pub async fn run(&self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("alerts");
        while !stop.is_cancelled() {
            let pause = match self.round().await {
                Ok(report) if report == AlertReport::default() => PAUSE,
                Ok(_) => Duration::ZERO,
                Err(error) => {
                    tracing::warn!(%error, "alerts: processing failed");
                    PAUSE * 2
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        // Release the lease, so that another node takes over immediately.
        let _ = self.0.store.release(CONSUMER, self.0.node).await;
    }

    /// Runs one round: events, thresholds, escalations and digests (on the node with the lease), then messages.
    ///
    /// # Errors
    /// Database errors. A failed channel is only counted.
    #[crate::boxed]
    pub async fn round(&self) -> Result<AlertReport, AlertError> {
        let now_us = self.0.clock.now_us();
        let mut report = AlertReport::default();
        if self.0.store.lease(CONSUMER, self.0.node, now_us, LEASE_US).await? {
            let plan = Arc::new(self.plan().await?);
            self.read_events(&plan, now_us, &mut report).await?;
            self.raise_threshold_alerts(&plan, now_us, &mut report).await?;
            self.escalate(&plan, now_us, &mut report).await?;
            self.send_digests(&plan, now_us, &mut report).await?;
        }
        self.send_due(now_us, &mut report).await?;
        self.0.totals.lock().add(&report);
        Ok(report)
    }

    /// Returns the totals of all rounds of this process.
    #[must_use]
    pub fn totals(&self) -> AlertReport {
        *self.0.totals.lock()
    }

    async fn plan(&self) -> Result<Plan, AlertError> {
        let store = &self.0.store;
        let channels = tables::Alerts::of(store).channels().await?;
        Ok(Plan {
            rules: documents(store, KIND_RULE).await?,
            silences: documents(store, KIND_SILENCE).await?,
            settings: self.settings().await?,
            channels: channels.into_iter().map(|channel| (channel.name, channel.id)).collect(),
        })
    }

    async fn read_events(
        &self,
        plan: &Arc<Plan>,
        now_us: i64,
        report: &mut AlertReport,
    ) -> Result<(), AlertError> {
        let position = self.0.store.outbox_position(CONSUMER).await?;
        let events = self.0.store.outbox_after(position, BATCH).await?;
        let Some(last) = events.last().map(|event| event.position) else { return Ok(()) };
        report.events += events.len() as u64;
        let work = AlertChanges::of(plan, &events, now_us);
        report.raised += work.raise.len() as u64;
        let plan = Arc::clone(plan);
        self.0
            .store
            .write("alerts_events", move |tx| {
                async move { work.store(tx, &plan, Some(last), now_us).await }.boxed()
            })
            .await?;
        Ok(())
    }

    async fn raise_threshold_alerts(
        &self,
        plan: &Arc<Plan>,
        now_us: i64,
        report: &mut AlertReport,
    ) -> Result<(), AlertError> {
        let reached = tables::Alerts::of(&self.0.store).due_schedules(now_us, BATCH).await?;
        if reached.is_empty() {
            return Ok(());
        }
        let work = AlertChanges::for_reached_thresholds(plan, reached, now_us);
        report.raised += work.raise.len() as u64;
        let plan = Arc::clone(plan);
        self.0
            .store
            .write("alerts_thresholds", move |tx| {
                async move { work.store(tx, &plan, None, now_us).await }.boxed()
            })
            .await?;
        Ok(())
    }

    async fn escalate(
        &self,
        plan: &Arc<Plan>,
        now_us: i64,
        report: &mut AlertReport,
    ) -> Result<(), AlertError> {
        let late = tables::Alerts::of(&self.0.store).alerts_to_escalate(now_us, BATCH).await?;
        if late.is_empty() {
            return Ok(());
        }
        report.escalated += late.len() as u64;
        let mut deliveries = Vec::new();
        for alert in &late {
            let of: Attributes = serde_json::from_str(&alert.attributes).unwrap_or_default();
            let names = escalation_channels(&plan.rules, &alert.kind, &alert.subject, alert.severity, &of);
            deliveries.extend(plan.to(&names).map(|channel| {
                delivery(alert.row, channel, MessageReason::Escalated, DeliveryState::Waiting, now_us)
            }));
        }
        self.0
            .store
            .write("alerts_escalate", move |tx| {
                async move {
                    rows::insert_alert_deliveries(tx, deliveries).await?;
                    rows::mark_escalated(tx, late.iter().map(|alert| alert.row).collect()).await
                }
                .boxed()
            })
            .await?;
        Ok(())
    }

    async fn send_digests(
        &self,
        plan: &Arc<Plan>,
        now_us: i64,
        report: &mut AlertReport,
    ) -> Result<(), AlertError> {
        let before = last_digest_at(now_us, plan.settings.digest_hour);
        let for_digest = tables::Alerts::of(&self.0.store).deliveries_for_digest(before, BATCH).await?;
        if for_digest.is_empty() {
            return Ok(());
        }
        let alerts = self.alerts_of(&for_digest).await?;
        let channels = self.channel_configs().await?;
        for (channel, deliveries, message) in digests(&for_digest, &alerts, now_us) {
            let outcome = self.send_message(channels.get(&channel), &message, now_us).await;
            let settled = |id| match &outcome {
                Ok(()) => {
                    AlertDeliveryOutcome { id, state: DeliveryState::Sent, next_at_us: now_us, error: None }
                }
                // If a digest fails, its messages are sent one by one, each with its own attempts.
                Err(error) => AlertDeliveryOutcome {
                    id,
                    state: DeliveryState::Waiting,
                    next_at_us: now_us + wait_us(0, error),
                    error: Some(error.reason.clone()),
                },
            };
            report.sent += u64::from(outcome.is_ok());
            report.failed += u64::from(outcome.is_err());
            let outcomes = deliveries.into_iter().map(|id| (settled(id), channel)).collect();
            tables::Alerts::of(&self.0.store).store_delivery_outcomes(outcomes, now_us).await?;
        }
        Ok(())
    }

    async fn send_due(&self, now_us: i64, report: &mut AlertReport) -> Result<(), AlertError> {
        let claimed =
            tables::Alerts::of(&self.0.store).claim_deliveries(now_us, now_us + CLAIM_US, CLAIM).await?;
        if claimed.is_empty() {
            return Ok(());
        }
        let alerts: HashMap<i64, AlertRow> =
            self.alerts_of(&claimed).await?.into_iter().map(|alert| (alert.row, alert)).collect();
        let channels = self.channel_configs().await?;
        let tries = claimed.into_iter().map(|delivery| {
            let (alert, channel) = (alerts.get(&delivery.alert), channels.get(&delivery.channel));
            async move { (self.attempt_delivery(&delivery, alert, channel, now_us).await, delivery.channel) }
        });
        let outcomes: Vec<_> =
            futures_util::stream::iter(tries).buffer_unordered(SENDING_MAX).collect().await;
        for (outcome, _) in &outcomes {
            match outcome.state {
                DeliveryState::Sent => report.sent += 1,
                DeliveryState::Dead => report.dead += 1,
                DeliveryState::Waiting | DeliveryState::Held => report.failed += 1,
            }
        }
        tables::Alerts::of(&self.0.store).store_delivery_outcomes(outcomes, now_us).await?;
        Ok(())
    }

    async fn attempt_delivery(
        &self,
        delivery: &AlertDeliveryRow,
        alert: Option<&AlertRow>,
        channel: Option<&(AlertChannelRow, Option<ChannelConfig>)>,
        now_us: i64,
    ) -> AlertDeliveryOutcome {
        let id = delivery.id;
        let Some(alert) = alert else {
            let error = Some("the alert no longer exists".to_owned());
            return AlertDeliveryOutcome { id, state: DeliveryState::Dead, next_at_us: now_us, error };
        };
        let message = Message::about(id, alert, delivery.reason, self.0.options.server_url.as_deref());
        let sent = self.send_message(channel, &message, now_us);
        match traced(alert, delivery, channel.map(|(row, _)| row.name.as_str()), sent).await {
            Ok(()) => {
                AlertDeliveryOutcome { id, state: DeliveryState::Sent, next_at_us: now_us, error: None }
            }
            Err(error) if error.retry && delivery.attempts < TRIES_MAX => AlertDeliveryOutcome {
                id,
                state: DeliveryState::Waiting,
                next_at_us: now_us + wait_us(delivery.attempts, &error),
                error: Some(error.reason),
            },
            Err(error) => {
                tracing::warn!(message = %id, reason = %error.reason, "alerts: a message cannot be delivered; giving up");
                AlertDeliveryOutcome {
                    id,
                    state: DeliveryState::Dead,
                    next_at_us: now_us,
                    error: Some(error.reason),
                }
            }
        }
    }

    async fn send_message(
        &self,
        channel: Option<&(AlertChannelRow, Option<ChannelConfig>)>,
        message: &Message,
        now_us: i64,
    ) -> Result<(), ChannelError> {
        let Some((row, config)) = channel else {
            return Err(ChannelError::permanent(
                "the channel was deleted: choose another channel in the rule",
            ));
        };
        if !row.enabled {
            return Err(ChannelError::permanent(format_args!(
                "channel {} is disabled: enable the channel and requeue the message",
                row.name
            )));
        }
        let Some(config) = config else {
            return Err(ChannelError::permanent(format_args!(
                "the configuration of channel {} cannot be decrypted: set the configuration again",
                row.name
            )));
        };
        self.0.channels.send((row.id, row.revision), config, message, now_us).await
    }

    async fn alerts_of(&self, deliveries: &[AlertDeliveryRow]) -> Result<Vec<AlertRow>, AlertError> {
        let mut wanted: Vec<i64> = deliveries.iter().map(|delivery| delivery.alert).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Ok(tables::Alerts::of(&self.0.store).by_row(wanted).await?)
    }

    async fn channel_configs(
        &self,
    ) -> Result<HashMap<Uuid, (AlertChannelRow, Option<ChannelConfig>)>, AlertError> {
        let rows = tables::Alerts::of(&self.0.store).channels().await?;
        Ok(rows.into_iter().map(|row| (row.id, (row.clone(), self.open(&row).ok()))).collect())
    }

    fn open(&self, row: &AlertChannelRow) -> Result<ChannelConfig, AlertError> {
        let sealed = || AlertError::Sealed(row.name.clone());
        let id = row.id.into_bytes();
        let json = self.0.keystore.keyring().open_sealed(&context(&id), &row.config).map_err(|_| sealed())?;
        let config: Value = serde_json::from_slice(&json).map_err(|_| sealed())?;
        Ok(ChannelConfig::parse(&config)?)
    }

    /// Returns every channel, without secrets.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn channels(&self) -> Result<Vec<ChannelView>, AlertError> {
        let rows = tables::Alerts::of(&self.0.store).channels().await?;
        Ok(rows.into_iter().map(|row| self.view(row)).collect())
    }

    /// Returns the channel with this id, without secrets.
    ///
    /// # Errors
    /// [`AlertError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn channel(&self, id: Uuid) -> Result<ChannelView, AlertError> {
        let row = tables::Alerts::of(&self.0.store).channel(id).await?;
        row.map(|row| self.view(row)).ok_or_else(|| AlertError::Unknown(format!("channel {id}")))
    }

    fn view(&self, row: AlertChannelRow) -> ChannelView {
        let config = self.open(&row).map_or(Value::Null, |config| config.shown());
        ChannelView { row, config }
    }

    /// Adds a channel, or changes one that still has `revision`.
    ///
    /// # Errors
    /// [`AlertError::Channel`] for an invalid configuration; [`StoreError::Conflict`] for a taken name; [`StoreError::Stale`] for
    /// an outdated revision.
    #[crate::boxed]
    pub async fn put_channel(
        &self,
        known: Option<(Uuid, i64)>,
        new: NewChannel,
        actor: &str,
    ) -> Result<ChannelView, AlertError> {
        let config = ChannelConfig::parse(&new.config)?;
        let (id, revision) = known.unwrap_or_else(|| (Uuid::now_v7(), 0));
        let sealed =
            self.0.keystore.keyring().seal(&context(&id.into_bytes()), new.config.to_string().as_bytes());
        let row = AlertChannelRow {
            id,
            name: new.name,
            kind: config.kind().to_owned(),
            config: sealed,
            enabled: new.enabled,
            revision,
            last_success_at_us: None,
            last_error_at_us: None,
            last_error: None,
        };
        let now_us = self.0.clock.now_us();
        let action = if known.is_some() { "channel.change" } else { "channel.create" };
        let details = json!({ "name": row.name, "config": config.shown(), "enabled": row.enabled });
        let event = note(now_us, actor, action, format!("channel/{id}"), details);
        self.0
            .store
            .write("alert_channel_put", move |tx| {
                async move {
                    if known.is_some() {
                        rows::update_alert_channel(tx, &row, now_us).await?;
                    } else {
                        rows::insert_alert_channel(tx, &row, now_us).await?;
                    }
                    audit(tx, vec![event]).await
                }
                .boxed()
            })
            .await?;
        self.channel(id).await
    }

    /// Deletes a channel. Rules that name the channel are kept.
    ///
    /// # Errors
    /// [`AlertError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn delete_channel(&self, id: Uuid, actor: &str) -> Result<(), AlertError> {
        let event =
            note(self.0.clock.now_us(), actor, "channel.delete", format!("channel/{id}"), Value::Null);
        let write = self.0.store.write("alert_channel_delete", move |tx| {
            async move {
                let existed = rows::delete_alert_channel(tx, id).await?;
                if existed {
                    audit(tx, vec![event]).await?;
                }
                Ok(existed)
            }
            .boxed()
        });
        known(write.await?, || format!("channel {id}"))
    }

    /// Sends a test message to a channel, once.
    ///
    /// # Errors
    /// [`AlertError::Channel`] when the channel did not accept the message.
    #[crate::boxed]
    pub async fn test_channel(&self, id: Uuid) -> Result<(), AlertError> {
        let row = tables::Alerts::of(&self.0.store).channel(id).await?;
        let row = row.ok_or_else(|| AlertError::Unknown(format!("channel {id}")))?;
        let config = self.open(&row)?;
        let now_us = self.0.clock.now_us();
        let message = Message::test(Uuid::now_v7(), now_us);
        Ok(self.0.channels.send((row.id, row.revision), &config, &message, now_us).await?)
    }

    /// Returns the stored settings, or the defaults.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn settings(&self) -> Result<Settings, AlertError> {
        let all: Vec<(Uuid, Settings)> = documents(&self.0.store, KIND_SETTINGS).await?;
        Ok(all.into_iter().next().map(|(_, settings)| settings).unwrap_or_default())
    }

    /// Changes the settings. The new settings apply to thresholds that are scheduled later; thresholds that are already scheduled
    /// keep their times.
    ///
    /// # Errors
    /// [`AlertError::Invalid`].
    #[crate::boxed]
    pub async fn put_settings(&self, settings: Settings, actor: &str) -> Result<(), AlertError> {
        settings.check().map_err(AlertError::Invalid)?;
        self.put_document(KIND_SETTINGS, Uuid::nil(), "settings", &settings, actor).await
    }

    /// Returns the stored rules, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn rules(&self) -> Result<Vec<AlertDocument>, AlertError> {
        Ok(tables::Alerts::of(&self.0.store).documents(KIND_RULE).await?)
    }

    /// Adds or changes a rule.
    ///
    /// # Errors
    /// [`AlertError::Invalid`] when the rule names no channel or one that does not exist.
    #[crate::boxed]
    pub async fn put_rule(
        &self,
        id: Option<Uuid>,
        name: &str,
        rule: &Rule,
        actor: &str,
    ) -> Result<Uuid, AlertError> {
        let channels = tables::Alerts::of(&self.0.store).channels().await?;
        let escalation = rule.escalate.iter().flat_map(|escalation| &escalation.channels);
        if rule.channels.is_empty() {
            return Err(AlertError::Invalid("a rule needs at least one channel".to_owned()));
        }
        for wanted in rule.channels.iter().chain(escalation) {
            if !channels.iter().any(|channel| channel.name == *wanted) {
                return Err(AlertError::Invalid(format!(
                    "unknown channel {wanted:?}: create the channel first"
                )));
            }
        }
        let id = id.unwrap_or_else(Uuid::now_v7);
        self.put_document(KIND_RULE, id, name, rule, actor).await?;
        Ok(id)
    }

    /// Returns the stored silences.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn silences(&self) -> Result<Vec<AlertDocument>, AlertError> {
        Ok(tables::Alerts::of(&self.0.store).documents(KIND_SILENCE).await?)
    }

    /// Adds a silence and returns its id.
    ///
    /// # Errors
    /// [`AlertError::Invalid`] when the silence does not end after its start, or has already ended; database errors.
    #[crate::boxed]
    pub async fn put_silence(&self, silence: &Silence, actor: &str) -> Result<Uuid, AlertError> {
        if silence.until_us <= silence.from_us.max(self.0.clock.now_us()) {
            return Err(AlertError::Invalid(
                "a silence must end after it begins, and not in the past".to_owned(),
            ));
        }
        let id = Uuid::now_v7();
        self.put_document(KIND_SILENCE, id, &id.to_string(), silence, actor).await?;
        Ok(id)
    }

    /// Deletes a rule (`rule`) or a silence (`silence`).
    ///
    /// # Errors
    /// [`AlertError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn delete_document(
        &self,
        document_kind: &'static str,
        id: Uuid,
        actor: &str,
    ) -> Result<(), AlertError> {
        let event = note(
            self.0.clock.now_us(),
            actor,
            "alert.configure",
            format!("{document_kind}/{id}"),
            json!("deleted"),
        );
        let write = self.0.store.write("alert_document_delete", move |tx| {
            async move {
                let existed = rows::delete_alert_document(tx, document_kind, id).await?;
                if existed {
                    audit(tx, vec![event]).await?;
                }
                Ok(existed)
            }
            .boxed()
        });
        known(write.await?, || format!("{document_kind} {id}"))
    }

    async fn put_document(
        &self,
        document_kind: &'static str,
        id: Uuid,
        name: &str,
        body: &impl serde::Serialize,
        actor: &str,
    ) -> Result<(), AlertError> {
        let body = serde_json::to_value(body).map_err(|error| AlertError::Invalid(error.to_string()))?;
        let now_us = self.0.clock.now_us();
        let document = AlertDocument {
            id,
            name: name.to_owned(),
            body: body.to_string(),
            updated_by: actor.to_owned(),
            updated_at_us: now_us,
        };
        let event = note(now_us, actor, "alert.configure", format!("{document_kind}/{id}"), body);
        self.0
            .store
            .write("alert_document_put", move |tx| {
                async move {
                    rows::put_alert_document(tx, document_kind, &document).await?;
                    audit(tx, vec![event]).await
                }
                .boxed()
            })
            .await?;
        Ok(())
    }

    /// Acknowledges an alert, which stops its escalation.
    ///
    /// # Errors
    /// [`AlertError::Unknown`] when no such alert is open.
    #[crate::boxed]
    pub async fn acknowledge(&self, id: Uuid, actor: &str) -> Result<(), AlertError> {
        let by = actor.to_owned();
        self.change(id, actor, "alert.acknowledge", move |tx, now_us| {
            async move { rows::acknowledge_alert(tx, id, &by, now_us).await }.boxed()
        })
        .await
    }

    /// Resolves an alert manually.
    ///
    /// # Errors
    /// [`AlertError::Unknown`] when no such alert is open or acknowledged.
    #[crate::boxed]
    pub async fn resolve(&self, id: Uuid, actor: &str) -> Result<(), AlertError> {
        self.change(id, actor, "alert.resolve", move |tx, now_us| {
            async move { rows::resolve_alert(tx, id, now_us).await }.boxed()
        })
        .await
    }

    /// Retries a message whose last attempt failed.
    ///
    /// # Errors
    /// [`AlertError::Unknown`] when no such message is dead.
    #[crate::boxed]
    pub async fn requeue(&self, id: Uuid, actor: &str) -> Result<(), AlertError> {
        self.change(id, actor, "alert.requeue", move |tx, now_us| {
            async move { rows::requeue_alert_delivery(tx, id, now_us).await }.boxed()
        })
        .await
    }

    async fn change(
        &self,
        id: Uuid,
        actor: &str,
        action: &'static str,
        work: impl for<'t> FnOnce(
            &'t mut Tx,
            i64,
        ) -> futures_util::future::BoxFuture<'t, Result<bool, StoreError>>
        + Send
        + 'static,
    ) -> Result<(), AlertError> {
        let now_us = self.0.clock.now_us();
        let event = note(now_us, actor, action, format!("alert/{id}"), Value::Null);
        let write = self.0.store.write(action, move |tx| {
            async move {
                let existed = work(tx, now_us).await?;
                if existed {
                    audit(tx, vec![event]).await?;
                }
                Ok(existed)
            }
            .boxed()
        });
        known(write.await?, || format!("such {} {id}", action.split('.').next().unwrap_or("alert")))
    }
}

/// Returns the wait before the next attempt, in µs: backoff, or the `Retry-After` of the channel if it is longer.
fn wait_us(attempts: i64, error: &ChannelError) -> i64 {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(16);
    let retry_after_us =
        error.retry_after.map_or(0, |wait| i64::try_from(wait.as_micros()).unwrap_or(WAIT_MAX_US));
    (WAIT_US << doublings).min(WAIT_MAX_US).max(retry_after_us.min(WAIT_MAX_US))
}

fn context(id: &[u8; 16]) -> Context<'_> {
    Context { table: "alert_channels", row: id, column: "config" }
}

fn note(at_us: i64, actor: &str, action: &'static str, resource: String, details: Value) -> AuditEvent {
    AuditEvent { at_us, actor: actor.to_owned(), action, resource, details }
}

fn known(existed: bool, what: impl FnOnce() -> String) -> Result<(), AlertError> {
    if existed { Ok(()) } else { Err(AlertError::Unknown(what())) }
}

/// Sends a message, and records the attempt as a span in the trace of the certificate. The trace id is the id of a managed
/// certificate, or the beginning of a discovered certificate's SHA-256.
async fn traced(
    alert: &AlertRow,
    delivery: &AlertDeliveryRow,
    channel: Option<&str>,
    sent: impl Future<Output = Result<(), ChannelError>>,
) -> Result<(), ChannelError> {
    let described = |span: Span| {
        span.with("bulla.alert", alert.id.to_string())
            .with("bulla.kind", &alert.kind)
            .with("bulla.reason", delivery.reason.name())
            .with("bulla.channel", channel.unwrap_or_default())
    };
    within(trace_of(&alert.subject), part("alert", Kind::Client, described, sent)).await
}

/// Returns the trace of the certificate that an alert is about.
fn trace_of(subject: &str) -> Option<TraceParent> {
    match subject.split_once('/')? {
        ("certificate", id) => Some(TraceParent::of_object(id.parse::<Uuid>().ok()?.as_u128())),
        ("found", leaf) => Some(TraceParent::of_hash(leaf.parse::<Fingerprint>().ok()?.as_bytes())),
        _ => None,
    }
}

async fn documents<T: serde::de::DeserializeOwned>(
    store: &Store,
    document_kind: &'static str,
) -> Result<Vec<(Uuid, T)>, AlertError> {
    let mut all = Vec::new();
    for document in tables::Alerts::of(store).documents(document_kind).await? {
        match serde_json::from_str(&document.body) {
            Ok(read) => all.push((document.id, read)),
            Err(error) => {
                tracing::warn!(%error, document_kind, name = document.name, "alerts: a stored document cannot be parsed")
            }
        }
    }
    Ok(all)
}
