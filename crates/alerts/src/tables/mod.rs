//! Tables of alerts, deliveries, channels, rules and silences, and the schedule of expiring certificates.

mod statements;

use futures_util::FutureExt;
use uuid::Uuid;
use x509::Severity;

pub use statements::SEALED_CHANNELS;

use db::{
    Column, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or, limit_of, page,
    with_limit,
};
use store::states::{AlertState, DeliveryState, MessageReason};

use statements::{
    ACKNOWLEDGE, ALERT, ALERT_ROW, ALERTS, CHANNEL, CHANNEL_DELETE, CHANNEL_HEALTH, CHANNEL_INSERT,
    CHANNEL_UPDATE, CHANNELS, CLAIM, DELIVER, DELIVERIES, DELIVERIES_OF, DOCUMENT_DELETE, DOCUMENT_PUT,
    DOCUMENTS, ESCALATED, ESCALATING, HELD, NOTIFIED, RAISE, REQUEUE, REQUEUE_CHANNEL, RESOLVE, RESOLVE_ONE,
    SCHEDULE, SCHEDULE_DUE, SETTLE, TRIM, TRIM_DELIVERIES, UNSCHEDULE,
};

store::handle! {
    /// Alerts, their channels and deliveries.
    Alerts
}
pub(crate) use statements::{ALL, BULKS};

/// A notification channel as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertChannelRow {
    /// Id of the channel.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Stable name of the kind: `webhook`, `smtp`, …
    pub kind: String,
    /// Sealed JSON configuration.
    pub config: Vec<u8>,
    /// Whether messages are sent to the channel.
    pub enabled: bool,
    /// Incremented with every change.
    pub revision: i64,
    /// Time of the last successful message, µs.
    pub last_success_at_us: Option<i64>,
    /// Time of the last failure, µs.
    pub last_error_at_us: Option<i64>,
    /// Error message of the last failed attempt.
    pub last_error: Option<String>,
}

/// A rule, a silence or the settings, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertDocument {
    /// Id of the document. Nil for the settings.
    pub id: Uuid,
    /// Name, unique among documents of the same kind.
    pub name: String,
    /// The document as JSON.
    pub body: String,
    /// Actor of the last change.
    pub updated_by: String,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

/// An alert to raise, or to repeat if an unresolved alert has the same key.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAlert {
    /// Deduplication key. An event with the same key repeats the alert while the alert is not resolved.
    pub dedup: String,
    /// Kind of the alert, such as `certificate.expiring`.
    pub kind: String,
    /// Subject of the alert, such as `certificate/UUID`.
    pub subject: String,
    /// Severity, from the event or the expiry threshold that raises the alert.
    pub severity: Severity,
    /// Human-readable title in one line.
    pub title: String,
    /// Attributes that rules match, as JSON.
    pub attributes: String,
    /// Id of the silence that suppresses notifications.
    pub silenced_by: Option<Uuid>,
    /// Time of the occurrence, µs.
    pub at_us: i64,
    /// Time of the escalation unless the alert is acknowledged, µs.
    pub escalate_at_us: Option<i64>,
}

/// A raised alert, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRow {
    /// Row id of the alert.
    pub row: i64,
    /// Public id of the alert.
    pub id: Uuid,
    /// Kind of the alert, such as `certificate.expiring`.
    pub kind: String,
    /// Subject of the alert, such as `certificate/UUID`.
    pub subject: String,
    /// Severity of the alert.
    pub severity: Severity,
    /// Human-readable title in one line.
    pub title: String,
    /// Attributes that rules match, as JSON.
    pub attributes: String,
    /// Whether the alert is open, acknowledged or resolved.
    pub state: AlertState,
    /// Id of the silence that suppresses notifications.
    pub silenced_by: Option<Uuid>,
    /// Time of the first occurrence, µs.
    pub first_at_us: i64,
    /// Time of the last occurrence, µs.
    pub last_at_us: i64,
    /// Number of occurrences.
    pub count: i64,
    /// Actor that acknowledged the alert.
    pub acknowledged_by: Option<String>,
    /// Time of the acknowledgment, µs.
    pub acknowledged_at_us: Option<i64>,
    /// Time at which the alert was resolved, µs.
    pub resolved_at_us: Option<i64>,
}

/// A message about an alert to a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertDeliveryRow {
    /// Id of the message, the same for every attempt.
    pub id: Uuid,
    /// Row id of the alert.
    pub alert: i64,
    /// Id of the channel that the message is sent to.
    pub channel: Uuid,
    /// Whether the message is about a raised, an escalated or a resolved alert.
    pub reason: MessageReason,
    /// Whether the message waits for an attempt or a digest, was sent, or has failed for the last time.
    pub state: DeliveryState,
    /// Number of attempts so far.
    pub attempts: i64,
    /// Time of the next attempt, µs.
    pub next_at_us: i64,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of delivery, or of the last attempt, µs.
    pub done_at_us: Option<i64>,
}

/// A message to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAlertDelivery {
    /// Row id of the alert.
    pub alert: i64,
    /// Id of the channel that the message is sent to.
    pub channel: Uuid,
    /// Whether the message is about a raised, an escalated or a resolved alert.
    pub reason: MessageReason,
    /// Initial state: waiting, or held for the digest.
    pub state: DeliveryState,
    /// Time to send the message, µs.
    pub at_us: i64,
}

/// Result of a delivery attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertDeliveryOutcome {
    /// Id of the message.
    pub id: Uuid,
    /// New state: waiting for another attempt, sent or dead.
    pub state: DeliveryState,
    /// Time of the next attempt, µs.
    pub next_at_us: i64,
    /// Error of a failed attempt.
    pub error: Option<String>,
}

/// The next expiry threshold of a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertScheduleRow {
    /// The certificate, as `certificate/UUID`.
    pub subject: String,
    /// Time of the next threshold, µs.
    pub next_at_us: i64,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// Attributes that rules match, as JSON.
    pub attributes: String,
}

/// Value of `next_at` for a certificate past its last threshold.
pub const NO_THRESHOLD_US: i64 = i64::MAX;

/// A raised alert: its row, and whether it is new.
#[derive(Clone, Debug, PartialEq)]
pub struct Raised {
    /// Row id of the alert.
    pub row: i64,
    /// Deduplication key of the alert.
    pub dedup: String,
    /// Whether the alert was newly created.
    pub new: bool,
}

/// Raises alerts. An alert with an existing key increments that alert's count. Open alerts of the same kind and subject with
/// another key are resolved: a nearer threshold replaces a farther one.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn raise_alerts(tx: &mut Tx, alerts: Vec<NewAlert>) -> Result<Vec<Raised>, StoreError> {
    // A statement may change a row only once, so repeats within a batch are counted here.
    let mut distinct: Vec<(NewAlert, i64)> = Vec::with_capacity(alerts.len());
    let mut indices = std::collections::HashMap::new();
    for alert in alerts {
        match indices.get(&alert.dedup) {
            Some(&index) => {
                let (known, count): &mut (NewAlert, i64) = &mut distinct[index];
                *known = alert;
                *count += 1;
            }
            None => {
                indices.insert(alert.dedup.clone(), distinct.len());
                distinct.push((alert, 1));
            }
        }
    }
    let column = |value: fn(&NewAlert) -> String| -> Vec<String> {
        distinct.iter().map(|(alert, _)| value(alert)).collect()
    };
    let others = vec![
        Column::Text(column(|alert| alert.subject.clone())),
        Column::Text(column(|alert| alert.kind.clone())),
        Column::Text(column(|alert| alert.dedup.clone())),
        Column::Int(distinct.iter().map(|(alert, _)| alert.at_us).collect()),
    ];
    tx.bulk(&RESOLVE, others).await?;
    let ids: Vec<Uuid> = distinct.iter().map(|_| Uuid::now_v7()).collect();
    let columns = vec![
        Column::Uuid(ids.clone()),
        Column::Text(column(|alert| alert.dedup.clone())),
        Column::Text(column(|alert| alert.kind.clone())),
        Column::Text(column(|alert| alert.subject.clone())),
        Column::Int(distinct.iter().map(|(alert, _)| alert.severity.code()).collect()),
        Column::Text(column(|alert| alert.title.clone())),
        Column::Text(column(|alert| alert.attributes.clone())),
        Column::MaybeUuid(distinct.iter().map(|(alert, _)| alert.silenced_by).collect()),
        Column::Int(distinct.iter().map(|(alert, _)| alert.at_us).collect()),
        Column::Int(distinct.iter().map(|(_, count)| *count).collect()),
        Column::MaybeInt(distinct.iter().map(|(alert, _)| alert.escalate_at_us).collect()),
    ];
    let ids: std::collections::HashSet<Uuid> = ids.into_iter().collect();
    let raised = |mut row: Row| {
        let (row_id, id, dedup) = (row.int()?, row.uuid()?, row.text()?);
        Ok(Raised { row: row_id, dedup, new: ids.contains(&id) })
    };
    tx.bulk(&RAISE, columns).await?.into_iter().map(raised).collect()
}

/// Resolves the alerts about these subjects and of these kinds, given as pairs. Returns the rows of alerts that were open and not
/// silenced.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn resolve_alerts(
    tx: &mut Tx,
    of: Vec<(String, String)>,
    at_us: i64,
) -> Result<Vec<i64>, StoreError> {
    let columns = vec![
        Column::Text(of.iter().map(|(subject, _)| subject.clone()).collect()),
        Column::Text(of.iter().map(|(_, kind)| kind.clone()).collect()),
        Column::Text(of.iter().map(|_| String::new()).collect()),
        Column::Int(vec![at_us; of.len()]),
    ];
    let mut rows = Vec::new();
    for mut row in tx.bulk(&RESOLVE, columns).await? {
        let (id, silenced) = (row.int()?, row.maybe_uuid()?);
        if silenced.is_none() {
            rows.push(id);
        }
    }
    Ok(rows)
}

/// Returns the channels to which a message about an alert was sent or is pending.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn notified_channels(tx: &mut Tx, alert: i64) -> Result<Vec<Uuid>, StoreError> {
    let notified = tx.rows(NOTIFIED, vec![alert.into()]).await?;
    notified
        .into_iter()
        .map(|mut row| {
            row.skip()?;
            row.uuid()
        })
        .collect()
}

/// Inserts messages. Existing ones are not changed.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_alert_deliveries(tx: &mut Tx, all: Vec<NewAlertDelivery>) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(all.iter().map(|_| Uuid::now_v7()).collect()),
        Column::Int(all.iter().map(|one| one.alert).collect()),
        Column::Uuid(all.iter().map(|one| one.channel).collect()),
        Column::Text(all.iter().map(|one| one.reason.name().to_owned()).collect()),
        Column::Int(all.iter().map(|one| one.state.code()).collect()),
        Column::Int(all.iter().map(|one| one.at_us).collect()),
    ];
    tx.bulk(&DELIVER, columns).await.map(drop)
}

/// Stores the next expiry thresholds of certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn schedule_alerts(tx: &mut Tx, all: Vec<AlertScheduleRow>) -> Result<(), StoreError> {
    // The last entry for a subject wins.
    let last: std::collections::BTreeMap<_, _> =
        all.into_iter().map(|row| (row.subject.clone(), row)).collect();
    let all: Vec<AlertScheduleRow> = last.into_values().collect();
    let columns = vec![
        Column::Text(all.iter().map(|row| row.subject.clone()).collect()),
        Column::Int(all.iter().map(|row| row.next_at_us).collect()),
        Column::Int(all.iter().map(|row| row.not_before_us).collect()),
        Column::Int(all.iter().map(|row| row.not_after_us).collect()),
        Column::Text(all.iter().map(|row| row.attributes.clone()).collect()),
    ];
    tx.bulk(&SCHEDULE, columns).await.map(drop)
}

/// Deletes the expiry thresholds of certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn unschedule_alerts(tx: &mut Tx, subjects: Vec<String>) -> Result<(), StoreError> {
    tx.bulk(&UNSCHEDULE, vec![Column::Text(subjects)]).await.map(drop)
}

/// Marks alerts as escalated.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn mark_escalated(tx: &mut Tx, rows: Vec<i64>) -> Result<(), StoreError> {
    tx.bulk(&ESCALATED, vec![Column::Int(rows)]).await.map(drop)
}

/// Adds a channel.
///
/// # Errors
/// [`StoreError::Conflict`] when the name is taken.
#[crate::boxed]
pub async fn insert_alert_channel(
    tx: &mut Tx,
    channel: &AlertChannelRow,
    now_us: i64,
) -> Result<(), StoreError> {
    let parameters = vec![
        channel.id.into(),
        channel.name.as_str().into(),
        channel.kind.as_str().into(),
        channel.config.clone().into(),
        channel.enabled.into(),
        now_us.into(),
    ];
    tx.execute(CHANNEL_INSERT, parameters).await.map(drop)
}

/// Changes a channel, unless its revision has changed since the caller read the channel.
///
/// # Errors
/// [`StoreError::Stale`] when the channel was changed meanwhile; [`StoreError::Conflict`] when the name is taken.
#[crate::boxed]
pub async fn update_alert_channel(
    tx: &mut Tx,
    channel: &AlertChannelRow,
    now_us: i64,
) -> Result<(), StoreError> {
    let parameters = vec![
        channel.id.into(),
        channel.revision.into(),
        channel.name.as_str().into(),
        channel.kind.as_str().into(),
        channel.config.clone().into(),
        channel.enabled.into(),
        now_us.into(),
    ];
    match tx.execute(CHANNEL_UPDATE, parameters).await? {
        0 => Err(StoreError::Stale(
            "the channel was deleted or changed by another request: read it again".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Deletes a channel. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_alert_channel(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(CHANNEL_DELETE, vec![id.into()]).await? == 1)
}

/// Stores a rule, a silence or the settings. `document_kind` is the kind of document.
///
/// # Errors
/// [`StoreError::Conflict`] when another document has the name.
#[crate::boxed]
pub async fn put_alert_document(
    tx: &mut Tx,
    document_kind: &'static str,
    document: &AlertDocument,
) -> Result<(), StoreError> {
    let parameters = vec![
        document.id.into(),
        document_kind.into(),
        document.name.as_str().into(),
        document.body.as_str().into(),
        document.updated_by.as_str().into(),
        document.updated_at_us.into(),
    ];
    tx.execute(DOCUMENT_PUT, parameters).await.map(drop)
}

/// Deletes a rule or silence. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_alert_document(
    tx: &mut Tx,
    document_kind: &'static str,
    id: Uuid,
) -> Result<bool, StoreError> {
    Ok(tx.execute(DOCUMENT_DELETE, vec![document_kind.into(), id.into()]).await? == 1)
}

/// Acknowledges an alert. Returns false when it is not open.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn acknowledge_alert(tx: &mut Tx, id: Uuid, by: &str, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(ACKNOWLEDGE, vec![id.into(), by.into(), now_us.into()]).await? == 1)
}

/// Resolves an alert manually. Returns false when it is already resolved.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn resolve_alert(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(RESOLVE_ONE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Puts a dead message back into the queue. Returns false when it is not dead.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn requeue_alert_delivery(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(REQUEUE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Puts every dead message of a channel back into the queue. Returns their number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn requeue_alert_channel(tx: &mut Tx, channel: Uuid, now_us: i64) -> Result<u64, StoreError> {
    tx.execute(REQUEUE_CHANNEL, vec![channel.into(), now_us.into()]).await
}

impl Alerts<'_> {
    /// Returns every channel, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn channels(self) -> Result<Vec<AlertChannelRow>, StoreError> {
        self.0.rows(Cost::Walk, CHANNELS, Vec::new()).await?.into_iter().map(channel_row).collect()
    }

    /// Returns the channel with this id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn channel(self, id: Uuid) -> Result<Option<AlertChannelRow>, StoreError> {
        self.0.row(CHANNEL, vec![id.into()]).await?.map(channel_row).transpose()
    }

    /// Returns all documents of one kind, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn documents(self, document_kind: &'static str) -> Result<Vec<AlertDocument>, StoreError> {
        let rows = self.0.rows(Cost::Walk, DOCUMENTS, vec![document_kind.into()]).await?;
        let document = |mut row: Row| {
            Ok(AlertDocument {
                id: row.uuid()?,
                name: row.text()?,
                body: row.text()?,
                updated_by: row.text()?,
                updated_at_us: row.int()?,
            })
        };
        rows.into_iter().map(document).collect()
    }

    /// Returns the alert with this public id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<AlertRow>, StoreError> {
        self.0.row(ALERT, vec![id.into()]).await?.map(alert_row).transpose()
    }

    /// Returns a page of alerts in a state, latest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn page(
        self,
        state: AlertState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AlertRow>, StoreError> {
        let key = key_or(after, "alerts", &[Value::Int(i64::MAX), Value::Int(i64::MAX)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let mut parameters = vec![state.code().into()];
        parameters.extend(key);
        let rows = self.0.rows(Cost::Walk, ALERTS, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, "alerts", |row| {
            let alert = alert_row(row)?;
            let key = vec![alert.last_at_us.into(), alert.row.into()];
            Ok((alert, key))
        })
    }

    /// Returns the alerts with these row ids.
    ///
    /// # Errors
    /// Database errors.
    pub async fn by_row(self, rows: Vec<i64>) -> Result<Vec<AlertRow>, StoreError> {
        let found = self
            .0
            .write("alert_rows", move |tx| {
                async move { tx.bulk(&ALERT_ROW, vec![Column::Int(rows)]).await }.boxed()
            })
            .await?;
        found.into_iter().map(alert_row).collect()
    }

    /// Returns the messages of an alert.
    ///
    /// # Errors
    /// Database errors.
    pub async fn deliveries_of(self, alert: i64) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        self.0
            .rows(Cost::Walk, DELIVERIES_OF, vec![alert.into()])
            .await?
            .into_iter()
            .map(delivery_row)
            .collect()
    }

    /// Returns a page of messages in a state, latest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn deliveries(
        self,
        state: DeliveryState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AlertDeliveryRow>, StoreError> {
        let key = key_or(after, "alert-deliveries", &[Value::Int(i64::MAX)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let mut parameters = vec![state.code().into()];
        parameters.extend(key);
        let rows = self.0.rows(Cost::Walk, DELIVERIES, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, "alert-deliveries", |mut row| {
            let delivery = read_delivery_columns(&mut row)?;
            Ok((delivery, vec![row.int()?.into()]))
        })
    }

    /// Claims due messages, so that no other node sends them before `until_us`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn claim_deliveries(
        self,
        now_us: i64,
        until_us: i64,
        limit: i64,
    ) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        let found = self
            .0
            .write("alert_delivery_claim", move |tx| {
                async move {
                    tx.rows(tx.text_of(&CLAIM), vec![now_us.into(), until_us.into(), limit.into()]).await
                }
                .boxed()
            })
            .await?;
        found.into_iter().map(delivery_row).collect()
    }

    /// Stores the results of delivery attempts, each with the id of its channel, and updates the status of these channels.
    ///
    /// # Errors
    /// Database errors.
    pub async fn store_delivery_outcomes(
        self,
        outcomes: Vec<(AlertDeliveryOutcome, Uuid)>,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let health: std::collections::BTreeMap<Uuid, Option<String>> = outcomes
            .iter()
            .map(|(outcome, channel)| {
                (*channel, outcome.error.clone().filter(|_| outcome.state != DeliveryState::Sent))
            })
            .collect();
        self.0
            .write("alert_delivery_settle", move |tx| {
                async move {
                    let done = |state| (state != DeliveryState::Waiting).then_some(now_us);
                    let columns = vec![
                        Column::Uuid(outcomes.iter().map(|(one, _)| one.id).collect()),
                        Column::Int(outcomes.iter().map(|(one, _)| one.state.code()).collect()),
                        Column::Int(outcomes.iter().map(|(one, _)| one.next_at_us).collect()),
                        Column::MaybeText(outcomes.iter().map(|(one, _)| one.error.clone()).collect()),
                        Column::MaybeInt(outcomes.iter().map(|(one, _)| done(one.state)).collect()),
                    ];
                    tx.bulk(&SETTLE, columns).await?;
                    let good = |error: &Option<String>| error.is_none().then_some(now_us);
                    let bad = |error: &Option<String>| error.is_some().then_some(now_us);
                    let columns = vec![
                        Column::Uuid(health.keys().copied().collect()),
                        Column::MaybeInt(health.values().map(good).collect()),
                        Column::MaybeInt(health.values().map(bad).collect()),
                        Column::MaybeText(health.values().cloned().collect()),
                    ];
                    tx.bulk(&CHANNEL_HEALTH, columns).await.map(drop)
                }
                .boxed()
            })
            .await
    }

    /// Returns the messages for the digest that were created before a time.
    ///
    /// # Errors
    /// Database errors.
    pub async fn deliveries_for_digest(
        self,
        before_us: i64,
        limit: i64,
    ) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        let rows = self.0.rows(Cost::Walk, HELD, vec![before_us.into(), limit.into()]).await?;
        rows.into_iter().map(delivery_row).collect()
    }

    /// Returns certificates that reached a threshold, earliest first.
    ///
    /// # Errors
    /// Database errors.
    pub async fn due_schedules(self, now_us: i64, limit: i64) -> Result<Vec<AlertScheduleRow>, StoreError> {
        let rows = self.0.rows(Cost::Walk, SCHEDULE_DUE, vec![now_us.into(), limit.into()]).await?;
        let due = |mut row: Row| {
            Ok(AlertScheduleRow {
                subject: row.text()?,
                next_at_us: row.int()?,
                not_before_us: row.int()?,
                not_after_us: row.int()?,
                attributes: row.text()?,
            })
        };
        rows.into_iter().map(due).collect()
    }

    /// Returns open alerts that were not acknowledged before their escalation time.
    ///
    /// # Errors
    /// Database errors.
    pub async fn alerts_to_escalate(self, now_us: i64, limit: i64) -> Result<Vec<AlertRow>, StoreError> {
        let rows = self.0.rows(Cost::Walk, ESCALATING, vec![now_us.into(), limit.into()]).await?;
        rows.into_iter().map(alert_row).collect()
    }

    /// Deletes alerts that were resolved before a time, and their messages.
    ///
    /// # Errors
    /// Database errors.
    pub async fn trim(self, before_us: i64) -> Result<u64, StoreError> {
        self.0
            .write("alerts_trim", move |tx| {
                async move {
                    let deleted = tx.execute(TRIM, vec![before_us.into()]).await?;
                    if deleted > 0 {
                        tx.execute(TRIM_DELIVERIES, Vec::new()).await?;
                    }
                    Ok(deleted)
                }
                .boxed()
            })
            .await
    }
}

fn channel_row(mut row: Row) -> Result<AlertChannelRow, StoreError> {
    Ok(AlertChannelRow {
        id: row.uuid()?,
        name: row.text()?,
        kind: row.text()?,
        config: row.blob()?,
        enabled: row.flag()?,
        revision: row.int()?,
        last_success_at_us: row.maybe_int()?,
        last_error_at_us: row.maybe_int()?,
        last_error: row.maybe_text()?,
    })
}

fn alert_row(mut row: Row) -> Result<AlertRow, StoreError> {
    Ok(AlertRow {
        row: row.int()?,
        id: row.uuid()?,
        kind: row.text()?,
        subject: row.text()?,
        severity: row.coded("alerts.severity")?,
        title: row.text()?,
        attributes: row.text()?,
        state: row.coded("alerts.state")?,
        silenced_by: row.maybe_uuid()?,
        first_at_us: row.int()?,
        last_at_us: row.int()?,
        count: row.int()?,
        acknowledged_by: row.maybe_text()?,
        acknowledged_at_us: row.maybe_int()?,
        resolved_at_us: row.maybe_int()?,
    })
}

fn delivery_row(mut row: Row) -> Result<AlertDeliveryRow, StoreError> {
    read_delivery_columns(&mut row)
}

fn read_delivery_columns(row: &mut Row) -> Result<AlertDeliveryRow, StoreError> {
    Ok(AlertDeliveryRow {
        id: row.uuid()?,
        alert: row.int()?,
        channel: row.uuid()?,
        reason: row.named("alert_deliveries.reason")?,
        state: row.coded("alert_deliveries.state")?,
        attempts: row.int()?,
        next_at_us: row.int()?,
        last_error: row.maybe_text()?,
        created_at_us: row.int()?,
        done_at_us: row.maybe_int()?,
    })
}

/// Every statement of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[ModuleStatements::of(ALL, BULKS)];
