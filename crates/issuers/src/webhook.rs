//! An HTTP service of the operator as an issuer.
//!
//! It gets a signed POST with the order and the CSR. It responds with 200 and `{"chain": "PEM…"}`, or with 202 and a `Location` (or
//! `{"poll": "URL"}`) to poll until the chain is ready.

use std::time::{Duration, Instant};

use callout::{HttpClient, Reply, Request, SigningKey, excerpt};
use futures_util::future::{BoxFuture, FutureExt};
use http::header;
use serde::Deserialize;
use serde_json::json;
use store::Clock;
use x509::crl::Reason;
use x509::{Certificate, UnixTime, pem};

use crate::config::{IssuerKind, WebhookConfig};
use crate::context::IssuerContext;
use crate::delivery::{DeliveredChain, parse_pem_chain};
use crate::error::IssuerError;
use crate::exec::order_json;
use crate::issuer::{Issuer, IssuerIdentity};
use crate::memory::OrderStore;
use crate::order::Order;

/// Timeout of a revocation.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Wait between polls, unless the service requests another.
const PAUSE: Duration = Duration::from_secs(2);
/// Minimum wait between polls, even if the service requests a shorter one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A service that issues certificates.
#[derive(Debug)]
pub(crate) struct Webhook {
    url: String,
    revoke_url: Option<String>,
    http: HttpClient,
    key: SigningKey,
    memory: OrderStore,
    clock: Clock,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WebhookResponse {
    chain: Option<String>,
    poll: Option<String>,
    reason: Option<String>,
}

impl Webhook {
    pub(crate) fn new(
        identity: &IssuerIdentity,
        config: &WebhookConfig,
        context: &IssuerContext,
    ) -> Result<Self, IssuerError> {
        let http = HttpClient::new(&config.http, &context.resolver)?;
        for url in [Some(&config.url), config.revoke_url.as_ref()].into_iter().flatten() {
            http.guard().url(url).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        }
        Ok(Self {
            url: config.url.clone(),
            revoke_url: config.revoke_url.clone(),
            http,
            key: SigningKey::new(&config.secret)?,
            memory: OrderStore::new(context.store.clone(), context.clock.clone(), identity.id),
            clock: context.clock.clone(),
        })
    }

    async fn obtain(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        let mut reply = match self.memory.load_order_state(order).await?.url {
            Some(url) => match self.poll(&url, order.deadline).await? {
                // The service lost the order. The new request has the same key, so the service can detect the repetition.
                missing if matches!(missing.status.as_u16(), 404 | 410) => self.post(order).await?,
                reply => reply,
            },
            None => self.post(order).await?,
        };
        let mut url = None;
        loop {
            if reply.status.as_u16() != 202 {
                return self.delivery(&reply);
            }
            if let Some(next) = self.next(&reply)? {
                self.memory.set_url(order, &next).await?;
                url = Some(next);
            }
            let url = url.as_deref().ok_or_else(|| IssuerError::unavailable("202 without a poll URL"))?;
            let pause = reply.retry_after(self.now()).unwrap_or(PAUSE).clamp(PAUSE_MIN, PAUSE_MAX);
            if Instant::now() + pause >= order.deadline {
                return Err(IssuerError::TimedOut { stage: "the service processes the order" });
            }
            tokio::time::sleep(pause).await;
            reply = self.poll(url, order.deadline).await?;
        }
    }

    async fn post(&self, order: &Order) -> Result<Reply, IssuerError> {
        let mut body = order_json(order);
        body["csr"] = json!(pem::encode("CERTIFICATE REQUEST", &order.csr_der));
        let request = Request::post_json(&self.url, &body).header("idempotency-key", order.key.as_str());
        Ok(self.http.send(self.key.sign(request), order.deadline, "waiting for the service").await?)
    }

    async fn poll(&self, url: &str, deadline: Instant) -> Result<Reply, IssuerError> {
        Ok(self.http.send(self.key.sign(Request::get(url)), deadline, "waiting for the service").await?)
    }

    /// Returns the URL of the next poll. The URL must be on the configured origin, because the request is signed.
    fn next(&self, reply: &Reply) -> Result<Option<String>, IssuerError> {
        let from_body = serde_json::from_slice::<WebhookResponse>(&reply.body).unwrap_or_default().poll;
        let Some(target) = from_body.or_else(|| reply.header(header::LOCATION).map(str::to_owned)) else {
            return Ok(None);
        };
        let bad = |what: String| IssuerError::unavailable(format!("invalid poll URL: {what}"));
        let base = self.http.guard().url(&self.url).map_err(|error| bad(error.to_string()))?;
        let next = base.join(&target).map_err(|error| bad(error.to_string()))?;
        if next.origin() != base.origin() {
            return Err(bad("its origin differs from the configured URL".to_owned()));
        }
        Ok(Some(next.to_string()))
    }

    fn delivery(&self, reply: &Reply) -> Result<DeliveredChain, IssuerError> {
        if !reply.status.is_success() {
            return Err(error_of(reply, self.now()));
        }
        let answer: WebhookResponse = reply.json()?;
        let chain = answer.chain.ok_or_else(|| IssuerError::unavailable("the response has no `chain`"))?;
        Ok(DeliveredChain { chain: parse_pem_chain(chain.as_bytes())? })
    }

    async fn withdraw(&self, certificate: &Certificate, reason: Reason) -> Result<(), IssuerError> {
        let url = self.revoke_url.as_ref();
        let url = url.ok_or(IssuerError::Unsupported { what: "revoke: set its `revoke_url`" })?;
        let body = json!({ "certificate": pem::encode("CERTIFICATE", &certificate.der), "reason": reason.to_string() });
        let request = self.key.sign(Request::post_json(url, &body));
        let reply =
            self.http.send(request, Instant::now() + REQUEST_TIMEOUT, "waiting for the service").await?;
        if reply.status.is_success() { Ok(()) } else { Err(error_of(&reply, self.now())) }
    }

    async fn check_service(&self) -> Result<String, IssuerError> {
        let request = Request { method: http::Method::HEAD, ..Request::get(&self.url) };
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let reply = self.http.send(self.key.sign(request), deadline, "waiting for the service").await?;
        match reply.status.as_u16() {
            401 | 403 | 500.. => Err(error_of(&reply, self.now())),
            // The service need not support HEAD; any response shows that it is reachable.
            code => Ok(format!("reachable; HEAD returned {code}")),
        }
    }

    fn now(&self) -> UnixTime {
        UnixTime(self.clock.now_seconds())
    }
}

fn error_of(reply: &Reply, now: UnixTime) -> IssuerError {
    let from_body = serde_json::from_slice::<WebhookResponse>(&reply.body).unwrap_or_default().reason;
    let reason = from_body.map_or_else(|| reply.excerpt(), |reason| excerpt(&reason));
    let reason = format!("{} {reason}", reply.status.as_u16());
    let retry_after = reply.retry_after(now);
    match reply.status.as_u16() {
        401 | 403 => IssuerError::Denied { reason },
        429 => IssuerError::RateLimited { retry_after, reason },
        408 | 500.. => IssuerError::Unavailable { reason, retry_after },
        _ => IssuerError::Refused { reason },
    }
}

impl Issuer for Webhook {
    fn kind(&self) -> IssuerKind {
        IssuerKind::Webhook
    }

    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.obtain(order).boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.withdraw(certificate, reason).boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        self.check_service().boxed()
    }
}
