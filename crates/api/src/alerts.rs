//! Alerts, messages, channels and rules.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// An alert.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct AlertView {
    /// Its identity.
    pub id: Uuid,
    /// What kind: `certificate.expiring`, `certificate.failed`, …
    pub kind: String,
    /// Of what: `certificate/UUID`.
    pub subject: String,
    /// info, low, medium, high or critical.
    pub severity: String,
    /// One line.
    pub title: String,
    /// open, acknowledged or resolved.
    pub state: String,
    /// Owner, team, environment, tags and so on.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub attributes: Value,
    /// The silence that keeps it quiet.
    pub silenced_by: Option<Uuid>,
    /// The first time.
    pub first_at: String,
    /// The last time.
    pub last_at: String,
    /// How often.
    pub count: i64,
    /// Actor that acknowledged it.
    pub acknowledged_by: Option<String>,
    /// Since when.
    pub acknowledged_at: Option<String>,
    /// Time at which it was resolved.
    pub resolved_at: Option<String>,
    /// Messages about it; absent in listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<Vec<DeliveryView>>,
}

/// A message to a channel.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DeliveryView {
    /// Its identity; receivers get it with every try.
    pub id: Uuid,
    /// The channel.
    pub channel: Uuid,
    /// raised, escalated or resolved.
    pub reason: String,
    /// waiting, sent, dead or held (for the digest).
    pub state: String,
    /// Tries so far.
    pub attempts: i64,
    /// The next try, while it waits.
    pub next_at: Option<String>,
    /// Why the last try failed.
    pub last_error: Option<String>,
    /// Creation time.
    pub created_at: String,
    /// Time of delivery, or of the last attempt.
    pub done_at: Option<String>,
}

/// A channel, without its secrets.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ChannelDocument {
    /// Its identity.
    pub id: Uuid,
    /// Unique.
    pub name: String,
    /// webhook, slack, teams, pagerduty, opsgenie or smtp.
    pub kind: String,
    /// Its configuration without secrets; null when it cannot be opened.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub config: Value,
    /// Whether messages go there.
    pub enabled: bool,
    /// The last message it took.
    pub last_success_at: Option<String>,
    /// The last failure.
    pub last_error_at: Option<String>,
    /// That failure; absent once a message was taken again.
    pub last_error: Option<String>,
}

/// A channel to make, or what one shall be.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChannelBody {
    /// Unique.
    #[cfg_attr(feature = "schemas", schema(example = "on-call", min_length = 1, max_length = 128))]
    pub name: String,
    /// `{"type": "webhook", "url": …, "secret": …}` and so on: see the documentation of alerts.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub config: Value,
    /// Whether messages go there.
    #[serde(default = "crate::patch::yes")]
    pub enabled: bool,
}

/// A rule.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RuleView {
    /// Its identity.
    pub id: Uuid,
    /// Unique.
    pub name: String,
    /// `when`, `channels`, `escalate`, `digest`.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub rule: Value,
    /// Actor that changed it last.
    pub updated_by: String,
    /// When.
    pub updated_at: String,
}

/// A rule to make, or what one shall be.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RuleBody {
    /// Unique.
    pub name: String,
    /// `when` (kinds, teams, owners, environments, tags, min_severity …), `channels`, `escalate`, `digest`.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub rule: Value,
}

/// A silence to make.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SilenceBody {
    /// Which alerts: as in rules.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub when: Value,
    /// From, RFC 3339; now when absent.
    pub from: Option<String>,
    /// Until, RFC 3339.
    pub until: String,
    /// Why.
    pub reason: String,
}

/// The identity of the created object.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedId {
    /// Its identity.
    pub id: Uuid,
}

/// Which state.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct StateQuery {
    /// Alerts: open (the default), acknowledged, resolved. Messages: waiting (the default), sent, dead, held.
    pub state: Option<String>,
}
