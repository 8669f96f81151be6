//! Alerts, deliveries, channels, rules and silences; when certificates come near their end.

use futures_util::FutureExt;
use uuid::Uuid;

use crate::cursor::{Cursor, Page};
use crate::error::StoreError;
use crate::keys::{SealedColumn, sealed_column};
use crate::scans::{key_or, page, with_limit};
use crate::store::{Cost, Store, limit_of};
use crate::tx::{Bulk, Column, Tx};
use crate::value::{Row, Value};

/// Where messages go.
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
    /// Who changed it last.
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
    /// 0 info to 4 critical.
    pub severity: i64,
    /// One line for people.
    pub title: String,
    /// JSON.
    pub attributes: String,
    /// The silence that keeps it quiet.
    pub silenced_by: Option<Uuid>,
    /// When it happened, µs.
    pub at_us: i64,
    /// When it is told to more people unless somebody acknowledges it, µs.
    pub escalate_at_us: Option<i64>,
}

/// An alert as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRow {
    /// Its row.
    pub row: i64,
    /// Its identity.
    pub id: Uuid,
    /// What kind.
    pub kind: String,
    /// Of what.
    pub subject: String,
    /// 0 info to 4 critical.
    pub severity: i64,
    /// One line for people.
    pub title: String,
    /// JSON.
    pub attributes: String,
    /// 0 open, 1 acknowledged, 2 resolved.
    pub state: i64,
    /// The silence that keeps it quiet.
    pub silenced_by: Option<Uuid>,
    /// First and last time it happened, µs.
    pub first_at_us: i64,
    /// See `first_at_us`.
    pub last_at_us: i64,
    /// How often.
    pub count: i64,
    /// Who takes care.
    pub acknowledged_by: Option<String>,
    /// Since when, µs.
    pub acknowledged_at_us: Option<i64>,
    /// When it was over, µs.
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
    /// `raised`, `escalated`, `resolved`.
    pub reason: String,
    /// 0 waiting, 1 sent, 2 dead, 3 held for the digest.
    pub state: i64,
    /// Tries so far.
    pub attempts: i64,
    /// The next try, µs.
    pub next_at_us: i64,
    /// Why the last one failed.
    pub last_error: Option<String>,
    /// When it was made, µs.
    pub created_at_us: i64,
    /// When it was sent or given up, µs.
    pub done_at_us: Option<i64>,
}

/// A message to make.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAlertDelivery {
    /// The alert's row.
    pub alert: i64,
    /// The channel.
    pub channel: Uuid,
    /// `raised`, `escalated`, `resolved`.
    pub reason: String,
    /// 0 waiting or 3 held for the digest.
    pub state: i64,
    /// When to send it, µs.
    pub at_us: i64,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertDeliveryOutcome {
    /// Which message.
    pub id: Uuid,
    /// 0 try again, 1 sent, 2 dead.
    pub state: i64,
    /// The next try, µs.
    pub next_at_us: i64,
    /// Why it failed.
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

/// The channels' configurations, for the rotation of the master key.
pub const SEALED_CHANNELS: SealedColumn = sealed_column!("alert_channels", "uuid" Uuid "uuid", "config");

/// `next_at` of a certificate past its last threshold.
pub const NO_THRESHOLD_US: i64 = i64::MAX;

macro_rules! channels {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT uuid, name, kind, config, enabled, revision, last_success_at, last_error_at, last_error \
             FROM alert_channels ",
            $rest
        )
    };
}

const CHANNELS: &str = channels!("alert_channels", "ORDER BY name");
const CHANNEL: &str = channels!("alert_channel", "WHERE uuid = ?1");

const CHANNEL_INSERT: &str = "-- alert_channel_insert
INSERT INTO alert_channels (uuid, name, kind, config, enabled, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)";

const CHANNEL_UPDATE: &str = "-- alert_channel_update
UPDATE alert_channels SET name = ?3, kind = ?4, config = ?5, enabled = ?6, revision = revision + 1, updated_at = ?7
WHERE uuid = ?1 AND revision = ?2";

const CHANNEL_DELETE: &str = "-- alert_channel_delete
DELETE FROM alert_channels WHERE uuid = ?1";

const CHANNEL_HEALTH: Bulk = Bulk {
    sqlite: "-- alert_channel_health
UPDATE alert_channels SET last_success_at = COALESCE(?2, last_success_at), last_error_at = COALESCE(?3, last_error_at),
                          last_error = CASE WHEN ?2 IS NULL THEN ?4 ELSE NULL END WHERE uuid = ?1",
    postgres: "-- alert_channel_health
UPDATE alert_channels c SET last_success_at = COALESCE(u.good, c.last_success_at),
       last_error_at = COALESCE(u.bad, c.last_error_at), last_error = CASE WHEN u.good IS NULL THEN u.error END
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::text[]) AS u (uuid, good, bad, error) WHERE c.uuid = u.uuid",
};

const DOCUMENTS: &str = "-- alert_documents
SELECT uuid, name, body, updated_by, updated_at FROM alert_documents WHERE sort = ?1 ORDER BY name, uuid";

const DOCUMENT_PUT: &str = "-- alert_document_put
INSERT INTO alert_documents (uuid, sort, name, body, updated_by, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, body = excluded.body, updated_by = excluded.updated_by,
updated_at = excluded.updated_at";

const DOCUMENT_DELETE: &str = "-- alert_document_delete
DELETE FROM alert_documents WHERE sort = ?1 AND uuid = ?2";

const RAISE: Bulk = Bulk {
    sqlite: "-- alert_raise
INSERT INTO alerts (uuid, dedup, kind, subject, severity, title, attributes, state, silenced_by, first_at, last_at,
                    count, escalate_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?9, ?10, ?11)
ON CONFLICT (dedup) DO UPDATE SET last_at = MAX(alerts.last_at, excluded.last_at),
count = alerts.count + excluded.count, severity = excluded.severity, title = excluded.title,
attributes = excluded.attributes
RETURNING id, uuid, dedup",
    postgres: "-- alert_raise
INSERT INTO alerts (uuid, dedup, kind, subject, severity, title, attributes, state, silenced_by, first_at, last_at,
                    count, escalate_at)
SELECT uuid, dedup, kind, subject, severity, title, attributes, 0, silenced_by, at, at, count, escalate_at
FROM UNNEST(?1::uuid[], ?2::text[], ?3::text[], ?4::text[], ?5::bigint[], ?6::text[], ?7::text[], ?8::uuid[],
            ?9::bigint[], ?10::bigint[], ?11::bigint[])
     AS n (uuid, dedup, kind, subject, severity, title, attributes, silenced_by, at, count, escalate_at)
ORDER BY dedup
ON CONFLICT (dedup) DO UPDATE SET last_at = GREATEST(alerts.last_at, excluded.last_at),
count = alerts.count + excluded.count, severity = excluded.severity, title = excluded.title,
attributes = excluded.attributes
RETURNING id, uuid, dedup",
};

/// Alerts of a subject that are over: all of a kind but the one with the key given.
const RESOLVE: Bulk = Bulk {
    sqlite: "-- alert_resolve
UPDATE alerts SET state = 2, resolved_at = ?4, dedup = dedup || '#' || id, escalate_at = NULL
WHERE subject = ?1 AND kind = ?2 AND dedup <> ?3 AND state < 2 RETURNING id, silenced_by",
    postgres: "-- alert_resolve
UPDATE alerts a SET state = 2, resolved_at = u.at, dedup = a.dedup || '#' || a.id, escalate_at = NULL
FROM UNNEST(?1::text[], ?2::text[], ?3::text[], ?4::bigint[]) AS u (subject, kind, dedup, at)
WHERE a.subject = u.subject AND a.kind = u.kind AND a.dedup <> u.dedup AND a.state < 2 RETURNING a.id, a.silenced_by",
};

const DELIVER: Bulk = Bulk {
    sqlite: "-- alert_deliver
INSERT INTO alert_deliveries (uuid, alert_id, channel, reason, state, attempts, next_at, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?6) ON CONFLICT DO NOTHING",
    postgres: "-- alert_deliver
INSERT INTO alert_deliveries (uuid, alert_id, channel, reason, state, attempts, next_at, created_at)
SELECT uuid, alert, channel, reason, state, 0, at, at
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::uuid[], ?4::text[], ?5::bigint[], ?6::bigint[])
     AS n (uuid, alert, channel, reason, state, at) ON CONFLICT DO NOTHING",
};

/// Channels that were told of alerts now resolved are told that too.
const TOLD: &str = "-- alert_told
SELECT DISTINCT alert_id, channel FROM alert_deliveries WHERE alert_id = ?1 AND state = 1";

const CLAIM_SQLITE: &str = "-- alert_delivery_claim
UPDATE alert_deliveries SET next_at = ?2, attempts = attempts + 1
WHERE id IN (SELECT id FROM alert_deliveries WHERE state = 0 AND next_at <= ?1 ORDER BY next_at, id LIMIT ?3)
RETURNING uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at";

const CLAIM_POSTGRES: &str = "-- alert_delivery_claim
UPDATE alert_deliveries SET next_at = ?2, attempts = attempts + 1
WHERE id IN (SELECT id FROM alert_deliveries WHERE state = 0 AND next_at <= ?1 ORDER BY next_at, id LIMIT ?3
             FOR UPDATE SKIP LOCKED)
RETURNING uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at";

const SETTLE: Bulk = Bulk {
    sqlite: "-- alert_delivery_settle
UPDATE alert_deliveries SET state = ?2, next_at = ?3, last_error = ?4, done_at = ?5 WHERE uuid = ?1",
    postgres: "-- alert_delivery_settle
UPDATE alert_deliveries d SET state = u.state, next_at = u.at, last_error = u.error, done_at = u.done
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::text[], ?5::bigint[]) AS u (uuid, state, at, error, done)
WHERE d.uuid = u.uuid",
};

const HELD: &str = "-- alert_deliveries_held
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at
FROM alert_deliveries WHERE state = 3 AND created_at < ?1 ORDER BY id LIMIT ?2";

const DELIVERIES: &str = "-- alert_deliveries
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at, id
FROM alert_deliveries WHERE state = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

const DELIVERIES_OF: &str = "-- alert_deliveries_of
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at
FROM alert_deliveries WHERE alert_id = ?1 ORDER BY id LIMIT 1000";

const REQUEUE: &str = "-- alert_delivery_requeue
UPDATE alert_deliveries SET state = 0, attempts = 0, next_at = ?2, done_at = NULL WHERE uuid = ?1 AND state = 2";

const REQUEUE_CHANNEL: &str = "-- alert_delivery_requeue_channel
UPDATE alert_deliveries SET state = 0, attempts = 0, next_at = ?2, done_at = NULL WHERE channel = ?1 AND state = 2";

macro_rules! alerts {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT a.id, a.uuid, a.kind, a.subject, a.severity, a.title, a.attributes, a.state, a.silenced_by, \
             a.first_at, a.last_at, a.count, a.acknowledged_by, a.acknowledged_at, a.resolved_at FROM alerts a ",
            $rest
        )
    };
}

const ALERT: &str = alerts!("alert", "WHERE a.uuid = ?1");
const ALERTS: &str = alerts!(
    "alerts",
    "WHERE a.state = ?1 AND (a.last_at, a.id) < (?2, ?3) ORDER BY a.last_at DESC, a.id DESC LIMIT ?4"
);
const ALERT_ROW: Bulk = Bulk {
    sqlite: alerts!("alert_rows", "WHERE a.id = ?1"),
    postgres: alerts!("alert_rows", "WHERE a.id = ANY(?1::bigint[])"),
};
const ESCALATING: &str =
    alerts!("alerts_escalating", "WHERE a.escalate_at <= ?1 AND a.state = 0 ORDER BY a.escalate_at LIMIT ?2");

const ESCALATED: Bulk = Bulk {
    sqlite: "-- alert_escalated
UPDATE alerts SET escalate_at = NULL WHERE id = ?1",
    postgres: "-- alert_escalated
UPDATE alerts SET escalate_at = NULL WHERE id = ANY(?1::bigint[])",
};

const ACKNOWLEDGE: &str = "-- alert_acknowledge
UPDATE alerts SET state = 1, acknowledged_by = ?2, acknowledged_at = ?3, escalate_at = NULL WHERE uuid = ?1 AND state = 0";

const RESOLVE_ONE: &str = "-- alert_resolve_one
UPDATE alerts SET state = 2, resolved_at = ?2, dedup = dedup || '#' || id, escalate_at = NULL
WHERE uuid = ?1 AND state < 2";

const SCHEDULE: Bulk = Bulk {
    sqlite: "-- alert_schedule
INSERT INTO alert_schedule (subject, next_at, not_before, not_after, attributes) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (subject) DO UPDATE SET next_at = excluded.next_at, not_before = excluded.not_before,
not_after = excluded.not_after, attributes = excluded.attributes",
    postgres: "-- alert_schedule
INSERT INTO alert_schedule (subject, next_at, not_before, not_after, attributes)
SELECT * FROM UNNEST(?1::text[], ?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::text[])
ON CONFLICT (subject) DO UPDATE SET next_at = excluded.next_at, not_before = excluded.not_before,
not_after = excluded.not_after, attributes = excluded.attributes",
};

const UNSCHEDULE: Bulk = Bulk {
    sqlite: "-- alert_unschedule
DELETE FROM alert_schedule WHERE subject = ?1",
    postgres: "-- alert_unschedule
DELETE FROM alert_schedule WHERE subject = ANY(?1::text[])",
};

const SCHEDULE_DUE: &str = "-- alert_schedule_due
SELECT subject, next_at, not_before, not_after, attributes FROM alert_schedule
WHERE next_at <= ?1 ORDER BY next_at, subject LIMIT ?2";

const TRIM: &str = "-- alerts_trim
DELETE FROM alerts WHERE state = 2 AND last_at < ?1";

const TRIM_DELIVERIES: &str = "-- alert_deliveries_trim
DELETE FROM alert_deliveries WHERE NOT EXISTS (SELECT 1 FROM alerts a WHERE a.id = alert_deliveries.alert_id)";

pub(crate) const ALL: &[&str] = &[
    CHANNELS,
    CHANNEL,
    CHANNEL_INSERT,
    CHANNEL_UPDATE,
    CHANNEL_DELETE,
    DOCUMENTS,
    DOCUMENT_PUT,
    DOCUMENT_DELETE,
    TOLD,
    HELD,
    DELIVERIES,
    DELIVERIES_OF,
    REQUEUE,
    REQUEUE_CHANNEL,
    ALERT,
    ALERTS,
    ESCALATING,
    ACKNOWLEDGE,
    RESOLVE_ONE,
    SCHEDULE_DUE,
    TRIM,
    TRIM_DELIVERIES,
    SEALED_CHANNELS.page,
    SEALED_CHANNELS.count,
];
pub(crate) const SQLITE: &[&str] = &[CLAIM_SQLITE];
pub(crate) const POSTGRES: &[&str] = &[CLAIM_POSTGRES];
pub(crate) const BULKS: &[&Bulk] =
    &[&CHANNEL_HEALTH, &RAISE, &RESOLVE, &DELIVER, &SETTLE, &ALERT_ROW, &ESCALATED, &SCHEDULE, &UNSCHEDULE];

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
        Column::Int(distinct.iter().map(|(alert, _)| alert.severity).collect()),
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

/// Channels that took a message about an alert.
///
/// # Errors
/// Those of the database.
pub async fn channels_told(tx: &mut Tx, alert: i64) -> Result<Vec<Uuid>, StoreError> {
    let told = tx.rows(TOLD, vec![alert.into()]).await?;
    told.into_iter()
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
pub async fn insert_alert_deliveries(tx: &mut Tx, all: Vec<NewAlertDelivery>) -> Result<(), StoreError> {
    let columns = vec![
        Column::Uuid(all.iter().map(|_| Uuid::now_v7()).collect()),
        Column::Int(all.iter().map(|one| one.alert).collect()),
        Column::Uuid(all.iter().map(|one| one.channel).collect()),
        Column::Text(all.iter().map(|one| one.reason.clone()).collect()),
        Column::Int(all.iter().map(|one| one.state).collect()),
        Column::Int(all.iter().map(|one| one.at_us).collect()),
    ];
    tx.bulk(&DELIVER, columns).await.map(drop)
}

/// Notes when certificates come near their end.
///
/// # Errors
/// Those of the database.
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
pub async fn unschedule_alerts(tx: &mut Tx, subjects: Vec<String>) -> Result<(), StoreError> {
    tx.bulk(&UNSCHEDULE, vec![Column::Text(subjects)]).await.map(drop)
}

/// Marks alerts as told to more people.
///
/// # Errors
/// Those of the database.
pub async fn alerts_escalated(tx: &mut Tx, rows: Vec<i64>) -> Result<(), StoreError> {
    tx.bulk(&ESCALATED, vec![Column::Int(rows)]).await.map(drop)
}

/// Adds a channel.
///
/// # Errors
/// [`StoreError::Conflict`] when the name is taken.
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
        0 => Err(StoreError::Stale("the channel is gone or was changed meanwhile: read it again".to_owned())),
        _ => Ok(()),
    }
}

/// Removes a channel; false when there was none.
///
/// # Errors
/// Those of the database.
pub async fn delete_alert_channel(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(CHANNEL_DELETE, vec![id.into()]).await? == 1)
}

/// Stores a rule, silence or the settings under `sort`.
///
/// # Errors
/// [`StoreError::Conflict`] when another has the name.
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
pub async fn delete_alert_document(tx: &mut Tx, sort: &'static str, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DOCUMENT_DELETE, vec![sort.into(), id.into()]).await? == 1)
}

/// Somebody takes care of an alert; false when it is not open.
///
/// # Errors
/// Those of the database.
pub async fn acknowledge_alert(tx: &mut Tx, id: Uuid, by: &str, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(ACKNOWLEDGE, vec![id.into(), by.into(), now_us.into()]).await? == 1)
}

/// Ends an alert by hand; false when it is over already.
///
/// # Errors
/// Those of the database.
pub async fn resolve_alert(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(RESOLVE_ONE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Puts a dead message back into the queue; false when it is not dead.
///
/// # Errors
/// Those of the database.
pub async fn requeue_alert_delivery(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(REQUEUE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Puts every dead message of a channel back into the queue; answers how many.
///
/// # Errors
/// Those of the database.
pub async fn requeue_alert_channel(tx: &mut Tx, channel: Uuid, now_us: i64) -> Result<u64, StoreError> {
    tx.execute(REQUEUE_CHANNEL, vec![channel.into(), now_us.into()]).await
}

impl Store {
    /// Every channel, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn alert_channels(&self) -> Result<Vec<AlertChannelRow>, StoreError> {
        self.rows(Cost::Walk, CHANNELS, Vec::new()).await?.into_iter().map(channel_of).collect()
    }

    /// One channel.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn alert_channel(&self, id: Uuid) -> Result<Option<AlertChannelRow>, StoreError> {
        self.row(CHANNEL, vec![id.into()]).await?.map(channel_of).transpose()
    }

    /// Every rule, silence or setting of a sort, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn alert_documents(&self, sort: &'static str) -> Result<Vec<AlertDocument>, StoreError> {
        let rows = self.rows(Cost::Walk, DOCUMENTS, vec![sort.into()]).await?;
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
    pub async fn alert(&self, id: Uuid) -> Result<Option<AlertRow>, StoreError> {
        self.row(ALERT, vec![id.into()]).await?.map(alert_of).transpose()
    }

    /// Alerts in a state (0 open, 1 acknowledged, 2 resolved), the latest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn alerts(
        &self,
        state: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AlertRow>, StoreError> {
        let key = key_or(after, "alerts", &[Value::Int(i64::MAX), Value::Int(i64::MAX)])?;
        let (limit, asked) = limit_of(limit);
        let mut parameters = vec![state.into()];
        parameters.extend(key);
        let rows = self.rows(Cost::Walk, ALERTS, with_limit(parameters, asked)).await?;
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
    pub async fn alerts_by_row(&self, rows: Vec<i64>) -> Result<Vec<AlertRow>, StoreError> {
        let found = self
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
    pub async fn deliveries_of_alert(&self, alert: i64) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        self.rows(Cost::Walk, DELIVERIES_OF, vec![alert.into()]).await?.into_iter().map(delivery_of).collect()
    }

    /// Messages in a state (0 waiting, 1 sent, 2 dead, 3 held), the latest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn alert_deliveries(
        &self,
        state: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AlertDeliveryRow>, StoreError> {
        let key = key_or(after, "alert-deliveries", &[Value::Int(i64::MAX)])?;
        let (limit, asked) = limit_of(limit);
        let mut parameters = vec![state.into()];
        parameters.extend(key);
        let rows = self.rows(Cost::Walk, DELIVERIES, with_limit(parameters, asked)).await?;
        page(rows, limit, "alert-deliveries", |mut row| {
            let delivery = delivery_from(&mut row)?;
            Ok((delivery, vec![row.int()?.into()]))
        })
    }

    /// Takes messages that are due, so that no other node sends them before `until_us`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn claim_alert_deliveries(
        &self,
        now_us: i64,
        until_us: i64,
        limit: i64,
    ) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        let found = self
            .write("alert_delivery_claim", move |tx| {
                async move {
                    let statement = if tx.is_postgres() { CLAIM_POSTGRES } else { CLAIM_SQLITE };
                    tx.rows(statement, vec![now_us.into(), until_us.into(), limit.into()]).await
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
    pub async fn settle_alert_deliveries(
        &self,
        outcomes: Vec<(AlertDeliveryOutcome, Uuid)>,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let health: std::collections::BTreeMap<Uuid, Option<String>> = outcomes
            .iter()
            .map(|(outcome, channel)| (*channel, outcome.error.clone().filter(|_| outcome.state != 1)))
            .collect();
        self.write("alert_delivery_settle", move |tx| {
            async move {
                let done = |state: i64| (state != 0).then_some(now_us);
                let columns = vec![
                    Column::Uuid(outcomes.iter().map(|(one, _)| one.id).collect()),
                    Column::Int(outcomes.iter().map(|(one, _)| one.state).collect()),
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
    pub async fn held_alert_deliveries(
        &self,
        before_us: i64,
        limit: i64,
    ) -> Result<Vec<AlertDeliveryRow>, StoreError> {
        let rows = self.rows(Cost::Walk, HELD, vec![before_us.into(), limit.into()]).await?;
        rows.into_iter().map(delivery_of).collect()
    }

    /// Certificates that reached a threshold, the earliest first.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn alert_schedule_due(
        &self,
        now_us: i64,
        limit: i64,
    ) -> Result<Vec<AlertScheduleRow>, StoreError> {
        let rows = self.rows(Cost::Walk, SCHEDULE_DUE, vec![now_us.into(), limit.into()]).await?;
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

    /// Open alerts nobody acknowledged in time.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn alerts_escalating(&self, now_us: i64, limit: i64) -> Result<Vec<AlertRow>, StoreError> {
        let rows = self.rows(Cost::Walk, ESCALATING, vec![now_us.into(), limit.into()]).await?;
        rows.into_iter().map(alert_of).collect()
    }

    /// Forgets alerts that were over before a time, and their messages.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn trim_alerts(&self, before_us: i64) -> Result<u64, StoreError> {
        self.write("alerts_trim", move |tx| {
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
        severity: row.int()?,
        title: row.text()?,
        attributes: row.text()?,
        state: row.int()?,
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
        reason: row.text()?,
        state: row.int()?,
        attempts: row.int()?,
        next_at_us: row.int()?,
        last_error: row.maybe_text()?,
        created_at_us: row.int()?,
        done_at_us: row.maybe_int()?,
    })
}
