//! Alert messages, as sent to notification channels.

use serde::Serialize;
pub use store::states::MessageReason;
use uuid::Uuid;
use x509::Severity;

use crate::rule::Attributes;
use crate::tables::AlertRow;

/// A message to a channel. Webhooks get its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    /// Id of the message. The same for every attempt, so that a receiver can detect repetitions.
    pub id: Uuid,
    /// Id of the alert. All messages about an alert share it.
    pub alert: Option<Uuid>,
    /// Whether the alert was raised, escalated or resolved, or whether the message is a digest or a test.
    pub reason: MessageReason,
    /// Severity of the alert.
    pub severity: Severity,
    /// Kind of the alert, such as `certificate.expiring`.
    pub kind: String,
    /// Subject of the alert, such as `certificate/UUID`.
    pub subject: String,
    /// Title in one line.
    pub title: String,
    /// Further attributes of the alert.
    pub attributes: Attributes,
    /// Time of the first occurrence, RFC 3339.
    pub first_at: String,
    /// Time of the last occurrence, RFC 3339.
    pub last_at: String,
    /// Number of occurrences.
    pub count: i64,
    /// Lines of a digest. Empty in other messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// URL of the alert in the API. `None` in digests and tests, and if the server has no external URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Message {
    /// Builds the message `id` about an alert. `server` is the external URL of the server.
    #[must_use]
    pub fn about(id: Uuid, alert: &AlertRow, reason: MessageReason, server: Option<&str>) -> Self {
        Self {
            id,
            alert: Some(alert.id),
            reason,
            severity: alert.severity,
            kind: alert.kind.clone(),
            subject: alert.subject.clone(),
            title: alert.title.clone(),
            attributes: serde_json::from_str(&alert.attributes).unwrap_or_default(),
            first_at: rfc3339(alert.first_at_us),
            last_at: rfc3339(alert.last_at_us),
            count: alert.count,
            lines: Vec::new(),
            link: server.map(|server| format!("{server}/api/v1/alerts/{}", alert.id)),
        }
    }

    /// Builds a test message.
    #[must_use]
    pub fn test(id: Uuid, now_us: i64) -> Self {
        Self {
            id,
            alert: None,
            reason: MessageReason::Test,
            severity: Severity::Info,
            kind: "channel.test".to_owned(),
            subject: "channel".to_owned(),
            title: "a test message: this channel works".to_owned(),
            attributes: Attributes::default(),
            first_at: rfc3339(now_us),
            last_at: rfc3339(now_us),
            count: 1,
            lines: Vec::new(),
            link: None,
        }
    }

    /// Returns the headline: the first line that people see.
    #[must_use]
    pub fn headline(&self) -> String {
        let mark = match self.reason {
            MessageReason::Raised | MessageReason::Test => self.severity.name(),
            MessageReason::Escalated => "not acknowledged",
            MessageReason::Resolved => "resolved",
            MessageReason::Digest => "digest",
        };
        format!("[{mark}] {}", self.title)
    }

    /// Returns the whole message as plain text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![self.headline()];
        let fact =
            |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}: {value}"));
        let of = &self.attributes;
        lines.extend(
            [
                fact("detail", &of.detail),
                fact("ends", &of.not_after),
                fact("owner", &of.owner),
                fact("team", &of.team),
                fact("environment", &of.environment),
                fact("issuer", &of.issuer),
                fact("more", &self.link),
            ]
            .into_iter()
            .flatten(),
        );
        lines.extend(self.lines.iter().cloned());
        lines.join("\n")
    }
}

/// Formats a time as RFC 3339 with seconds.
pub(crate) fn rfc3339(at_us: i64) -> String {
    x509::UnixTime(at_us.div_euclid(1_000_000)).to_string()
}
