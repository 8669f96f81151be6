//! Handling of `revokeCert` requests (RFC 8555 section 7.6).

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde::Deserialize;
use x509::Certificate;
use x509::crl::Reason;

use super::identifier::Identifier;
use super::problem::{Kind, Problem};
use super::request::{AccountRequest, KeyRequest, VerifiedRequest};
use super::{Server, respond};
use crate::issue::{IssuedRecord, IssuedRef};
use crate::revoke::Selection;
use crate::tables;

/// Reasons that a subscriber may give for its own certificate. Only an operator may give other reasons.
const REASONS: [Reason; 5] = [
    Reason::Unspecified,
    Reason::KeyCompromise,
    Reason::AffiliationChanged,
    Reason::Superseded,
    Reason::CessationOfOperation,
];

#[derive(Debug, Deserialize)]
struct RevocationPayload {
    certificate: String,
    reason: Option<i64>,
}

impl Server {
    /// Revokes a certificate. The signer must be the account that requested the certificate, an account authorized for all its
    /// names, or the holder of its private key.
    pub(crate) async fn revoke(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, Problem> {
        let signed = self.signed(request).await?;
        let wanted: RevocationPayload = signed.json()?;
        let der = URL_SAFE_NO_PAD
            .decode(&wanted.certificate)
            .map_err(|_| Problem::malformed("certificate is not base64url without padding"))?;
        let certificate =
            Certificate::parse(&der).map_err(|error| Problem::malformed(format!("certificate: {error}")))?;
        let record = self.authority.issued(&IssuedRef::Fingerprint(certificate.fingerprint)).await?;
        let unknown =
            || Problem::malformed("this server did not issue this certificate").status(StatusCode::NOT_FOUND);
        let record = record.ok_or_else(unknown)?;
        let actor = match &signed {
            VerifiedRequest::Account(signed) => {
                self.authorize_by_account(signed, &certificate, &record).await?
            }
            VerifiedRequest::Key(signed) => authorize_by_key(signed, &certificate, &record)?,
        };
        let reason = reason(wanted.reason)?;
        if record.revocation.is_some_and(|facts| facts.reason != Reason::RemoveFromCrl) {
            return Err(Problem::new(Kind::AlreadyRevoked, "the certificate is already revoked"));
        }
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, certificate = %record.id, "cannot revoke a certificate");
            Problem::internal()
        };
        self.authority
            .revoke(Selection::Id(record.id), reason, None, &actor)
            .await
            .map_err(|error| failed(&error))?;
        if reason == Reason::KeyCompromise && matches!(signed, VerifiedRequest::Key(_)) {
            // The signer has the private key, so all certificates with this key are compromised.
            let key = certificate.public_key.spki_sha256;
            self.authority.block_key(key, &actor).await.map_err(|error| failed(&error))?;
        }
        Ok(respond::empty(StatusCode::OK))
    }

    async fn authorize_by_account(
        &self,
        signed: &AccountRequest,
        certificate: &Certificate,
        record: &IssuedRecord,
    ) -> Result<String, Problem> {
        let actor = signed.account.actor();
        if record.requester == actor {
            return Ok(actor);
        }
        let names: Option<Vec<Identifier>> =
            certificate.subject_alt_names.iter().map(Identifier::of).collect();
        let names = names.filter(|names| !names.is_empty()).ok_or_else(not_owner_problem)?;
        let bases: Vec<String> = names.iter().map(|name| name.base().key()).collect();
        let authorized_identifiers = tables::Acme::of(&self.store)
            .authorized_identifiers(signed.account.row.id, &bases, self.now_us())
            .await?;
        let authorized_identifiers: HashSet<(String, bool)> = authorized_identifiers.into_iter().collect();
        let all = names
            .iter()
            .all(|name| authorized_identifiers.contains(&(name.base().key(), name.is_wildcard())));
        if all { Ok(actor) } else { Err(not_owner_problem()) }
    }
}

fn authorize_by_key(
    signed: &KeyRequest,
    certificate: &Certificate,
    record: &IssuedRecord,
) -> Result<String, Problem> {
    if *certificate.public_key.spki != *signed.key.spki() {
        return Err(Problem::unauthorized("the request is not signed with the certificate's key"));
    }
    Ok(format!("certificate-key:{}", record.id))
}

fn not_owner_problem() -> Problem {
    Problem::unauthorized(
        "this account neither owns this certificate nor has authorizations for all of its names",
    )
}

fn reason(code: Option<i64>) -> Result<Reason, Problem> {
    let Some(code) = code else { return Ok(Reason::Unspecified) };
    REASONS.into_iter().find(|reason| reason.code() == code).ok_or_else(|| {
        let codes: Vec<String> = REASONS.iter().map(|reason| reason.code().to_string()).collect();
        Problem::new(
            Kind::BadRevocationReason,
            format!("revocation reason {code} is not allowed; allowed reasons: {}", codes.join(", ")),
        )
    })
}
