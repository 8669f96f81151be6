//! ACME issuers (RFC 8555, 8737, 8738, 9773).
//!
//! This client signs with keys in the key store, and distinguishes rejections from outages by their problem types. After a crash it
//! continues an order by its URL. It selects among alternate chains.

mod account;
mod ari;
mod challenge;
mod client;
mod order;
mod wire;

use std::time::{Duration, Instant};

use callout::HttpClient;
use futures_util::future::{BoxFuture, FutureExt};
use keys::KeyRef;
use serde_json::json;
use x509::Certificate;
use x509::crl::Reason;

use self::account::Accounts;
use self::client::{Client, Signed};
use crate::config::{AcmeConfig, ChallengeKind, IssuerKind};
use crate::context::IssuerContext;
use crate::delivery::DeliveredChain;
use crate::dns01::Solver;
use crate::error::IssuerError;
use crate::issuer::{Issuer, IssuerIdentity};
use crate::jose::{JwsKey, base64url};
use crate::memory::OrderStore;
use crate::order::{Order, Window};
use crate::responder::Responders;

pub(crate) use ari::certificate_id;

/// Timeout of a request outside an order.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// First wait between polls, unless the server requests another.
const POLL_INTERVAL_FIRST: Duration = Duration::from_millis(250);
/// Maximum wait between polls.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Maximum Retry-After that is honored during an order.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Acme {
    config: AcmeConfig,
    client: Client,
    accounts: Accounts,
    memory: OrderStore,
    responders: Responders,
    dns01: Option<Solver>,
}

impl Acme {
    pub(crate) fn new(
        identity: &IssuerIdentity,
        config: &AcmeConfig,
        context: &IssuerContext,
    ) -> Result<Self, IssuerError> {
        let http = HttpClient::new(&config.http, &context.resolver)?;
        http.guard().url(&config.directory).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        if config.challenges.is_empty() {
            return Err(IssuerError::misconfigured("challenges must name a challenge type"));
        }
        if config.challenges.contains(&ChallengeKind::Dns01) && config.dns01.is_none() {
            return Err(IssuerError::misconfigured("challenges contains dns-01, but dns01 is not set"));
        }
        let solver = |dns| Solver::new(dns, &config.http, &context.resolver, &context.host);
        let dns01 = config.dns01.as_ref().map(solver).transpose()?;
        Ok(Self {
            client: Client::new(http, config.directory.clone(), context.clock.clone()),
            accounts: Accounts::new(identity.clone(), context.store.clone(), context.keystore.clone()),
            memory: OrderStore::new(context.store.clone(), context.clock.clone(), identity.id),
            responders: context.responders.clone(),
            dns01,
            config: config.clone(),
        })
    }

    async fn send_revocation(
        &self,
        certificate: &Certificate,
        reason: Reason,
        key: Option<JwsKey>,
    ) -> Result<(), IssuerError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let url = self.client.directory(deadline).await?.revoke_cert.clone();
        let payload = json!({ "certificate": base64url(&certificate.der), "reason": reason.code() });
        let answer = match &key {
            Some(key) => self.client.post(&url, Some(&payload), Signed::Key(key), deadline).await,
            None => {
                let account = self.accounts.get(&self.client, &self.config, deadline).await?;
                self.client.post(&url, Some(&payload), account.signed(), deadline).await
            }
        };
        match answer {
            Ok(_) => Ok(()),
            Err(failed) if failed.problem.code() == "alreadyRevoked" => Ok(()),
            Err(failed) => Err(failed.error),
        }
    }

    async fn window(&self, certificate: &Certificate) -> Result<Option<Window>, IssuerError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let directory = self.client.directory(deadline).await?;
        let Some((base, id)) = directory.renewal_info.as_ref().zip(certificate_id(certificate)) else {
            return Ok(None);
        };
        let url = format!("{}/{id}", base.trim_end_matches('/'));
        let reply = self.client.get(&url, deadline).await?;
        match reply.status.as_u16() {
            200..=299 => Ok(ari::window(&reply, self.client.now())),
            // The server does not know the certificate, or has no renewal information about it.
            404 => Ok(None),
            _ => Err(wire::Problem::of(&reply).error(&reply, self.client.now())),
        }
    }

    async fn check_service(&self) -> Result<String, IssuerError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let directory = self.client.directory(deadline).await?;
        let account = self.accounts.get(&self.client, &self.config, deadline).await?;
        // Checks whether the server still knows the account, without changing it (RFC 8555 section 7.3).
        let known = self.client.post(&account.url, None, account.signed(), deadline).await;
        known.map_err(IssuerError::from)?;
        let ari = if directory.renewal_info.is_some() { "with" } else { "without" };
        let profiles: Vec<&str> = directory.meta.profiles.keys().map(String::as_str).collect();
        let profiles =
            if profiles.is_empty() { String::new() } else { format!("; profiles {}", profiles.join(", ")) };
        Ok(format!("account {}; {ari} renewal information{profiles}", account.url))
    }
}

impl Issuer for Acme {
    fn kind(&self) -> IssuerKind {
        IssuerKind::Acme
    }

    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.obtain(order).boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.send_revocation(certificate, reason, None).boxed()
    }

    fn revoke_with_key<'a>(
        &'a self,
        certificate: &'a Certificate,
        key: KeyRef,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        async move {
            let key = JwsKey::new(key).map_err(|error| IssuerError::Refused { reason: error.to_string() })?;
            self.send_revocation(certificate, reason, Some(key)).await
        }
        .boxed()
    }

    fn renewal_window<'a>(
        &'a self,
        certificate: &'a Certificate,
    ) -> BoxFuture<'a, Result<Option<Window>, IssuerError>> {
        self.window(certificate).boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        self.check_service().boxed()
    }
}

/// Polling intervals that increase.
#[derive(Debug)]
struct PollInterval(Duration);

impl Default for PollInterval {
    fn default() -> Self {
        Self(POLL_INTERVAL_FIRST)
    }
}

impl PollInterval {
    /// Returns the next wait: the server's request, up to a maximum, or twice the last wait.
    fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let own = self.0;
        self.0 = (own * 2).min(POLL_INTERVAL_MAX);
        retry_after.map_or(own, |retry_after| retry_after.clamp(POLL_INTERVAL_FIRST, RETRY_AFTER_MAX))
    }
}

/// Waits for `pause`. Fails if the deadline is earlier.
async fn wait(pause: Duration, deadline: Instant, stage: &'static str) -> Result<(), IssuerError> {
    if Instant::now() + pause >= deadline {
        return Err(IssuerError::TimedOut { stage });
    }
    tokio::time::sleep(pause).await;
    Ok(())
}
