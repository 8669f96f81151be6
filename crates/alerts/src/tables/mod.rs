//! Alerts, deliveries, channels, rules and silences; when certificates come near their end.

mod statements;

use futures_util::FutureExt;
use uuid::Uuid;
use x509::Severity;

pub use statements::SEALED_CHANNELS;

use db::{Column, Cost, Cursor, Page, Row, Sends, StoreError, Tx, Value, key_or, limit_of, page, with_limit};
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

/// A channel.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertChannelRow {
    /// Its identity.
    pub id: Uuid,
    /// Unique.
    pub name: String,
    /// `webhook`, `smtp`, …
    pub kind: String,
    /// JSON, sealed.
    pub config: Vec<u8>,
    /// Whether messages go there.
    pub enabled: bool,
    /// Grows by one with each change.
    pub revision: i64,
    /// The last message taken, µs.
    pub last_success_at_us: Option<i64>,
    /// The last failure, µs.
    pub last_error_at_us: Option<i64>,
    /// That failure.
    pub last_error: Option<String>,
}

/// A rule, a silence or the settings, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertDocument {
    /// Its identity.
    pub id: Uuid,
    /// Unique within its sort.
    pub name: String,
    /// JSON.
    pub body: String,
    /// Actor that changed it last.
    pub updated_by: String,
    /// When, µs.
    pub updated_at_us: i64,
}

/// An alert to raise.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAlert {
    /// The same key means the same alert, as long as it is not resolved.
    pub dedup: String,
    /// `certificate.expiring`.
    pub kind: String,
    /// `certificate/UUID`.
    pub subject: String,
    /// How bad.
    pub severity: Severity,
    /// One line for people.
    pub title: String,
    /// JSON.
    pub attributes: String,
    /// The silence that keeps it quiet.
    pub silenced_by: Option<Uuid>,
    /// When it happened, µs.
    pub at_us: i64,
    /// Time of escalation unless acknowledged, µs.
    pub escalate_at_us: Option<i64>,
}

/// An alert as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRow {
    /// Its row.
    pub row: i64,
    /// Its identity.
    pub id: Uuid,
    /// Kind of the event.
    pub kind: String,
    /// The subject.
    pub subject: String,
    /// How bad.
    pub severity: Severity,
    /// One line for people.
    pub title: String,
    /// JSON.
    pub attributes: String,
    /// The state.
    pub state: AlertState,
    /// The silence that keeps it quiet.
    pub silenced_by: Option<Uuid>,
    /// First and last time it happened, µs.
    pub first_at_us: i64,
    /// See `first_at_us`.
    pub last_at_us: i64,
    /// How often.
    pub count: i64,
    /// Actor that acknowledged it.
    pub acknowledged_by: Option<String>,
    /// Since when, µs.
    pub acknowledged_at_us: Option<i64>,
    /// Time at which it was resolved, µs.
    pub resolved_at_us: Option<i64>,
}

/// A message to a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertDeliveryRow {
    /// Its identity.
    pub id: Uuid,
    /// The alert's row.
    pub alert: i64,
    /// The channel.
    pub channel: Uuid,
    /// Why.
    pub reason: MessageReason,
    /// The state.
    pub state: DeliveryState,
    /// Tries so far.
    pub attempts: i64,
    /// The next try, µs.
    pub next_at_us: i64,
    /// Why the last one failed.
    pub last_error: Option<String>,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of delivery, or of the last attempt, µs.
    pub done_at_us: Option<i64>,
}

/// A message to make.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAlertDelivery {
    /// The alert's row.
    pub alert: i64,
    /// The channel.
    pub channel: Uuid,
    /// Why.
    pub reason: MessageReason,
    /// Waiting, or held for the digest.
    pub state: DeliveryState,
    /// When to send it, µs.
    pub at_us: i64,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertDeliveryOutcome {
    /// Which message.
    pub id: Uuid,
    /// Waiting for another try, sent or dead.
    pub state: DeliveryState,
    /// The next try, µs.
    pub next_at_us: i64,
    /// The error.
    pub error: Option<String>,
}

/// When a certificate next comes near its end.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertScheduleRow {
    /// `certificate/UUID`.
    pub subject: String,
    /// The next threshold, µs.
    pub next_at_us: i64,
    /// µs.
    pub not_before_us: i64,
    /// µs.
    pub not_after_us: i64,
    /// JSON.
    pub attributes: String,
}

/// `next_at` of a certificate past its last threshold.
pub const NO_THRESHOLD_US: i64 = i64::MAX;

/// An alert raised: its row, and whether it is a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Raised {
    /// Its row.
    pub row: i64,
    /// Its key.
    pub dedup: String,
    /// Whether it was not there before.
    pub new: bool,
}

/// Raises alerts; those with a key already there are counted instead. Open alerts of the same kind and subject with
/// another key are resolved: a nearer threshold takes the place of a farther one.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn raise_alerts(tx: &mut Tx, alerts: Vec<NewAlert>) -> Result<Vec<Raised>, StoreError> {
    // One row may be touched once by a statement: repeats in one batch are counted here.
    let mut distinct: Vec<(NewAlert, i64)> = Vec::with_capacity(alerts.len());
    let mut places = std::collections::HashMap::new();
    for alert in alerts {
        match places.get(&alert.dedup) {
            Some(&place) => {
                let (known, count): &mut (NewAlert, i64) = &mut distinct[place];
                *known = alert;
                *count += 1;
            }
            None => {
                places.insert(alert.dedup.clone(), distinct.len());
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

/// Resolves the alerts of kinds and subjects; answers the rows of those that were open and not silenced.
///
/// # Errors
/// Those of the database.
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

/// The channels that took a message about an alert, or will: one waits for them.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn channels_notified(tx: &mut Tx, alert: i64) -> Result<Vec<Uuid>, StoreError> {
    let notified = tx.rows(NOTIFIED, vec![alert.into()]).await?;
    notified
        .into_iter()
        .map(|mut row| {
            row.skip()?;
            row.uuid()
        })
        .collect()
}

/// Makes messages; one that is there already is left as it is.
///
/// # Errors
/// Those of the database.
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

/// Notes when certificates come near their end.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn schedule_alerts(tx: &mut Tx, all: Vec<AlertScheduleRow>) -> Result<(), StoreError> {
    // The last word on a subject counts.
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

/// Forgets when certificates come near their end.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn unschedule_alerts(tx: &mut Tx, subjects: Vec<String>) -> Result<(), StoreError> {
    tx.bulk(&UNSCHEDULE, vec![Column::Text(subjects)]).await.map(drop)
}

/// Marks alerts as told to more people.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn alerts_escalated(tx: &mut Tx, rows: Vec<i64>) -> Result<(), StoreError> {
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

/// Changes a channel that still has its revision.
///
/// # Errors
/// [`StoreError::Stale`] when it was changed meanwhile; [`StoreError::Conflict`] when the name is taken.
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

/// Removes a channel; false when there was none.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_alert_channel(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(CHANNEL_DELETE, vec![id.into()]).await? == 1)
}

/// Stores a rule, silence or the settings under `sort`.
///
/// # Errors
/// [`StoreError::Conflict`] when another has the name.
#[crate::boxed]
pub async fn put_alert_document(
    tx: &mut Tx,
    sort: &'static str,
    document: &AlertDocument,
) -> Result<(), StoreError> {
    let parameters = vec![
        document.id.into(),
        sort.into(),
        document.name.as_str().into(),
        document.body.as_str().into(),
        document.updated_by.as_str().into(),
        document.updated_at_us.into(),
    ];
    tx.execute(DOCUMENT_PUT, parameters).await.map(drop)
}

/// Removes a rule or silence; false when there was none.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_alert_document(tx: &mut Tx, sort: &'static str, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DOCUMENT_DELETE, vec![sort.into(), id.into()]).await? == 1)
}

/// Somebody takes care of an alert; false when it is not open.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn acknowledge_alert(tx: &mut Tx, id: Uuid, by: &str, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(ACKNOWLEDGE, vec![id.into(), by.into(), now_us.into()]).await? == 1)
}

/// Resolves an alert by hand; false if it is resolved already.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn resolve_alert(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(RESOLVE_ONE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Puts a dead message back into the queue; false when it is not dead.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn requeue_alert_delivery(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(REQUEUE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Puts every dead message of a channel back into the queue; answers how many.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn requeue_alert_channel(tx: &mut Tx, channel: Uuid, now_us: i64) -> Result<u64, StoreError> {
    tx.execute(REQUEUE_CHANNEL, vec![channel.into(), now_us.into()]).await
}

impl Alerts<'_> {
    /// Every channel, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn channels(self) -> Result<Vec<AlertChannelRow>, StoreError> {
        self.0.rows(Cost::Walk, CHANNELS, Vec::new()).await?.into_iter().map(channel_of).collect()
    }

    /// One channel.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn channel(self, id: Uuid) -> Result<Option<AlertChannelRow>, StoreError> {
        self.0.row(CHANNEL, vec![id.into()]).await?.map(channel_of).transpose()
    }

    /// Every rule, silence or setting of a sort, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn documents(self, sort: &'static str) -> Result<Vec<AlertDocument>, StoreError> {
        let rows = self.0.rows(Cost::Walk, DOCUMENTS, vec![sort.into()]).await?;
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

    /// One alert.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn get(self, id: Uuid) -> Result<Option<AlertRow>, StoreError> {
        self.0.row(ALERT, vec![id.into()]).await?.map(alert_of).transpose()
    }

    /// Alerts in a state, the latest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn page(
        self,
        state: AlertState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AlertRow>, StoreError> {
        let key = key_or(after, "alerts", &[Value::Int(i64::MAX), Value::Int(i64::MAX)])?;
        let (limit, asked) = limit_of(limit);
        let mut parameters = vec![state.code().into()];
        parameters.extend(key);
        let rows = self.0.rows(Cost::Walk, ALERTS, with_limit(parameters, asked)).await?;
        page(rows, limit, "alerts", |row| {
            let alert = alert_of(row)?;
            let key = vec![alert.last_at_us.into(), alert.row.into()];
            Ok((alert, key))
        })
    }

    /// Alerts by their rows.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn by_row(self, rows: Vec<i64>) -> Result<Vec<AlertRow>, StoreError> {
        let found = self
            .0
            .write("alert_rows", move |tx| {
                async move { tx.bulk(&ALERT_ROW, vec![Column::Int(rows)]).await }.boxed()
            })
            .await?;
        found.into_iter().map(alert_of).collect()
    }

    /// Messages of an alert.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn deliveries_of(self, alert: i64) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        self.0
            .rows(Cost::Walk, DELIVERIES_OF, vec![alert.into()])
            .await?
            .into_iter()
            .map(delivery_of)
            .collect()
    }

    /// Messages in a state, the latest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn deliveries(
        self,
        state: DeliveryState,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AlertDeliveryRow>, StoreError> {
        let key = key_or(after, "alert-deliveries", &[Value::Int(i64::MAX)])?;
        let (limit, asked) = limit_of(limit);
        let mut parameters = vec![state.code().into()];
        parameters.extend(key);
        let rows = self.0.rows(Cost::Walk, DELIVERIES, with_limit(parameters, asked)).await?;
        page(rows, limit, "alert-deliveries", |mut row| {
            let delivery = delivery_from(&mut row)?;
            Ok((delivery, vec![row.int()?.into()]))
        })
    }

    /// Takes messages that are due, so that no other node sends them before `until_us`.
    ///
    /// # Errors
    /// Those of the database.
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
        found.into_iter().map(delivery_of).collect()
    }

    /// Notes how tries ended, and how their channels do: pairs of a message and its channel.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn settle_deliveries(
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

    /// Messages held for the digest, made before a time.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn held_deliveries(
        self,
        before_us: i64,
        limit: i64,
    ) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        let rows = self.0.rows(Cost::Walk, HELD, vec![before_us.into(), limit.into()]).await?;
        rows.into_iter().map(delivery_of).collect()
    }

    /// Certificates that reached a threshold, the earliest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn schedule_due(self, now_us: i64, limit: i64) -> Result<Vec<AlertScheduleRow>, StoreError> {
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

    /// Open alerts that were not acknowledged before their escalation time.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn escalating(self, now_us: i64, limit: i64) -> Result<Vec<AlertRow>, StoreError> {
        let rows = self.0.rows(Cost::Walk, ESCALATING, vec![now_us.into(), limit.into()]).await?;
        rows.into_iter().map(alert_of).collect()
    }

    /// Forgets alerts that were over before a time, and their messages.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn trim(self, before_us: i64) -> Result<u64, StoreError> {
        self.0
            .write("alerts_trim", move |tx| {
                async move {
                    let gone = tx.execute(TRIM, vec![before_us.into()]).await?;
                    if gone > 0 {
                        tx.execute(TRIM_DELIVERIES, Vec::new()).await?;
                    }
                    Ok(gone)
                }
                .boxed()
            })
            .await
    }
}

fn channel_of(mut row: Row) -> Result<AlertChannelRow, StoreError> {
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

fn alert_of(mut row: Row) -> Result<AlertRow, StoreError> {
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

fn delivery_of(mut row: Row) -> Result<AlertDeliveryRow, StoreError> {
    delivery_from(&mut row)
}

fn delivery_from(row: &mut Row) -> Result<AlertDeliveryRow, StoreError> {
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
pub const STATEMENTS: &[Sends] = &[Sends::of(ALL, BULKS)];
