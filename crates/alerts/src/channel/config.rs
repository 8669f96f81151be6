//! Configuration of notification channels.

use keys::Secret;
use outbound::guard::Guard;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ChannelError;

/// Configuration of a channel. Sealed as a whole in the database; [`ChannelConfig::shown`] omits secrets.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChannelConfig {
    /// Any HTTP service. Gets the message as signed JSON.
    Webhook(Webhook),
    /// A Slack incoming webhook, or a compatible one: Mattermost, Rocket.Chat.
    Slack(ChatConfig),
    /// A Microsoft Teams workflow webhook.
    Teams(ChatConfig),
    /// PagerDuty, over the Events API v2.
    Pagerduty(Pagerduty),
    /// Opsgenie, over its Alert API.
    Opsgenie(Opsgenie),
    /// E-mail over SMTP.
    Smtp(Smtp),
}

/// Configuration of a webhook to any HTTP service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// URL to which messages are posted.
    pub url: String,
    /// The key of the HMAC-SHA256 in `Bulla-Signature`; at least 16 characters.
    pub secret: Secret,
}

/// Configuration of a chat channel. The webhook's URL is secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatConfig {
    /// Secret URL of the webhook, to which messages are posted.
    pub url: Secret,
}

/// Configuration of a PagerDuty channel (Events API v2).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pagerduty {
    /// The integration key of the service.
    pub routing_key: Secret,
    /// URL of the API. Set it for the EU region or a relay.
    #[serde(default = "pagerduty_url")]
    pub url: String,
}

/// Configuration of an Opsgenie channel (Alert API).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opsgenie {
    /// The key of the API integration.
    pub api_key: Secret,
    /// URL of the API. Set it for the EU region or a relay.
    #[serde(default = "opsgenie_url")]
    pub url: String,
}

/// Configuration of an e-mail channel (SMTP).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smtp {
    /// Host name of the mail server.
    pub host: String,
    /// Port of the mail server. Default: 465 for `tls`, 587 for `starttls`, 25 for `none`.
    #[serde(default)]
    pub port: Option<u16>,
    /// Encryption of the connection: TLS, STARTTLS or none.
    #[serde(default)]
    pub security: MailEncryption,
    /// User name, if the server requires authentication.
    #[serde(default)]
    pub username: Option<String>,
    /// Password of `username`.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Sender address.
    pub from: String,
    /// Recipient addresses.
    pub to: Vec<String>,
}

/// Encryption of the connection to the mail server.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MailEncryption {
    /// TLS from the first byte (RFC 8314).
    #[default]
    Tls,
    /// STARTTLS. The connection fails if the server does not offer it.
    Starttls,
    /// No encryption: for a relay on this machine. Rejected together with a password.
    None,
}

fn pagerduty_url() -> String {
    "https://events.pagerduty.com/v2/enqueue".to_owned()
}

fn opsgenie_url() -> String {
    "https://api.opsgenie.com/v2/alerts".to_owned()
}

/// Maximum number of recipients of one channel.
const RECIPIENTS_MAX: usize = 50;

/// Minimum characters of a webhook secret.
const SECRET_MIN: usize = 16;

impl ChannelConfig {
    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// [`ChannelError`] says what to correct.
    pub fn parse(json: &Value) -> Result<Self, ChannelError> {
        let config: Self = serde_json::from_value(json.clone()).map_err(ChannelError::permanent)?;
        config.check()?;
        Ok(config)
    }

    /// Returns the stable name of the kind: `webhook`, `slack`, …
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

    /// Returns the configuration without its secrets.
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
        let url = |text: &str| Guard::default().url(text).map(drop).map_err(ChannelError::permanent);
        match self {
            Self::Webhook(config) => {
                if config.secret.expose().len() < SECRET_MIN {
                    return Err(ChannelError::permanent(format_args!(
                        "secret must have at least {SECRET_MIN} characters"
                    )));
                }
                url(&config.url)
            }
            Self::Slack(config) | Self::Teams(config) => url(config.url.expose())
                // The URL is secret: the error must not contain it.
                .map_err(|_| {
                    ChannelError::permanent(
                        "url is not an http or https address, or its address is not allowed",
                    )
                }),
            Self::Pagerduty(config) => url(&config.url),
            Self::Opsgenie(config) => url(&config.url),
            Self::Smtp(config) => config.check(),
        }
    }
}

impl Smtp {
    fn check(&self) -> Result<(), ChannelError> {
        if self.to.is_empty() || self.to.len() > RECIPIENTS_MAX {
            return Err(ChannelError::permanent(format_args!("`to` needs 1 to {RECIPIENTS_MAX} recipients")));
        }
        let literal = self.host.trim_start_matches('[').trim_end_matches(']').parse();
        if let Ok(address) = literal {
            Guard::default().address(address).map_err(ChannelError::permanent)?;
        }
        if self.security == MailEncryption::None && self.password.is_some() {
            return Err(ChannelError::permanent("a password is not sent without TLS: use tls or starttls"));
        }
        for address in self.to.iter().chain([&self.from]) {
            address.parse::<lettre::message::Mailbox>().map_err(|error| {
                ChannelError::permanent(format_args!("{address:?} is not a mail address: {error}"))
            })?;
        }
        Ok(())
    }
}

fn host(url: &str) -> Option<String> {
    reqwest::Url::parse(url).ok()?.host_str().map(str::to_owned)
}
