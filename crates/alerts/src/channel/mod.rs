//! Notification channels. A message counts as sent only when its channel accepted it.

mod chat;
mod config;
mod error;
mod mail;
mod outgoing;
mod pager;
mod webhook;

use std::fmt;
use std::time::{Duration, Instant};

use callout::{ClientCache, HttpClient, HttpConfig, Reply, Request, excerpt};
use outbound::guard::Guard;
use outbound::resolve::Resolver;
use uuid::Uuid;

use crate::message::Message;
use outgoing::Outgoing;

pub use config::ChannelConfig;
pub use error::ChannelError;

/// Timeout of one attempt.
const TRY_MAX: Duration = Duration::from_secs(30);

/// The notification channels, with one client each. Clones are cheap and share the clients.
#[derive(Clone)]
pub struct Channels {
    resolver: Resolver,
    guard: Guard,
    clients: std::sync::Arc<parking_lot::Mutex<ClientCache<Client>>>,
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
    }
}

/// A client built for a channel.
#[derive(Clone)]
pub(crate) enum Client {
    HttpClient(HttpClient),
    Mail(mail::Mailer),
}

impl Channels {
    /// Creates the channels. Each new connection resolves its host name with `resolver`, and checks the addresses against the
    /// guard.
    #[must_use]
    pub fn new(resolver: Resolver) -> Self {
        Self { resolver, guard: Guard::default(), clients: std::sync::Arc::default() }
    }

    /// Returns the channels with a guard for the configured networks. Link-local addresses stay blocked.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self { guard: Guard { allow_link_local: false, ..guard }, ..self }
    }

    /// Sends a message to a channel. The channel's id and revision select the client to reuse.
    ///
    /// # Errors
    /// [`ChannelError`] when the channel did not accept the message within 30 s.
    #[crate::boxed]
    pub async fn send(
        &self,
        channel: (Uuid, i64),
        config: &ChannelConfig,
        message: &Message,
        now_us: i64,
    ) -> Result<(), ChannelError> {
        let client = self.client(channel, config)?;
        let deliver = async {
            match (&client, config) {
                (Client::Mail(mailer), ChannelConfig::Smtp(config)) => mailer.send(config, message).await,
                (Client::HttpClient(http), config) => {
                    let Some(out) = request(config, message, now_us)? else { return Ok(()) };
                    let mut request = Request::post(&out.url, "application/json", out.body);
                    request.headers.extend(out.headers);
                    let reply = http.send(request, Instant::now() + TRY_MAX, "sending the message").await?;
                    accepted(&reply, now_us)
                }
                (Client::Mail(_), _) => {
                    Err(ChannelError::permanent("the type of the channel changed: try again"))
                }
            }
        };
        tokio::time::timeout(TRY_MAX, deliver).await.map_err(|_| {
            ChannelError::transient(format_args!("no answer within {} s", TRY_MAX.as_secs()), None)
        })?
    }

    fn client(&self, channel: (Uuid, i64), config: &ChannelConfig) -> Result<Client, ChannelError> {
        if let Some(known) = self.clients.lock().get(channel) {
            return Ok(known);
        }
        let client = match config {
            ChannelConfig::Smtp(config) => {
                Client::Mail(mail::Mailer::new(config, &self.resolver, self.guard, TRY_MAX)?)
            }
            _ => {
                let request_seconds = TRY_MAX.as_secs() as u32;
                let http = HttpConfig { request_seconds, guard: self.guard, ..HttpConfig::default() };
                Client::HttpClient(HttpClient::new(&http, &self.resolver)?)
            }
        };
        self.clients.lock().put(channel, client.clone());
        Ok(client)
    }
}

/// Builds the request for a channel. `None` when the channel does not send this message, such as a digest to a pager.
fn request(config: &ChannelConfig, message: &Message, now_us: i64) -> Result<Option<Outgoing>, ChannelError> {
    match config {
        ChannelConfig::Webhook(config) => webhook::request(config, message, now_us).map(Some),
        ChannelConfig::Slack(config) => Ok(Some(chat::slack(config, message))),
        ChannelConfig::Teams(config) => Ok(Some(chat::teams(config, message))),
        ChannelConfig::Pagerduty(config) => Ok(pager::pagerduty(config, message)),
        ChannelConfig::Opsgenie(config) => Ok(pager::opsgenie(config, message)),
        ChannelConfig::Smtp(_) => Err(ChannelError::permanent("mail channels do not use HTTP")),
    }
}

/// Interprets the status: 2xx is success. 408, 425, 429 and 5xx are retried; any other status needs a correction.
fn accepted(reply: &Reply, now_us: i64) -> Result<(), ChannelError> {
    if reply.status.is_success() {
        return Ok(());
    }
    let reason = format!("the channel responded {}: {}", reply.status, excerpt(&reply.excerpt()));
    let heals = reply.status.is_server_error() || matches!(reply.status.as_u16(), 408 | 425 | 429);
    if heals {
        let wait = reply.retry_after(x509::UnixTime(now_us.div_euclid(1_000_000)));
        return Err(ChannelError::transient(reason, wait));
    }
    Err(ChannelError::permanent(reason))
}
