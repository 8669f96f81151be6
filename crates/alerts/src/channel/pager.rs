//! Paging services. One incident per alert: the services merge messages by the alert's id.

use serde_json::json;
use x509::Severity;

use super::config::{Opsgenie, Pagerduty};
use super::outgoing::Outgoing;
use crate::message::{Message, MessageReason};

/// Maximum characters of a summary at PagerDuty.
const SUMMARY_MAX: usize = 1_024;

/// Maximum characters of a message at Opsgenie.
const OPSGENIE_MESSAGE_MAX: usize = 130;

/// Builds a request for the Events API v2. Digests create no incident.
pub(super) fn pagerduty(config: &Pagerduty, message: &Message) -> Option<Outgoing> {
    if message.reason == MessageReason::Digest {
        return None;
    }
    let key = message.alert.unwrap_or(message.id).to_string();
    let action = if message.reason == MessageReason::Resolved { "resolve" } else { "trigger" };
    let severity = match message.severity {
        Severity::Critical => "critical",
        Severity::High => "error",
        Severity::Medium | Severity::Low => "warning",
        Severity::Info => "info",
    };
    let body = json!({
        "routing_key": config.routing_key.expose(),
        "event_action": action,
        "dedup_key": key,
        "client": "Bulla",
        "client_url": message.link,
        "payload": {
            "summary": cut(&message.headline(), SUMMARY_MAX),
            "source": message.subject,
            "severity": severity,
            "class": message.kind,
            "timestamp": message.last_at,
            "custom_details": message.attributes,
        },
    });
    Some(Outgoing::json(&config.url, &body))
}

/// Builds a request for the Alert API. The alert's id is the alias that creates and closes the incident.
pub(super) fn opsgenie(config: &Opsgenie, message: &Message) -> Option<Outgoing> {
    if message.reason == MessageReason::Digest {
        return None;
    }
    let key = message.alert.unwrap_or(message.id).to_string();
    if message.reason == MessageReason::Resolved {
        return Some(close(config, &key));
    }
    let priority = match message.severity {
        Severity::Critical => "P1",
        Severity::High => "P2",
        Severity::Medium => "P3",
        Severity::Low => "P4",
        Severity::Info => "P5",
    };
    let body = json!({
        "message": cut(&message.headline(), OPSGENIE_MESSAGE_MAX),
        "alias": key,
        "description": message.text(),
        "source": "Bulla",
        "entity": message.subject,
        "priority": priority,
        "tags": [message.kind],
    });
    let request = Outgoing::json(&config.url, &body);
    Some(request.header("authorization", format!("GenieKey {}", config.api_key.expose())))
}

fn close(config: &Opsgenie, alias: &str) -> Outgoing {
    let body = json!({ "source": "Bulla" });
    let url = format!("{}/{alias}/close?identifierType=alias", config.url.trim_end_matches('/'));
    Outgoing::json(&url, &body).header("authorization", format!("GenieKey {}", config.api_key.expose()))
}

fn cut(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}
