//! The OCSP responder (RFC 6960). Each CA has a delegated responder with its own key.
//!
//! A response without a nonce is cached until half of its lifetime. A revocation by this node removes the cached response
//! immediately; a revocation by another node removes it within one or two seconds. A response with a nonce is signed for each
//! request.

mod cache;
mod error;
mod renewal;
mod responder;

use std::sync::Arc;
use std::time::{Duration, Instant};

use flight::{Failed, Fresh};
use x509::crl::Reason;
use x509::ocsp::{
    self, CertificateId, ErrorStatus, Request, ResponseEntry, Status, basic_response, error_response,
    tbs_response,
};
use x509::{SerialNumber, UnixTime};

use crate::Authority;
use crate::crl::SKEW_SECONDS;
use crate::figures::Counters;
use crate::tables;
use crate::tree::{Ca, CaError};

pub(crate) use cache::Responders;
pub use cache::{Freshness, OcspAnswer};
pub use error::OcspError;
pub(crate) use renewal::responder_tbs;

/// Timeout of a signature with the key of a responder.
const SIGN_FOR: Duration = Duration::from_secs(10);

impl Authority {
    /// Returns the response to an OCSPRequest. For invalid requests and internal errors, the OCSP response contains an error
    /// status.
    ///
    /// # Errors
    /// None: [`OcspAnswer::der`] is always an OCSPResponse.
    #[crate::boxed]
    pub async fn ocsp(&self, request: &[u8]) -> OcspAnswer {
        self.ocsp_for_ca(None, request).await
    }

    /// Returns the response to a request at the URL of one CA, like [`Authority::ocsp`]. That CA is tried first.
    #[crate::boxed]
    pub async fn ocsp_for_ca(&self, ca: Option<&Arc<Ca>>, request: &[u8]) -> OcspAnswer {
        let error = |status| OcspAnswer { der: error_response(status).into(), freshness: None };
        let Ok(request) = Request::parse(request) else { return error(ErrorStatus::MalformedRequest) };
        match self.answer(ca, &request).await {
            Ok(Some(answer)) => answer,
            Ok(None) => error(ErrorStatus::Unauthorized),
            Err(trouble) => {
                tracing::warn!(error = &trouble as &dyn std::error::Error, "cannot answer an OCSP request");
                error(ErrorStatus::TryLater)
            }
        }
    }

    /// Returns the response; `None` if no CA of this server issued the first certificate in the request. The responder has no
    /// authority over certificates of other CAs.
    async fn answer(&self, ca: Option<&Arc<Ca>>, request: &Request) -> Result<Option<OcspAnswer>, OcspError> {
        let Some(first) = request.certificates.first() else { return Ok(None) };
        let issuers = self.candidate_issuers(ca, first).await?;
        let Some(issuer) = issuers.first().cloned() else { return Ok(None) };
        if request.nonce.is_some() || request.certificates.len() > 1 || issuers.len() > 1 {
            return self.sign_response(&issuers, request).await.map(Some);
        }
        let key = self.responders().key(issuer.id, first);
        let now = UnixTime(self.clock().now_seconds());
        let known = self.responders().answers.get(&key);
        if let Some(Ok(answer)) = known.map(|known| known.outcome.clone())
            && answer.freshness.is_some_and(|freshness| now < freshness.refresh_at)
        {
            return Ok(Some(answer));
        }
        let (this, request) = (self.clone(), request.clone());
        let make = move || async move {
            let made = this.sign_response(&issuers, &request).await;
            let made = made.map_err(|error| Failed { error, lifetime: Duration::ZERO })?;
            // A response about an unknown certificate is not cached, because clients could fill the cache with such requests.
            let lifetime = match made.freshness {
                Some(freshness) => Duration::from_secs(freshness.refresh_at.since(now).max(0) as u64),
                None => Duration::ZERO,
            };
            Ok(Fresh { value: made, lifetime })
        };
        match self.responders().answers.refresh(&key, make.clone()).await {
            Some(made) => made.map(Some),
            None => self.responders().answers.fetch(&key, make).await.map(Some),
        }
    }

    /// Returns the CAs to which a request may refer: the CA of the URL, or all CAs with this name and key.
    async fn candidate_issuers(
        &self,
        at: Option<&Arc<Ca>>,
        id: &CertificateId,
    ) -> Result<Vec<Arc<Ca>>, OcspError> {
        let is_meant = |ca: &Arc<Ca>| ca.publishes() && identifies(id, ca);
        if let Some(ca) = at.filter(|ca| is_meant(ca)) {
            return Ok(vec![Arc::clone(ca)]);
        }
        Ok(self.all_cas().await?.into_iter().filter(is_meant).collect())
    }

    /// Signs a response for all certificates of the request.
    async fn sign_response(&self, issuers: &[Arc<Ca>], request: &Request) -> Result<OcspAnswer, OcspError> {
        let Some(signing) = issuers.first() else { return Err(CaError::Unknown(String::new()).into()) };
        let responder = self.responder(signing).await?;
        let now = UnixTime(self.clock().now_seconds());
        let life = i64::try_from(self.options().ocsp_lifetime.as_secs()).unwrap_or(i64::MAX);
        // The response must not be valid longer than the responder certificate.
        let next_update = now.plus(life).min(responder.not_after);
        let this_update = now.plus(-SKEW_SECONDS).max(responder.not_before);
        let mut answers: Vec<ResponseEntry> = Vec::with_capacity(request.certificates.len());
        for id in &request.certificates {
            let status = self.status_of(issuers, id).await?;
            // Backdate, but not to a time before the revocation that the response reports.
            let this_update = match status {
                Status::Revoked { at, .. } => this_update.max(at),
                _ => this_update,
            };
            answers.push((id.clone(), status, this_update, Some(next_update)));
        }
        let this_update = answers.iter().map(|answer| answer.2).max().unwrap_or(this_update);
        let known = answers.iter().all(|(_, status, ..)| *status != Status::Unknown);
        let nonce = request.nonce.as_deref();
        let tbs = tbs_response(&responder.key_hash, now, &answers, nonce);
        let signature = responder.signer.sign(&tbs, Instant::now() + SIGN_FOR).await?;
        let der = basic_response(&tbs, &responder.signer.algorithm(), &signature, &[&responder.certificate]);
        Counters::add(&self.counters().ocsp_signed, 1);
        let refresh_at = now.plus((next_update.since(now) / 2).max(1));
        let freshness = Freshness { this_update, refresh_at, next_update };
        Ok(OcspAnswer { der: der.into(), freshness: (nonce.is_none() && known).then_some(freshness) })
    }

    async fn status_of(&self, issuers: &[Arc<Ca>], id: &CertificateId) -> Result<Status, OcspError> {
        for ca in issuers.iter().filter(|ca| identifies(id, ca)) {
            let found = tables::Issued::of(self.store()).status(ca.id, id.serial.content()).await?;
            match found {
                None => {}
                Some(Some(facts)) if facts.reason != Reason::RemoveFromCrl => {
                    let reason = Some(facts.reason).filter(|reason| *reason != Reason::Unspecified);
                    return Ok(Status::Revoked {
                        at: UnixTime(facts.revoked_at_us.div_euclid(1_000_000)),
                        reason,
                    });
                }
                Some(_) => return Ok(Status::Good),
            }
        }
        Ok(Status::Unknown)
    }
}

/// Returns whether the request names this CA as the issuer.
fn identifies(id: &CertificateId, ca: &Ca) -> bool {
    // The serial number is not compared; an empty one avoids an allocation.
    let named = ocsp::CertificateId::of(&ca.certificate, SerialNumber::from_content(&[]), id.hash);
    named.issuer_key_hash == id.issuer_key_hash && named.issuer_name_hash == id.issuer_name_hash
}
