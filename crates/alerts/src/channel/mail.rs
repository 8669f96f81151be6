//! E-mail notification channel over SMTP.

use std::net::IpAddr;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use outbound::dial;
use outbound::guard::{Guard, Refused};
use outbound::resolve::{Families, Resolver};
use telemetry::chain;

use super::config::{MailEncryption, Smtp};
use super::error::ChannelError;
use crate::message::Message;

/// Timeout of the DNS lookup of the mail server.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);
/// Timeout for finding a reachable address, when the name has several.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// SMTP client. Looks up the server's name for each message, and checks the addresses against the egress guard.
#[derive(Clone)]
pub(crate) struct Mailer {
    resolver: Resolver,
    guard: Guard,
    host: String,
    port: u16,
    tls: Tls,
    credentials: Option<Credentials>,
    limit: Duration,
}

impl Mailer {
    pub(super) fn new(
        config: &Smtp,
        resolver: &Resolver,
        guard: Guard,
        limit: Duration,
    ) -> Result<Self, ChannelError> {
        let tls = || TlsParameters::new(config.host.clone()).map_err(ChannelError::permanent);
        let (security, port) = match config.security {
            MailEncryption::Tls => (Tls::Wrapper(tls()?), 465),
            MailEncryption::Starttls => (Tls::Required(tls()?), 587),
            MailEncryption::None => (Tls::None, 25),
        };
        let account = config.username.as_ref().zip(config.password.as_ref());
        Ok(Self {
            resolver: resolver.clone(),
            guard,
            host: config.host.clone(),
            port: config.port.unwrap_or(port),
            tls: security,
            credentials: account.map(|(name, word)| Credentials::new(name.clone(), word.expose().to_owned())),
            limit,
        })
    }

    /// Returns an address of the mail server that the guard allows. Of several addresses, a reachable one.
    async fn address(&self) -> Result<IpAddr, ChannelError> {
        let literal = self.host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let found = match literal {
            Ok(address) => vec![address],
            Err(_) => {
                let found = self.resolver.resolve(&self.host, Families::usable(), LOOKUP_LIMIT).await;
                found
                    .map_err(|error| ChannelError::transient(format_args!("{}: {error}", self.host), None))?
                    .addresses
            }
        };
        match allowed(self.guard, &found).map_err(ChannelError::permanent)?[..] {
            [] => Err(ChannelError::transient(
                format_args!("{} does not resolve to an address", self.host),
                None,
            )),
            [only] => Ok(only),
            ref several => {
                let answered = dial::happy_eyeballs(several, self.port, DIAL_LIMIT).await;
                let failed =
                    |(_, error)| ChannelError::transient(format_args!("{}: {error}", self.host), None);
                answered.map(|(_, address)| address).map_err(failed)
            }
        }
    }

    async fn transport(&self) -> Result<AsyncSmtpTransport<Tokio1Executor>, ChannelError> {
        let address = self.address().await?.to_string();
        // TLS verifies the configured name, not the address.
        let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(address)
            .port(self.port)
            .tls(self.tls.clone())
            .timeout(Some(self.limit));
        Ok(match &self.credentials {
            Some(credentials) => builder.credentials(credentials.clone()).build(),
            None => builder.build(),
        })
    }

    pub(super) async fn send(&self, config: &Smtp, message: &Message) -> Result<(), ChannelError> {
        let mailbox = |text: &String| text.parse::<Mailbox>().map_err(ChannelError::permanent);
        let mut mail = lettre::Message::builder()
            .from(mailbox(&config.from)?)
            .subject(message.headline())
            .message_id(Some(format!("<{}@bulla>", message.id)))
            .header(ContentType::TEXT_PLAIN);
        for recipient in &config.to {
            mail = mail.to(mailbox(recipient)?);
        }
        let mail = mail.body(message.text()).map_err(ChannelError::permanent)?;
        match self.transport().await?.send(mail).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_permanent() => Err(ChannelError::permanent(chain(&error))),
            Err(error) => Err(ChannelError::transient(chain(&error), None)),
        }
    }
}

/// Returns the addresses that the guard allows. If the guard refuses all of them, returns the refusal.
fn allowed(guard: Guard, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Refused> {
    let allowed_addresses: Vec<_> =
        addresses.iter().copied().filter(|address| guard.address(*address).is_ok()).collect();
    match addresses.first() {
        Some(first) if allowed_addresses.is_empty() => guard.address(*first).map(|()| allowed_addresses),
        _ => Ok(allowed_addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn mail_server_at_a_metadata_address_is_rejected() {
        let config = |host: &str| Smtp {
            host: host.to_owned(),
            port: Some(80),
            security: MailEncryption::None,
            username: None,
            password: None,
            from: "bulla@example.test".to_owned(),
            to: vec!["a@example.test".to_owned()],
        };
        let resolver = Resolver::with_upstreams(Vec::new());
        for host in ["169.254.169.254", "[fe80::1]", "::ffff:169.254.169.254", "100.100.100.200"] {
            let mailer = Mailer::new(&config(host), &resolver, Guard::default(), LOOKUP_LIMIT).unwrap();
            let error = mailer.address().await.unwrap_err();
            assert!(error.reason.contains("link-local") && !error.retry, "{host}: {error}");
        }
        let mailer = Mailer::new(&config("127.0.0.1"), &resolver, Guard::default(), LOOKUP_LIMIT).unwrap();
        assert_eq!(mailer.address().await.unwrap(), IpAddr::from([127, 0, 0, 1]));
        let mixed = ["169.254.169.254", "192.0.2.1"].map(|text| text.parse().unwrap());
        assert_eq!(allowed(Guard::default(), &mixed).unwrap(), [mixed[1]]);
    }
}
