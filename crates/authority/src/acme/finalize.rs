//! Finalization of orders (RFC 8555 section 7.4): a certificate is issued for a CSR after all names are validated.
//!
//! The CSR is stored first, and the order is then `processing`. The identifier of the order is the idempotency key of the issuance.
//! After a crash, the next request or worker that reads the order therefore finishes it with the same certificate.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use events::{AcmeOrderCompleted, AcmeOrderRefused, Event};
use http::{Response, StatusCode};
use serde::Deserialize;
use store::new_event;
use uuid::Uuid;
use x509::UnixTime;
use x509::csr::CertificateRequest;

use super::Server;
use super::accounts::actor;
use super::identifier::Identifier;
use super::jose::thumbprint_of_spki;
use super::limits::Kind as Limited;
use super::orders::name_set_keys;
use super::problem::{Kind, Problem};
use super::request::AccountRequest;
use super::state::{OrderState, responded_method};
use super::validate::ValidationRequest;
use super::writes::Issued;
use crate::issue::{IssueError, IssueRequest, Source};
use crate::profile::Profile;
use crate::tables;
use crate::tables::acme::{
    AcmeAuthorization, AcmeFinalizedOrder, AcmeIssuanceResult, AcmeOrder, AcmeOrderStatus,
};

/// Validity of a CAA check in microseconds. RFC 8659 section 3 refers to the TTL; section 4.2.2.1 of the Baseline Requirements
/// allows 8 hours.
const CAA_VALIDITY_US: i64 = 8 * 3_600 * 1_000_000;
/// Time in microseconds that a node may take to issue before another node takes over. It is longer than the timeout for the CA key.
const ISSUANCE_CLAIM_US: i64 = 45 * 1_000_000;

#[derive(Debug, Deserialize)]
struct Finalize {
    csr: String,
}

impl Server {
    /// Handles `finalize` requests.
    pub(crate) async fn finalize(
        &self,
        id: Uuid,
        signed: &AccountRequest,
    ) -> Result<Response<Bytes>, Problem> {
        let wanted: Finalize = signed.json()?;
        let (mut order, authorizations) = self.order_of_account(id, signed).await?;
        let not_ready = |state| {
            let detail = format!("the order has the status {state}, not ready");
            Problem::new(Kind::OrderNotReady, detail).status(StatusCode::FORBIDDEN)
        };
        match OrderState::of(&order, &authorizations, self.now_us()) {
            OrderState::Ready => {}
            OrderState::Pending => return Err(not_ready("pending")),
            OrderState::Processing => return Err(not_ready("processing")),
            OrderState::Valid => return Err(not_ready("valid")),
            OrderState::Invalid => return Err(not_ready("invalid")),
        }
        let csr =
            URL_SAFE_NO_PAD.decode(&wanted.csr).map_err(|_| bad_csr("not base64url without padding"))?;
        let profile = self.profile(&order.profile).await?;
        self.check_csr(&csr, &order, &profile).await?;
        self.check_caa(&order, &authorizations).await?;
        if order.replaces.is_none() {
            let (subject, text) = name_set_keys(order.names.iter().cloned());
            let account = order.account.to_string();
            self.take(Limited::DuplicateCertificates, &subject, &[&account, &text]).await.map_err(
                |seconds| super::problem::rate_limited("certificates for exactly these names", seconds),
            )?;
        }
        let claimed_until_us = self.now_us() + ISSUANCE_CLAIM_US;
        if !self.writes.finalize(AcmeFinalizedOrder { id, csr: csr.clone(), claimed_until_us }).await? {
            return Err(not_ready("finalized already"));
        }
        order.status = AcmeOrderStatus::Processing;
        order.csr = Some(csr);
        order.claimed_until_us = Some(claimed_until_us);
        let order = self.issue(order).await;
        self.order_response(&order, &authorizations)
    }

    /// Checks everything in a CSR that the client can correct with another CSR (sections 7.4 and 11.1).
    async fn check_csr(&self, der: &[u8], order: &AcmeOrder, profile: &Profile) -> Result<(), Problem> {
        let csr = CertificateRequest::parse(der).map_err(|error| bad_csr(&error.to_string()))?;
        csr.verify().map_err(|error| bad_csr(&format!("invalid signature: {error}")))?;
        let mut found = BTreeSet::new();
        for name in csr.names() {
            let identifier = Identifier::of(&name).ok_or_else(|| {
                bad_csr(&format!("the requested name {name:?} is neither a DNS name nor an IP address"))
            })?;
            found.insert(identifier.key());
        }
        let ordered: BTreeSet<String> = order.names.iter().cloned().collect();
        if found != ordered {
            let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
            return Err(bad_csr(&format!(
                "it requests {}, but the order is for {}",
                list(&found),
                list(&ordered)
            )));
        }
        if let Some(reason) = profile.key_refusal(&csr.public_key) {
            return Err(bad_csr(&reason));
        }
        if let Some(thumbprint) = thumbprint_of_spki(&csr.public_key.spki)
            && self.reads.is_account_key(thumbprint).await?
        {
            return Err(bad_csr("its key is the key of an ACME account: generate another key"));
        }
        Ok(())
    }

    /// Checks CAA again if the validation is old or if no validation took place.
    async fn check_caa(
        &self,
        order: &AcmeOrder,
        authorizations: &[AcmeAuthorization],
    ) -> Result<(), Problem> {
        if self.options.caa_identities.is_empty() {
            return Ok(());
        }
        let now_us = self.now_us();
        let mut refused = Vec::new();
        for one in authorizations {
            let method = responded_method(one);
            let recent = one.validated_at_us.is_some_and(|at| now_us - at < CAA_VALIDITY_US);
            let Some(identifier) = Identifier::from_key(&one.identifier) else {
                return Err(Problem::internal());
            };
            if method.is_some() && recent {
                continue;
            }
            let question = ValidationRequest {
                identifier: identifier.clone(),
                wildcard: one.wildcard,
                method,
                token: String::new(),
                account_url: self.account_url(order.account),
                thumbprints: Vec::new(),
            };
            if let Err(failure) = self.validator.caa(&question).await {
                refused.push((identifier, failure.problem()));
            }
        }
        if refused.is_empty() { Ok(()) } else { Err(Problem::combine(refused)) }
    }

    /// Issues the certificate of a processing order and stores the result. After a temporary failure (of the database or the key),
    /// the order stays `processing`.
    pub(crate) async fn issue(&self, mut order: AcmeOrder) -> AcmeOrder {
        let outcome = match self.try_issue(&order).await {
            Ok(id) => Ok(id),
            Err(Some(problem)) => Err(problem.json().to_string()),
            Err(None) => return order,
        };
        let subject = format!("acme-order/{}", order.id);
        let account = order.account;
        let event = match outcome {
            Ok(certificate) => Event::AcmeOrderCompleted(AcmeOrderCompleted { certificate, account }),
            Err(_) => Event::AcmeOrderRefused(AcmeOrderRefused { account }),
        };
        let event = new_event(self.now_us(), subject, &event);
        let row = AcmeIssuanceResult { id: order.id, outcome: outcome.clone() };
        match self.writes.issued(Issued { row, event }).await {
            Ok(true) => {
                order.claimed_until_us = None;
                match outcome {
                    Ok(id) => (order.status, order.certificate) = (AcmeOrderStatus::Valid, Some(id)),
                    Err(error) => (order.status, order.error) = (AcmeOrderStatus::Invalid, Some(error)),
                }
                order
            }
            // Another node stored a result first, or the write failed. Only the database shows the current state.
            Ok(false) | Err(_) => {
                tables::Acme::of(&self.store).order(order.id).await.ok().flatten().unwrap_or(order)
            }
        }
    }

    /// Returns the identifier of the certificate, or the problem for the client. `Err(None)` is a temporary error, which was
    /// logged.
    async fn try_issue(&self, order: &AcmeOrder) -> Result<Uuid, Option<Problem>> {
        let csr = order.csr.as_deref().and_then(|der| CertificateRequest::parse(der).ok());
        let csr = csr.ok_or_else(|| Some(bad_csr("the stored certificate request is missing")))?;
        let wanted = match self.profile(&order.profile).await {
            Ok(profile) => profile.requested_extensions.clone(),
            Err(_) => Vec::new(),
        };
        // If the account cannot be read now, the order waits, as for a database failure.
        let account = self.accounts.get(&self.store, order.account).await.map_err(|_| None)?;
        let rights = self.rights(&order.profile, account.row.team.as_deref());
        let seconds = |us: i64| us.div_euclid(1_000_000);
        // Without notBefore, the lifetime starts at the order's time, so that a second attempt requests the same certificate.
        let begin =
            order.not_before_us.or_else(|| order.not_after_us.map(|_| order.created_at_us)).map(seconds);
        let request = IssueRequest {
            idempotency_key: Some(format!("order/{}", order.id)),
            subject: (!csr.subject.is_empty()).then(|| csr.subject.clone()),
            not_before: begin.map(UnixTime),
            lifetime_seconds: order.not_after_us.zip(begin).map(|(end, begin)| seconds(end) - begin + 1),
            must_staple: csr.must_staple,
            extensions: csr.extensions.iter().filter(|one| wanted.contains(&one.oid)).cloned().collect(),
            rights,
            ..IssueRequest::new(
                &order.profile,
                csr.public_key.spki.to_vec(),
                order
                    .names
                    .iter()
                    .filter_map(|name| Identifier::from_key(name))
                    .map(|name| name.general_name())
                    .collect(),
                Source::Acme,
                &actor(order.account),
            )
        };
        match self.authority.issue(request).await {
            Ok(issued) => {
                self.fresh_certificates.keep(order.id, order.account, &issued).await;
                Ok(issued.id)
            }
            Err(error) if error.is_refusal() => {
                tracing::info!(order = %order.id, %error, "rejected an ACME order");
                Err(Some(refusal(&error)))
            }
            Err(error) => {
                tracing::error!(order = %order.id, %error, "cannot issue for an ACME order yet; will retry");
                Err(None)
            }
        }
    }

    /// Finishes a processing order whose claim has expired.
    pub(crate) async fn finish_abandoned_order(&self, order: AcmeOrder) -> AcmeOrder {
        let left = order.status == AcmeOrderStatus::Processing
            && order.claimed_until_us.is_none_or(|until| until <= self.now_us());
        if left { self.issue(order).await } else { order }
    }

    /// Returns the time in microseconds at which another node may take over an issuance that starts now.
    pub(crate) fn issuance_claim_until_us(&self) -> i64 {
        self.now_us() + ISSUANCE_CLAIM_US
    }
}

fn bad_csr(reason: &str) -> Problem {
    Problem::new(Kind::BadCsr, format!("invalid certificate request (CSR): {reason}"))
}

/// Returns the problem for the client. It hides the details of errors that only the operator can correct.
fn refusal(error: &IssueError) -> Problem {
    let kind = match error {
        IssueError::Names(_) | IssueError::Team(_) => Kind::RejectedIdentifier,
        IssueError::Quota(_) => Kind::RateLimited,
        IssueError::Key(_)
        | IssueError::KeyBlocked(_)
        | IssueError::Subject(_)
        | IssueError::Extension(_) => Kind::BadCsr,
        IssueError::Dates(_) | IssueError::Baseline(_) => Kind::Malformed,
        _ => {
            return Problem::new(
                Kind::ServerInternal,
                "the CA cannot issue this certificate; contact its operator",
            );
        }
    };
    Problem::new(kind, error.to_string())
}
