//! The steps of one order up to its certificate (RFC 8555 sections 7.1.6, 7.4).

use std::time::Instant;

use callout::Reply;
use http::header;
use serde_json::json;
use telemetry::spans::{Kind, Span, part};
use x509::Certificate;

use super::account::Account;
use super::challenge::Prover;
use super::client::Failure;
use super::wire::{OrderObject, OrderStatus, Problem, identifier};
use super::{Acme, PollInterval, certificate_id, wait};
use crate::delivery::{DeliveredChain, parse_pem_chain};
use crate::error::IssuerError;
use crate::jose::base64url;
use crate::memory::parse_order_csr;
use crate::order::Order;

/// Maximum number of alternate chains to consider.
const ALTERNATES_MAX: usize = 8;

/// An order that exists at the server.
struct KnownOrder {
    url: String,
    object: OrderObject,
}

impl Acme {
    pub(super) async fn obtain(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        match self.attempt(order).await {
            // The server lost the account: create it again with the same key.
            Err(failed) if failed.problem.code() == "accountDoesNotExist" => {
                self.accounts.forget(&self.config).await?;
                Ok(self.attempt(order).await?)
            }
            other => Ok(other?),
        }
    }

    async fn attempt(&self, order: &Order) -> Result<DeliveredChain, Failure> {
        let account = self.accounts.get(&self.client, &self.config, order.deadline).await?;
        if let Some(known) = self.resume(&account, order).await? {
            if let Some(chain) = self.resume_order(&account, order, known).await? {
                return Ok(DeliveredChain { chain });
            }
            self.memory.forget(order).await?;
        }
        let known = part("acme new-order", Kind::Client, as_is, self.begin(&account, order)).await?;
        let chain = self.finish(&account, order, known).await?;
        if is_for(&chain, order)? {
            return Ok(DeliveredChain { chain });
        }
        // Servers return one pending order to all requests for the same names. Another request finalized this order with another
        // key.
        self.memory.forget(order).await?;
        let known = self.begin(&account, order).await?;
        Ok(DeliveredChain { chain: self.finish(&account, order, known).await? })
    }

    /// Continues an earlier order and returns its certificate. `None` when the order is no longer usable and a new one is needed.
    async fn resume_order(
        &self,
        account: &Account,
        order: &Order,
        known: KnownOrder,
    ) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        match self.finish(account, order, known).await {
            Ok(chain) => Ok(is_for(&chain, order)?.then_some(chain)),
            // The server validated while this process was down. The failure says nothing about a new attempt.
            Err(failed) if matches!(failed.error, IssuerError::Unproven { .. }) => {
                tracing::info!(problem = %failed.error, "the earlier order has failed");
                Ok(None)
            }
            Err(failed) => Err(failed),
        }
    }

    /// Returns the earlier order, if it is still usable.
    async fn resume(&self, account: &Account, order: &Order) -> Result<Option<KnownOrder>, Failure> {
        let Some(url) = self.memory.load_order_state(order).await?.url else { return Ok(None) };
        match self.fetch_order(account, &url, order.deadline).await {
            Ok((object, _)) if object.status != OrderStatus::Invalid => Ok(Some(KnownOrder { url, object })),
            Ok(_) => Ok(None),
            // The order expired and was deleted, or belongs to another account.
            Err(failed) if (400..500).contains(&failed.status) && failed.status != 429 => {
                tracing::info!(order = %url, problem = %failed.error, "the earlier order no longer exists");
                Ok(None)
            }
            Err(failed) => Err(failed),
        }
    }

    async fn begin(&self, account: &Account, order: &Order) -> Result<KnownOrder, Failure> {
        let directory = self.client.directory(order.deadline).await?;
        let identifiers: Vec<_> = order.names.iter().map(identifier).collect::<Result<_, _>>()?;
        let mut request = json!({ "identifiers": identifiers });
        if let Some(profile) = order.profile.as_ref().or(self.config.profile.as_ref()) {
            if !directory.meta.profiles.contains_key(profile) {
                let known: Vec<&str> = directory.meta.profiles.keys().map(String::as_str).collect();
                return Err(IssuerError::misconfigured(format!(
                    "the server has no profile {profile:?}; it has: {}",
                    known.join(", ")
                ))
                .into());
            }
            request["profile"] = json!(profile);
        }
        let replaces = order.replaces.as_deref().filter(|_| directory.renewal_info.is_some());
        let replaces = replaces.and_then(|der| certificate_id(&Certificate::parse(der).ok()?));
        if let Some(id) = &replaces {
            request["replaces"] = json!(id);
        }
        let reply = match self.new_order(account, order, &request).await {
            // The replaced certificate is from another server or was already replaced (RFC 9773 section 5). This must not block the
            // new order.
            Err(failed) if replaces.is_some() && matches!(failed.status, 400..=428) => {
                if let Some(members) = request.as_object_mut() {
                    members.remove("replaces");
                }
                self.new_order(account, order, &request).await?
            }
            other => other?,
        };
        let url = reply.header(header::LOCATION).map(str::to_owned);
        let url = url.ok_or_else(|| IssuerError::unavailable("the server created an order without a URL"))?;
        let object = reply.json()?;
        self.memory.set_url(order, &url).await?;
        Ok(KnownOrder { url, object })
    }

    async fn new_order(
        &self,
        account: &Account,
        order: &Order,
        request: &serde_json::Value,
    ) -> Result<Reply, Failure> {
        let directory = self.client.directory(order.deadline).await?;
        self.client.post(&directory.new_order, Some(request), account.signed(), order.deadline).await
    }

    /// Advances the order through its states until its certificate is available.
    async fn finish(
        &self,
        account: &Account,
        order: &Order,
        known: KnownOrder,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let KnownOrder { url, mut object } = known;
        let mut poll_interval = PollInterval::default();
        let mut requested = None;
        let mut proven = false;
        loop {
            match object.status {
                OrderStatus::Valid => {
                    let certificate = object.certificate.as_deref();
                    let certificate = certificate.ok_or_else(|| {
                        IssuerError::unavailable("the server returned a valid order without a certificate")
                    })?;
                    let download = self.download(account, certificate, order.deadline);
                    return part("acme certificate", Kind::Client, as_is, download).await;
                }
                OrderStatus::Invalid => {
                    self.memory.forget(order).await?;
                    return Err(invalid_order_error(&object, order).into());
                }
                OrderStatus::Pending if !proven => {
                    let prover = self.prover(account, order.deadline);
                    let proofs = prover.prove(&object.authorizations);
                    part("acme authorization", Kind::Client, as_is, proofs).await?;
                    proven = true;
                }
                OrderStatus::Pending | OrderStatus::Processing => {
                    wait(poll_interval.next(requested), order.deadline, "the server processes the order")
                        .await?;
                }
                OrderStatus::Ready => {
                    let finalize = self.finalize(account, order, &object);
                    match part("acme finalize", Kind::Client, as_is, finalize).await? {
                        Some(finalized) => {
                            (object, requested) = finalized;
                            continue;
                        }
                        None => {
                            wait(poll_interval.next(None), order.deadline, "the server accepts the request")
                                .await?;
                        }
                    }
                }
            }
            (object, requested) = self.fetch_order(account, &url, order.deadline).await?;
        }
    }

    /// Sends the CSR. `None` when the server is not ready for it.
    async fn finalize(
        &self,
        account: &Account,
        order: &Order,
        object: &OrderObject,
    ) -> Result<Option<(OrderObject, Option<std::time::Duration>)>, Failure> {
        let payload = json!({ "csr": base64url(&order.csr_der) });
        match self.client.post(&object.finalize, Some(&payload), account.signed(), order.deadline).await {
            Ok(reply) => Ok(Some((reply.json()?, reply.retry_after(self.client.now())))),
            Err(failed) if failed.problem.code() == "orderNotReady" => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    async fn fetch_order(
        &self,
        account: &Account,
        url: &str,
        deadline: Instant,
    ) -> Result<(OrderObject, Option<std::time::Duration>), Failure> {
        let reply = self.client.post(url, None, account.signed(), deadline).await?;
        Ok((reply.json()?, reply.retry_after(self.client.now())))
    }

    fn prover<'a>(&'a self, account: &'a Account, deadline: Instant) -> Prover<'a> {
        Prover {
            client: &self.client,
            config: &self.config,
            account,
            responders: &self.responders,
            dns01: self.dns01.as_ref(),
            deadline,
        }
    }

    /// Downloads the chain, or the preferred one of its alternates (RFC 8555 section 7.4.2).
    async fn download(
        &self,
        account: &Account,
        url: &str,
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let reply = self.client.post(url, None, account.signed(), deadline).await?;
        let first = parse_pem_chain(&reply.body)?;
        let Some(preferred) = &self.config.preferred_chain else { return Ok(first) };
        if leads_to(&first, preferred) {
            return Ok(first);
        }
        for alternate in alternates(&reply) {
            let reply = self.client.post(&alternate, None, account.signed(), deadline).await?;
            let chain = parse_pem_chain(&reply.body)?;
            if leads_to(&chain, preferred) {
                return Ok(chain);
            }
        }
        tracing::info!(%preferred, "no chain of the preferred issuer; the server's first chain is used");
        Ok(first)
    }
}

/// Returns the span unchanged: its parent, the span of the order, has the attributes.
fn as_is(span: Span) -> Span {
    span
}

/// Returns whether the leaf has the order's public key.
fn is_for(chain: &[Vec<u8>], order: &Order) -> Result<bool, IssuerError> {
    let requested = parse_order_csr(order)?.public_key.spki;
    let leaf = chain.first().and_then(|der| Certificate::parse(der).ok());
    Ok(leaf.is_some_and(|leaf| leaf.public_key.spki == requested))
}

fn invalid_order_error(object: &OrderObject, order: &Order) -> IssuerError {
    let problem = object.error.clone().unwrap_or_else(|| Problem {
        detail: "the order became invalid and the server gives no reason".to_owned(),
        ..Problem::default()
    });
    let reason = problem.text();
    match problem.code() {
        "serverInternal" => IssuerError::unavailable(reason),
        "rateLimited" => IssuerError::RateLimited { retry_after: None, reason },
        "unauthorized" | "connection" | "dns" | "tls" | "incorrectResponse" => {
            let name = problem.subproblems.iter().find_map(|sub| sub.identifier.as_ref());
            let name = name.map(|identifier| identifier.value.clone());
            let name =
                name.unwrap_or_else(|| order.names.iter().map(|name| format!("{name:?}")).take(1).collect());
            IssuerError::Unproven { name, reason }
        }
        _ => IssuerError::Refused { reason },
    }
}

/// Returns the URLs of `Link: <…>;rel="alternate"` headers (RFC 8288).
fn alternates(reply: &Reply) -> Vec<String> {
    let links = reply.headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    let targets = links.flat_map(|line| line.split(", ")).filter_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let mut parameters = parameters.split(';').map(str::trim);
        parameters
            .any(|parameter| matches!(parameter, r#"rel="alternate""# | "rel=alternate"))
            .then(|| target.to_owned())
    });
    targets.take(ALTERNATES_MAX).collect()
}

/// Returns whether a common name in the subject or issuer of the chain's top certificate contains `name`, ignoring case.
fn leads_to(chain: &[Vec<u8>], name: &str) -> bool {
    let wanted = name.to_lowercase();
    let top = chain.last().and_then(|der| Certificate::parse(der).ok());
    top.is_some_and(|top| {
        let names = top.issuer.common_names.iter().chain(&top.subject.common_names);
        names.into_iter().any(|name| name.to_lowercase().contains(&wanted))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    #[test]
    fn alternate_chains_are_found_in_link_headers() {
        let mut headers = HeaderMap::new();
        for link in [
            r#"<https://ca/dir>;rel="index""#,
            r#"<https://ca/cert/1/1>;rel="alternate""#,
            r#"<https://ca/cert/1/2>; rel="alternate", <https://ca/up>;rel="up""#,
            "nonsense",
        ] {
            headers.append(header::LINK, HeaderValue::from_static(link));
        }
        let reply = Reply { status: StatusCode::OK, headers, body: Bytes::new() };
        assert_eq!(alternates(&reply), ["https://ca/cert/1/1", "https://ca/cert/1/2"]);
    }
}
