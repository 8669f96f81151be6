//! SQL statements about alerts.

use db::BulkStatement;
use store::states::{AlertState, DeliveryState};
use store::{SealedColumn, sealed_column};

/// The sealed configurations of channels, for the rotation of the master key.
pub const SEALED_CHANNELS: SealedColumn = sealed_column!("alert_channels", "uuid" Uuid "uuid", "config");

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

pub(super) const CHANNELS: &str = channels!("alert_channels", "ORDER BY name");
pub(super) const CHANNEL: &str = channels!("alert_channel", "WHERE uuid = ?1");

pub(super) const CHANNEL_INSERT: &str = "-- alert_channel_insert
INSERT INTO alert_channels (uuid, name, kind, config, enabled, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)";

pub(super) const CHANNEL_UPDATE: &str = "-- alert_channel_update
UPDATE alert_channels SET name = ?3, kind = ?4, config = ?5, enabled = ?6, revision = revision + 1, updated_at = ?7
WHERE uuid = ?1 AND revision = ?2";

pub(super) const CHANNEL_DELETE: &str = "-- alert_channel_delete
DELETE FROM alert_channels WHERE uuid = ?1";

pub(super) const CHANNEL_HEALTH: BulkStatement = db::bulk! { (uuid uuid, good bigint, bad bigint, error text)
    "-- alert_channel_health
UPDATE alert_channels SET last_success_at = COALESCE(:good, last_success_at), last_error_at = COALESCE(:bad,
  last_error_at), last_error = CASE WHEN :good IS NULL THEN :error ELSE NULL END WHERE uuid = :uuid"
};

pub(super) const DOCUMENTS: &str = "-- alert_documents
SELECT uuid, name, body, updated_by, updated_at FROM alert_documents WHERE sort = ?1 ORDER BY name, uuid";

pub(super) const DOCUMENT_PUT: &str = "-- alert_document_put
INSERT INTO alert_documents (uuid, sort, name, body, updated_by, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, body = excluded.body, updated_by = excluded.updated_by,
updated_at = excluded.updated_at";

pub(super) const DOCUMENT_DELETE: &str = "-- alert_document_delete
DELETE FROM alert_documents WHERE sort = ?1 AND uuid = ?2";

macro_rules! with_states {
    ($text:expr) => {
        db::with_codes!([AlertState::{Open, Acknowledged, Resolved}, DeliveryState::{Waiting, Sent, Dead, Held}] $text)
    };
}

pub(super) const RAISE: BulkStatement = db::bulk! {
    (uuid uuid, dedup text, kind text, subject text, severity bigint, title text, attributes text,
     silenced_by uuid, at bigint, count bigint, escalate_at bigint)
    with_states!("-- alert_raise
INSERT INTO alerts (uuid, dedup, kind, subject, severity, title, attributes, state, silenced_by, first_at, last_at,
                    count, escalate_at)
VALUES (:uuid, :dedup, :kind, :subject, :severity, :title, :attributes, {AlertState::Open},
  :silenced_by, :at, :at, :count, :escalate_at){| ORDER BY :dedup}
ON CONFLICT (dedup) DO UPDATE SET last_at = {MAX|GREATEST}(alerts.last_at, excluded.last_at),
count = alerts.count + excluded.count, severity = excluded.severity, title = excluded.title,
attributes = excluded.attributes
RETURNING id, uuid, dedup")
};

/// Resolves the alerts of a subject and kind, except the alert with the given key.
pub(super) const RESOLVE: BulkStatement = db::bulk! { (subject text, kind text, dedup text, at bigint)
    with_states!("-- alert_resolve
UPDATE alerts SET state = {AlertState::Resolved}, resolved_at = :at, dedup = dedup || '#' || id, escalate_at = NULL
WHERE subject = :subject AND kind = :kind AND dedup <> :dedup
  AND state < {AlertState::Resolved} RETURNING id, silenced_by")
};

pub(super) const DELIVER: BulkStatement = db::bulk! { (uuid uuid, alert bigint, channel uuid, reason text, state bigint, at bigint)
    "-- alert_deliver
INSERT INTO alert_deliveries (uuid, alert_id, channel, reason, state, attempts, next_at, created_at)
VALUES (:uuid, :alert, :channel, :reason, :state, 0, :at, :at) ON CONFLICT DO NOTHING"
};

/// Returns the channels that are notified of the alert ?1. A waiting message counts, because it is sent even if its alert has been
/// resolved in the meantime.
pub(super) const NOTIFIED: &str = with_states!(
    "-- alert_channels_notified
SELECT DISTINCT alert_id, channel FROM alert_deliveries
WHERE alert_id = ?1 AND state IN ({DeliveryState::Sent}, {DeliveryState::Waiting})"
);

/// Claims messages. A channel gets the messages about one alert in order: "resolved" never overtakes "raised".
pub(super) const CLAIM: BulkStatement = db::bulk! {
    with_states!("-- alert_delivery_claim
UPDATE alert_deliveries SET next_at = ?2, attempts = attempts + 1
WHERE id IN (SELECT id FROM alert_deliveries d WHERE state = {DeliveryState::Waiting} AND next_at <= ?1
  AND NOT EXISTS (SELECT 1 FROM alert_deliveries e WHERE e.alert_id = d.alert_id AND e.channel = d.channel AND e.id < d.id
                  AND e.state = {DeliveryState::Waiting})
  ORDER BY next_at, id LIMIT ?3{| FOR UPDATE SKIP LOCKED})
RETURNING uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at")
};

pub(super) const SETTLE: BulkStatement = db::bulk! { (uuid uuid, state bigint, at bigint, error text, done bigint)
    "-- alert_delivery_settle
UPDATE alert_deliveries SET state = :state, next_at = :at, last_error = :error, done_at = :done WHERE uuid = :uuid"
};

pub(super) const HELD: &str = with_states!(
    "-- alert_deliveries_held
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at
FROM alert_deliveries WHERE state = {DeliveryState::Held} AND created_at < ?1 ORDER BY id LIMIT ?2"
);

pub(super) const DELIVERIES: &str = "-- alert_deliveries
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at, id
FROM alert_deliveries WHERE state = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

pub(super) const DELIVERIES_OF: &str = "-- alert_deliveries_of
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at
FROM alert_deliveries WHERE alert_id = ?1 ORDER BY id LIMIT 1000";

pub(super) const REQUEUE: &str = with_states!(
    "-- alert_delivery_requeue
UPDATE alert_deliveries SET state = {DeliveryState::Waiting}, attempts = 0, next_at = ?2, done_at = NULL
  WHERE uuid = ?1 AND state = {DeliveryState::Dead}"
);

pub(super) const REQUEUE_CHANNEL: &str = with_states!(
    "-- alert_delivery_requeue_channel
UPDATE alert_deliveries SET state = {DeliveryState::Waiting}, attempts = 0, next_at = ?2, done_at = NULL
  WHERE channel = ?1 AND state = {DeliveryState::Dead}"
);

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

pub(super) const ALERT: &str = alerts!("alert", "WHERE a.uuid = ?1");
pub(super) const ALERTS: &str = alerts!(
    "alerts",
    "WHERE a.state = ?1 AND (a.last_at, a.id) < (?2, ?3) ORDER BY a.last_at DESC, a.id DESC LIMIT ?4"
);
pub(super) const ALERT_ROW: BulkStatement = db::bulk! { (id bigint)
    alerts!("alert_rows", "WHERE a.id = {any id}")
};
pub(super) const ESCALATING: &str = with_states!(alerts!(
    "alerts_escalating",
    "WHERE a.escalate_at <= ?1 AND a.state = {AlertState::Open} ORDER BY a.escalate_at LIMIT ?2"
));

pub(super) const ESCALATED: BulkStatement = db::bulk! { (id bigint)
    "-- alert_escalated
UPDATE alerts SET escalate_at = NULL WHERE id = {any id}"
};

pub(super) const ACKNOWLEDGE: &str = with_states!("-- alert_acknowledge
UPDATE alerts SET state = {AlertState::Acknowledged}, acknowledged_by = ?2, acknowledged_at = ?3, escalate_at = NULL
WHERE uuid = ?1 AND state = {AlertState::Open}");

pub(super) const RESOLVE_ONE: &str = with_states!("-- alert_resolve_one
UPDATE alerts SET state = {AlertState::Resolved}, resolved_at = ?2, dedup = dedup || '#' || id, escalate_at = NULL
WHERE uuid = ?1 AND state < {AlertState::Resolved}");

pub(super) const SCHEDULE: BulkStatement = db::bulk! {
    (subject text, next_at bigint, not_before bigint, not_after bigint, attributes text)
    "-- alert_schedule
INSERT INTO alert_schedule (subject, next_at, not_before, not_after, attributes) VALUES (:subject, :next_at,
  :not_before, :not_after, :attributes)
ON CONFLICT (subject) DO UPDATE SET next_at = excluded.next_at, not_before = excluded.not_before,
not_after = excluded.not_after, attributes = excluded.attributes"
};

pub(super) const UNSCHEDULE: BulkStatement = db::bulk! { (subject text)
    "-- alert_unschedule
DELETE FROM alert_schedule WHERE subject = {any subject}"
};

pub(super) const SCHEDULE_DUE: &str = "-- alert_schedule_due
SELECT subject, next_at, not_before, not_after, attributes FROM alert_schedule
WHERE next_at <= ?1 ORDER BY next_at, subject LIMIT ?2";

pub(super) const TRIM: &str = with_states!(
    "-- alerts_trim
DELETE FROM alerts WHERE state = {AlertState::Resolved} AND last_at < ?1"
);

pub(super) const TRIM_DELIVERIES: &str = "-- alert_deliveries_trim
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
    NOTIFIED,
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
    SEALED_CHANNELS.heads,
];
pub(crate) const BULKS: &[&BulkStatement] = &[
    &CLAIM,
    &CHANNEL_HEALTH,
    &RAISE,
    &RESOLVE,
    &DELIVER,
    &SETTLE,
    &ALERT_ROW,
    &ESCALATED,
    &SCHEDULE,
    &UNSCHEDULE,
];
