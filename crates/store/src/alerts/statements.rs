//! What is sent to the database about alerts.

use crate::keys::{SealedColumn, sealed_column};
use db::Bulk;

/// The channels' configurations, for the rotation of the master key.
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

pub(super) const CHANNEL_HEALTH: Bulk = Bulk {
    sqlite: "-- alert_channel_health
UPDATE alert_channels SET last_success_at = COALESCE(?2, last_success_at), last_error_at = COALESCE(?3, last_error_at),
                          last_error = CASE WHEN ?2 IS NULL THEN ?4 ELSE NULL END WHERE uuid = ?1",
    postgres: "-- alert_channel_health
UPDATE alert_channels c SET last_success_at = COALESCE(u.good, c.last_success_at),
       last_error_at = COALESCE(u.bad, c.last_error_at), last_error = CASE WHEN u.good IS NULL THEN u.error END
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::text[]) AS u (uuid, good, bad, error) WHERE c.uuid = u.uuid",
};

pub(super) const DOCUMENTS: &str = "-- alert_documents
SELECT uuid, name, body, updated_by, updated_at FROM alert_documents WHERE sort = ?1 ORDER BY name, uuid";

pub(super) const DOCUMENT_PUT: &str = "-- alert_document_put
INSERT INTO alert_documents (uuid, sort, name, body, updated_by, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, body = excluded.body, updated_by = excluded.updated_by,
updated_at = excluded.updated_at";

pub(super) const DOCUMENT_DELETE: &str = "-- alert_document_delete
DELETE FROM alert_documents WHERE sort = ?1 AND uuid = ?2";

pub(super) const RAISE: Bulk = Bulk {
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
pub(super) const RESOLVE: Bulk = Bulk {
    sqlite: "-- alert_resolve
UPDATE alerts SET state = 2, resolved_at = ?4, dedup = dedup || '#' || id, escalate_at = NULL
WHERE subject = ?1 AND kind = ?2 AND dedup <> ?3 AND state < 2 RETURNING id, silenced_by",
    postgres: "-- alert_resolve
UPDATE alerts a SET state = 2, resolved_at = u.at, dedup = a.dedup || '#' || a.id, escalate_at = NULL
FROM UNNEST(?1::text[], ?2::text[], ?3::text[], ?4::bigint[]) AS u (subject, kind, dedup, at)
WHERE a.subject = u.subject AND a.kind = u.kind AND a.dedup <> u.dedup AND a.state < 2 RETURNING a.id, a.silenced_by",
};

pub(super) const DELIVER: Bulk = Bulk {
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
pub(super) const TOLD: &str = "-- alert_told
SELECT DISTINCT alert_id, channel FROM alert_deliveries WHERE alert_id = ?1 AND state = 1";

pub(super) const CLAIM_SQLITE: &str = "-- alert_delivery_claim
UPDATE alert_deliveries SET next_at = ?2, attempts = attempts + 1
WHERE id IN (SELECT id FROM alert_deliveries WHERE state = 0 AND next_at <= ?1 ORDER BY next_at, id LIMIT ?3)
RETURNING uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at";

pub(super) const CLAIM_POSTGRES: &str = "-- alert_delivery_claim
UPDATE alert_deliveries SET next_at = ?2, attempts = attempts + 1
WHERE id IN (SELECT id FROM alert_deliveries WHERE state = 0 AND next_at <= ?1 ORDER BY next_at, id LIMIT ?3
             FOR UPDATE SKIP LOCKED)
RETURNING uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at";

pub(super) const SETTLE: Bulk = Bulk {
    sqlite: "-- alert_delivery_settle
UPDATE alert_deliveries SET state = ?2, next_at = ?3, last_error = ?4, done_at = ?5 WHERE uuid = ?1",
    postgres: "-- alert_delivery_settle
UPDATE alert_deliveries d SET state = u.state, next_at = u.at, last_error = u.error, done_at = u.done
FROM UNNEST(?1::uuid[], ?2::bigint[], ?3::bigint[], ?4::text[], ?5::bigint[]) AS u (uuid, state, at, error, done)
WHERE d.uuid = u.uuid",
};

pub(super) const HELD: &str = "-- alert_deliveries_held
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at
FROM alert_deliveries WHERE state = 3 AND created_at < ?1 ORDER BY id LIMIT ?2";

pub(super) const DELIVERIES: &str = "-- alert_deliveries
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at, id
FROM alert_deliveries WHERE state = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";

pub(super) const DELIVERIES_OF: &str = "-- alert_deliveries_of
SELECT uuid, alert_id, channel, reason, state, attempts, next_at, last_error, created_at, done_at
FROM alert_deliveries WHERE alert_id = ?1 ORDER BY id LIMIT 1000";

pub(super) const REQUEUE: &str = "-- alert_delivery_requeue
UPDATE alert_deliveries SET state = 0, attempts = 0, next_at = ?2, done_at = NULL WHERE uuid = ?1 AND state = 2";

pub(super) const REQUEUE_CHANNEL: &str = "-- alert_delivery_requeue_channel
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

pub(super) const ALERT: &str = alerts!("alert", "WHERE a.uuid = ?1");
pub(super) const ALERTS: &str = alerts!(
    "alerts",
    "WHERE a.state = ?1 AND (a.last_at, a.id) < (?2, ?3) ORDER BY a.last_at DESC, a.id DESC LIMIT ?4"
);
pub(super) const ALERT_ROW: Bulk = Bulk {
    sqlite: alerts!("alert_rows", "WHERE a.id = ?1"),
    postgres: alerts!("alert_rows", "WHERE a.id = ANY(?1::bigint[])"),
};
pub(super) const ESCALATING: &str =
    alerts!("alerts_escalating", "WHERE a.escalate_at <= ?1 AND a.state = 0 ORDER BY a.escalate_at LIMIT ?2");

pub(super) const ESCALATED: Bulk = Bulk {
    sqlite: "-- alert_escalated
UPDATE alerts SET escalate_at = NULL WHERE id = ?1",
    postgres: "-- alert_escalated
UPDATE alerts SET escalate_at = NULL WHERE id = ANY(?1::bigint[])",
};

pub(super) const ACKNOWLEDGE: &str = "-- alert_acknowledge
UPDATE alerts SET state = 1, acknowledged_by = ?2, acknowledged_at = ?3, escalate_at = NULL WHERE uuid = ?1 AND state = 0";

pub(super) const RESOLVE_ONE: &str = "-- alert_resolve_one
UPDATE alerts SET state = 2, resolved_at = ?2, dedup = dedup || '#' || id, escalate_at = NULL
WHERE uuid = ?1 AND state < 2";

pub(super) const SCHEDULE: Bulk = Bulk {
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

pub(super) const UNSCHEDULE: Bulk = Bulk {
    sqlite: "-- alert_unschedule
DELETE FROM alert_schedule WHERE subject = ?1",
    postgres: "-- alert_unschedule
DELETE FROM alert_schedule WHERE subject = ANY(?1::text[])",
};

pub(super) const SCHEDULE_DUE: &str = "-- alert_schedule_due
SELECT subject, next_at, not_before, not_after, attributes FROM alert_schedule
WHERE next_at <= ?1 ORDER BY next_at, subject LIMIT ?2";

pub(super) const TRIM: &str = "-- alerts_trim
DELETE FROM alerts WHERE state = 2 AND last_at < ?1";

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
    SEALED_CHANNELS.heads,
];
pub(crate) const SQLITE: &[&str] = &[CLAIM_SQLITE];
pub(crate) const POSTGRES: &[&str] = &[CLAIM_POSTGRES];
pub(crate) const BULKS: &[&Bulk] =
    &[&CHANNEL_HEALTH, &RAISE, &RESOLVE, &DELIVER, &SETTLE, &ALERT_ROW, &ESCALATED, &SCHEDULE, &UNSCHEDULE];
