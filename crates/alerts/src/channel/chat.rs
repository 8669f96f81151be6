//! Chat channels: Slack and Microsoft Teams.

use serde_json::json;
use x509::Severity;

use super::config::ChatConfig;
use super::outgoing::Outgoing;
use crate::message::{Message, MessageReason};

/// Builds a request for Slack's incoming webhooks: <https://api.slack.com/messaging/webhooks>.
pub(super) fn slack(config: &ChatConfig, message: &Message) -> Outgoing {
    // Slack reads <, > and & as markup.
    let plain = |text: String| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = plain(message.text());
    let body = json!({ "text": plain(message.headline()), "attachments": [
        { "color": colour(message), "text": text, "fallback": message.headline() }] });
    Outgoing::json(config.url.expose(), &body)
}

/// Builds a request for Teams' workflow webhooks, with an adaptive card.
pub(super) fn teams(config: &ChatConfig, message: &Message) -> Outgoing {
    let lines = message.text();
    let block = |line: &str, first: bool| json!({ "type": "TextBlock", "wrap": true, "text": line, "weight": if first { "Bolder" } else { "Default" } });
    let blocks: Vec<_> = lines.lines().enumerate().map(|(at, line)| block(line, at == 0)).collect();
    let card = json!({ "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard",
        "version": "1.4", "body": blocks });
    let body = json!({ "type": "message", "attachments": [
        { "contentType": "application/vnd.microsoft.card.adaptive", "content": card }] });
    Outgoing::json(config.url.expose(), &body)
}

fn colour(message: &Message) -> &'static str {
    match (message.reason, message.severity) {
        (MessageReason::Resolved, _) => "good",
        (_, Severity::Critical | Severity::High) => "danger",
        (_, Severity::Medium) => "warning",
        _ => "#439FE0",
    }
}
