//! Mail.

use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use telemetry::chain;

use super::config::{Security, Smtp};
use super::error::ChannelError;
use crate::message::Message;

/// A mail server's client.
#[derive(Clone)]
pub(crate) struct Mailer(AsyncSmtpTransport<Tokio1Executor>);

impl Mailer {
    pub(super) fn new(config: &Smtp, limit: Duration) -> Result<Self, ChannelError> {
        let tls = || TlsParameters::new(config.host.clone()).map_err(ChannelError::wrong);
        let (security, port) = match config.security {
            Security::Tls => (Tls::Wrapper(tls()?), 465),
            Security::Starttls => (Tls::Required(tls()?), 587),
            Security::None => (Tls::None, 25),
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&config.host)
            .port(config.port.unwrap_or(port))
            .tls(security)
            .timeout(Some(limit));
        if let (Some(username), Some(password)) = (&config.username, &config.password) {
            builder = builder.credentials(Credentials::new(username.clone(), password.expose().to_owned()));
        }
        Ok(Self(builder.build()))
    }

    pub(super) async fn send(&self, config: &Smtp, message: &Message) -> Result<(), ChannelError> {
        let mailbox = |text: &String| text.parse::<Mailbox>().map_err(ChannelError::wrong);
        let mut mail = lettre::Message::builder()
            .from(mailbox(&config.from)?)
            .subject(message.headline())
            .message_id(Some(format!("<{}@bulla>", message.id)))
            .header(ContentType::TEXT_PLAIN);
        for recipient in &config.to {
            mail = mail.to(mailbox(recipient)?);
        }
        let mail = mail.body(message.text()).map_err(ChannelError::wrong)?;
        match self.0.send(mail).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_permanent() => Err(ChannelError::wrong(chain(&error))),
            Err(error) => Err(ChannelError::later(chain(&error), None)),
        }
    }
}
