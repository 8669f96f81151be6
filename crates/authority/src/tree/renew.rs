//! Renewal of the certificate of a CA. Key, name and key identifier are unchanged, so that issued certificates are valid with both
//! the old and the new certificate.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, StoreError, Tx};
use x509::{Certificate, UnixTime};

use super::Ca;
use super::certificate::{Body, Dates, certify};
use super::create::{BACKDATE_SECONDS, record_issued, renewed_path_length, repeated_extensions};
use super::error::NewCaError;
use super::specification::LIFETIME_MIN;
use crate::Authority;
use crate::ca_keys::{CaKey, SigningPurpose};
use crate::tables;
use crate::tables::{CaCertificateRole, CaCertificateRow, NewIssued};

/// Text of the error when another call changed the CA first.
const CHANGED: &str = "changed";

impl Authority {
    /// Issues a new certificate for a CA (identifier or name) and its present key. The parent CA signs it; a root signs its own.
    /// The contents are the same as in the old certificate. The lifetime is `lifetime_seconds`, or the lifetime of the old certificate.
    /// The new certificate is used from now on; the old one stays in an alternate chain while it is valid.
    ///
    /// # Errors
    /// [`NewCaError`], for example [`NewCaError::NotIssuing`] if the CA is retired or its parent does not issue, and
    /// [`NewCaError::Elsewhere`] if the parent is not a CA of this server. Nothing is stored then.
    #[crate::boxed]
    pub async fn renew_ca(
        &self,
        ca: &str,
        lifetime_seconds: Option<i64>,
        actor: &str,
    ) -> Result<Arc<Ca>, NewCaError> {
        let ca = self.ca(ca).await?;
        if ca.state != super::CaState::Active {
            return Err(NewCaError::NotIssuing(ca.name.clone()));
        }
        if let Some(path) = &ca.credential {
            return Err(NewCaError::Credential(ca.name.clone(), Arc::clone(path)));
        }
        let old = &ca.certificate;
        let parent = match ca.parent {
            Some(parent) => Some(self.issuing_parent(&parent.to_string()).await?),
            None if ca.is_root() => None,
            None => return Err(NewCaError::Elsewhere(ca.name.clone())),
        };
        let purpose = SigningPurpose::CaCertificate { subject_key: None };
        let own = self.signing(CaKey::Of(&ca), purpose);
        let above = parent.as_ref().map(|parent| self.signing(CaKey::Of(parent), purpose));
        let issuer = parent.as_ref().zip(above.as_ref()).map(|(parent, above)| self.issuer(parent, above));
        let own_length = old.basic_constraints.and_then(|constraints| constraints.path_len);
        let path_length = match &issuer {
            Some(issuer) => renewed_path_length(issuer, own_length)?,
            None => own_length,
        };
        let dates = dates(old, lifetime_seconds, self.now());
        let dates = match &parent {
            Some(parent) => dates.within(&parent.certificate, self.now())?,
            None => dates,
        };
        if dates.until.since(self.now()) < LIFETIME_MIN - 1 {
            return Err(NewCaError::TooShort);
        }
        let extensions = repeated_extensions(&ca, path_length);
        let body = Body { subject: &old.subject, spki: &old.public_key.spki, extensions };
        let certified = certify(body, &own, issuer.as_ref(), dates).await?;
        let row = self.certificate_row(ca.id, &certified, CaCertificateRole::Own, ca.parent);
        let issued = self.issued_row(&certified, ca.parent.unwrap_or(ca.id), actor);
        let details = json!({
            "name": ca.name,
            "before": old.fingerprint.to_string(),
            "fingerprint": certified.certificate.fingerprint.to_string(),
            "not_after": certified.certificate.not_after.to_string(),
        });
        let event = self.event("ca.renew", ca.id, actor, details);
        let before = *old.fingerprint.as_bytes();
        let stored =
            self.store().write("ca_renew", move |tx| store_renewed(tx, before, row, issued, event).boxed());
        stored.await.map_err(|error| match error {
            StoreError::Stale(what) if what == CHANGED => NewCaError::NotIssuing(ca.name.clone()),
            StoreError::Stale(_) => NewCaError::Blocked,
            other => NewCaError::Store(other),
        })?;
        self.invalidate_cas_cache();
        Ok(self.ca_by_id(ca.id).await?)
    }
}

/// Returns dates that start now, with the requested lifetime or the lifetime of the old certificate.
fn dates(old: &Certificate, lifetime_seconds: Option<i64>, now: UnixTime) -> Dates {
    let made_for = old.not_after.since(old.not_before) + 1 - BACKDATE_SECONDS;
    let lifetime = lifetime_seconds.unwrap_or(made_for);
    Dates { from: now.plus(-BACKDATE_SECONDS), until: now.plus(lifetime - 1) }
}

async fn store_renewed(
    tx: &mut Tx,
    before: [u8; 32],
    certificate: CaCertificateRow,
    issued: NewIssued,
    event: AuditEvent,
) -> Result<(), StoreError> {
    if !tables::renew_ca(tx, certificate.ca_id, &before, &certificate.sha256).await? {
        return Err(StoreError::Stale(CHANGED.to_owned()));
    }
    tables::insert_ca_certificates(tx, vec![certificate]).await?;
    record_issued(tx, issued).await?;
    store::audit(tx, vec![event]).await
}
