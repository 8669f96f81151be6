//! How a channel is reached.

use keys::Secret;
use outbound::guard::Guard;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ChannelError;

/// How a channel is reached. Kept sealed as a whole; [`ChannelConfig::shown`] leaves secrets out.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChannelConfig {
    /// Any HTTP service: the message as JSON, signed.
    Webhook(Webhook),
    /// A Slack incoming webhook (or what takes the same form: Mattermost, Rocket.Chat).
    Slack(Chat),
    /// A Microsoft Teams workflow webhook.
    Teams(Chat),
    /// PagerDuty, Events API v2.
    Pagerduty(Pagerduty),
    /// Opsgenie, Alert API.
    Opsgenie(Opsgenie),
    /// Mail.
    Smtp(Smtp),
}

/// Any HTTP service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Where messages are posted.
    pub url: String,
    /// The key of the HMAC-SHA256 in `Bulla-Signature`; at least 16 characters.
    pub secret: Secret,
}

/// A chat room, by its webhook; the URL is the secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chat {
    /// The webhook.
    pub url: Secret,
}

/// PagerDuty.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pagerduty {
    /// The integration key of the service.
    pub routing_key: Secret,
    /// The API, for the EU region or a relay.
    #[serde(default = "pagerduty_url")]
    pub url: String,
}

/// Opsgenie.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opsgenie {
    /// The key of the API integration.
    pub api_key: Secret,
    /// The API, for the EU region or a relay.
    #[serde(default = "opsgenie_url")]
    pub url: String,
}

/// Mail.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smtp {
    /// The mail server.
    pub host: String,
    /// Its port; absent: 465 for `tls`, 587 for `starttls`, 25 for `none`.
    #[serde(default)]
    pub port: Option<u16>,
    /// Encryption of the connection.
    #[serde(default)]
    pub security: Security,
    /// The account, if it wants one.
    #[serde(default)]
    pub username: Option<String>,
    /// The account's password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// The sender.
    pub from: String,
    /// The recipients.
    pub to: Vec<String>,
}

/// How mail is secured on its way to the server.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// TLS from the first byte (RFC 8314).
    #[default]
    Tls,
    /// STARTTLS, required.
    Starttls,
    /// Nothing: for a relay on this machine. Refused together with a password.
    None,
}

fn pagerduty_url() -> String {
    "https://events.pagerduty.com/v2/enqueue".to_owned()
}

fn opsgenie_url() -> String {
    "https://api.opsgenie.com/v2/alerts".to_owned()
}

/// Recipients of one channel.
const RECIPIENTS_MAX: usize = 50;

/// Characters of the shortest webhook secret.
const SECRET_MIN: usize = 16;

impl ChannelConfig {
    /// Reads a configuration and checks it.
    ///
    /// # Errors
    /// [`ChannelError`] that says what to correct.
    pub fn parse(json: &Value) -> Result<Self, ChannelError> {
        let config: Self = serde_json::from_value(json.clone()).map_err(ChannelError::wrong)?;
        config.check()?;
        Ok(config)
    }

    /// `webhook`, `slack`, …
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Slack(_) => "slack",
            Self::Teams(_) => "teams",
            Self::Pagerduty(_) => "pagerduty",
            Self::Opsgenie(_) => "opsgenie",
            Self::Smtp(_) => "smtp",
        }
    }

    /// The configuration without its secrets.
    #[must_use]
    pub fn shown(&self) -> Value {
        match self {
            Self::Webhook(config) => serde_json::json!({ "type": "webhook", "url": config.url }),
            Self::Slack(config) => serde_json::json!({ "type": "slack", "host": host(config.url.expose()) }),
            Self::Teams(config) => serde_json::json!({ "type": "teams", "host": host(config.url.expose()) }),
            Self::Pagerduty(config) => serde_json::json!({ "type": "pagerduty", "url": config.url }),
            Self::Opsgenie(config) => serde_json::json!({ "type": "opsgenie", "url": config.url }),
            Self::Smtp(config) => serde_json::json!({
                "type": "smtp", "host": config.host, "port": config.port, "security": config.security,
                "username": config.username, "from": config.from, "to": config.to,
            }),
        }
    }

    fn check(&self) -> Result<(), ChannelError> {
        let url = |text: &str| Guard::default().url(text).map(drop).map_err(ChannelError::wrong);
        match self {
            Self::Webhook(config) => {
                if config.secret.expose().len() < SECRET_MIN {
                    return Err(ChannelError::wrong(format_args!(
                        "secret has at least {SECRET_MIN} characters"
                    )));
                }
                url(&config.url)
            }
            Self::Slack(config) | Self::Teams(config) => url(config.url.expose())
                // The URL is the secret: what is wrong with it must not repeat it.
                .map_err(|_| ChannelError::wrong("url is no http or https address that may be connected to")),
            Self::Pagerduty(config) => url(&config.url),
            Self::Opsgenie(config) => url(&config.url),
            Self::Smtp(config) => config.check(),
        }
    }
}

impl Smtp {
    fn check(&self) -> Result<(), ChannelError> {
        if self.to.is_empty() || self.to.len() > RECIPIENTS_MAX {
            return Err(ChannelError::wrong(format_args!("to names 1 to {RECIPIENTS_MAX} recipients")));
        }
        let literal = self.host.trim_start_matches('[').trim_end_matches(']').parse();
        if let Ok(address) = literal {
            Guard::default().address(address).map_err(ChannelError::wrong)?;
        }
        if self.security == Security::None && self.password.is_some() {
            return Err(ChannelError::wrong("a password is not sent without TLS: use tls or starttls"));
        }
        for address in self.to.iter().chain([&self.from]) {
            address.parse::<lettre::message::Mailbox>().map_err(|error| {
                ChannelError::wrong(format_args!("{address:?} is no mail address: {error}"))
            })?;
        }
        Ok(())
    }
}

fn host(url: &str) -> Option<String> {
    reqwest::Url::parse(url).ok()?.host_str().map(str::to_owned)
}
