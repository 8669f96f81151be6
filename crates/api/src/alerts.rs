//! Alerts, deliveries, channels and rules.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A raised alert, with its state and the number of occurrences.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AlertView {
    /// UUID of the alert, used in `/api/v1/alerts/{id}`.
    pub id: Uuid,
    /// Kind of the alert: `certificate.expiring`, `certificate.failed`, …
    pub kind: String,
    /// Object of the alert, such as `certificate/UUID`.
    pub subject: String,
    /// Severity: `info`, `low`, `medium`, `high` or `critical`.
    pub severity: String,
    /// Summary in one line.
    pub title: String,
    /// State: `open`, `acknowledged` or `resolved`.
    pub state: String,
    /// Attributes such as owner, team, environment and tags.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub attributes: Value,
    /// Silence that suppresses notifications of the alert.
    pub silenced_by: Option<Uuid>,
    /// Time of the first occurrence, RFC 3339.
    pub first_at: String,
    /// Time of the latest occurrence, RFC 3339.
    pub last_at: String,
    /// Number of occurrences.
    pub count: i64,
    /// Actor that acknowledged the alert.
    pub acknowledged_by: Option<String>,
    /// Time at which the alert was acknowledged, RFC 3339.
    pub acknowledged_at: Option<String>,
    /// Time at which the alert was resolved, RFC 3339.
    pub resolved_at: Option<String>,
    /// Notifications of the alert; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<Vec<DeliveryView>>,
}

/// A notification of an alert to one channel, with its delivery state.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DeliveryView {
    /// Identifier of the notification. Receivers get the same identifier with every attempt.
    pub id: Uuid,
    /// Channel to which the notification is sent.
    pub channel: Uuid,
    /// Reason of the notification: `raised`, `escalated` or `resolved`.
    pub reason: String,
    /// State: `waiting`, `sent`, `dead` or `held` (for the digest).
    pub state: String,
    /// Number of delivery attempts so far.
    pub attempts: i64,
    /// Time of the next attempt, while the notification is `waiting`.
    pub next_at: Option<String>,
    /// Error of the last failed attempt.
    pub last_error: Option<String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the delivery, or of the last attempt.
    pub done_at: Option<String>,
}

/// A notification channel without its secrets.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ChannelDocument {
    /// UUID of the channel, used in `/api/v1/alert-channels/{id}`.
    pub id: Uuid,
    /// Name of the channel, unique.
    pub name: String,
    /// Kind: `webhook`, `slack`, `teams`, `pagerduty`, `opsgenie` or `smtp`.
    pub kind: String,
    /// Configuration without secrets; null when it cannot be decrypted.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub config: Value,
    /// Whether the channel is enabled.
    pub enabled: bool,
    /// Time of the last successful delivery, RFC 3339.
    pub last_success_at: Option<String>,
    /// Time of the last failed delivery, RFC 3339.
    pub last_error_at: Option<String>,
    /// Error of the last failed delivery; absent after a successful delivery.
    pub last_error: Option<String>,
}

/// A channel to create or replace.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChannelBody {
    /// Name of the channel, unique.
    #[cfg_attr(feature = "schemas", schema(example = "on-call", min_length = 1, max_length = 128))]
    pub name: String,
    /// Configuration: `{"type": "webhook", "url": …, "secret": …}` and so on. See the documentation of alerts.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub config: Value,
    /// Whether the channel is enabled.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}

/// A rule that selects alerts, and the channels to which these alerts are sent. Silences are listed in the same form.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RuleView {
    /// UUID, used in `/api/v1/alert-rules/{id}` or `/api/v1/alert-silences/{id}`.
    pub id: Uuid,
    /// Name of the rule, unique.
    pub name: String,
    /// The rule, with the members `when`, `channels`, `escalate` and `digest`.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub rule: Value,
    /// Actor that last changed the rule.
    pub updated_by: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// An alert rule to create or replace.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RuleBody {
    /// Name of the rule, unique.
    pub name: String,
    /// The rule, with the members `when` (kinds, teams, owners, environments, tags, min_severity …), `channels`, `escalate` and
    /// `digest`.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub rule: Value,
}

/// A silence to create.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SilenceBody {
    /// Alerts to silence, in the syntax of `when` in rules.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub when: Value,
    /// Start of the silence, RFC 3339; now when absent.
    pub from: Option<String>,
    /// End of the silence, RFC 3339.
    pub until: String,
    /// Reason for the silence.
    pub reason: String,
}

/// Response to creating or replacing an alert rule, or to creating a silence.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedId {
    /// UUID of the alert rule or silence.
    pub id: Uuid,
}

/// Query parameter of the lists of alerts and of notifications.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct StateQuery {
    /// State to list. Alerts: `open` (the default), `acknowledged`, `resolved`. Notifications: `waiting` (the default), `sent`,
    /// `dead`, `held`.
    pub state: Option<String>,
}
