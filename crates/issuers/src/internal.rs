//! The internal CA as an issuer.

use authority::Authority;
use authority::issue::{ApprovalRef, IssueError, IssueRequest, Source};
use authority::revoke::{RevokeError, Selection};
use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use futures_util::future::{BoxFuture, FutureExt};
use x509::Certificate;
use x509::crl::Reason;

use crate::config::{InternalConfig, IssuerKind};
use crate::delivery::DeliveredChain;
use crate::error::IssuerError;
use crate::issuer::Issuer;
use crate::memory::parse_order_csr;
use crate::order::Order;

/// Bytes of the key hash that distinguish orders for the same name. The CA accepts 255 bytes in total.
const KEY_HASH: usize = 12;

#[derive(Debug)]
pub(crate) struct Internal {
    authority: Authority,
    config: InternalConfig,
}

impl Internal {
    pub(crate) fn new(config: &InternalConfig, authority: Authority) -> Self {
        Self { authority, config: config.clone() }
    }

    /// Returns the profile of the managed certificate, for which approval and teams were already checked; else the order's or the
    /// issuer's profile. Rejects an order whose profiles differ.
    fn profile<'a>(&'a self, order: &'a Order) -> Result<&'a str, IssuerError> {
        let named = order.profile.as_deref().or(self.config.profile.as_deref());
        match (order.certificate_profile.as_deref(), named) {
            (Some(own), Some(named)) if own != named => Err(IssuerError::Refused {
                reason: format!(
                    "the certificate has the profile {own}, but its issuer_profile or the issuer's configuration has the \
                     profile {named}: remove {named} there, or set the profile {named} in the certificate"
                ),
            }),
            (Some(profile), _) | (None, Some(profile)) => Ok(profile),
            (None, None) => Err(IssuerError::misconfigured(
                "neither the order nor the issuer names a profile of the internal CA",
            )),
        }
    }

    async fn obtain(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        let request = parse_order_csr(order)?;
        let profile = self.profile(order)?;
        let ca = match &self.config.ca {
            _ if order.ca.is_some() => order.ca,
            Some(name) => {
                let ca = self.authority.ca(name).await;
                Some(ca.map_err(|error| IssuerError::misconfigured(format!("ca: {error}")))?.id)
            }
            None => None,
        };
        let spki = request.public_key.spki.to_vec();
        // The same request for another key is a different certificate, not a reused idempotency key.
        let hash = HEXLOWER.encode(&digest(&SHA256, &spki).as_ref()[..KEY_HASH]);
        let wish = IssueRequest {
            idempotency_key: Some(format!("{}:{hash}", order.key)),
            ca,
            lifetime_seconds: order.lifetime_seconds,
            must_staple: request.must_staple,
            consent: Some(ApprovalRef::Run(order.key.clone())),
            ..IssueRequest::new(profile, spki, order.names.clone(), Source::Lifecycle, &order.requester)
        };
        let until = order.deadline.into();
        let issued = tokio::time::timeout_at(until, self.authority.issue(wish)).await;
        let issued = issued.map_err(|_| IssuerError::TimedOut { stage: "the internal CA signs" })?;
        let issued = issued.map_err(|error| error_of(&error))?;
        let mut chain = vec![issued.der.to_vec()];
        chain.extend(issued.chain.iter().map(|der| der.to_vec()));
        if issued.chain.is_empty() {
            // A root signed the certificate directly. Without the root the chain could not be verified.
            let root = self.authority.ca_by_id(issued.ca).await;
            let root = root.map_err(|error| IssuerError::Storage { reason: error.to_string() })?;
            chain.push(root.certificate.der.to_vec());
        }
        Ok(DeliveredChain { chain })
    }

    async fn withdraw(&self, certificate: &Certificate, reason: Reason) -> Result<(), IssuerError> {
        let which = Selection::Fingerprint(certificate.fingerprint);
        match self.authority.revoke(which, reason, None, "system:lifecycle").await {
            Ok(_) => Ok(()),
            Err(RevokeError::Store(error)) => Err(IssuerError::Storage { reason: error.to_string() }),
            Err(error) => Err(IssuerError::Refused { reason: error.to_string() }),
        }
    }
}

fn error_of(error: &IssueError) -> IssuerError {
    let reason = error.to_string();
    match error {
        IssueError::Store(_) => IssuerError::Storage { reason },
        IssueError::Quota(over) => IssuerError::RateLimited { retry_after: Some(over.retry_after), reason },
        error if error.is_refusal() => IssuerError::Refused { reason },
        _ => IssuerError::unavailable(reason),
    }
}

impl Issuer for Internal {
    fn kind(&self) -> IssuerKind {
        IssuerKind::Internal
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
        async {
            let Some(name) = &self.config.ca else {
                return Ok("internal CA; the profile selects the CA".to_owned());
            };
            let ca = self.authority.ca(name).await;
            let ca = ca.map_err(|error| IssuerError::misconfigured(format!("ca: {error}")))?;
            Ok(format!("internal CA {}", ca.name))
        }
        .boxed()
    }
}
