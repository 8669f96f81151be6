//! Creation of roots, intermediates and cross-signed certificates.

use std::sync::Arc;

use futures_util::FutureExt;
use keys::Signer;
use serde_json::json;
use store::{AuditEvent, KeyRow, StoreError, Tx};
use uuid::Uuid;
use x509::UnixTime;
use x509::build::Extension;

use super::certificate::{
    Body, Certified, Dates, Issuer, PublicationUrls, certify, in_us, inventory_row, path_length_below,
};
use super::error::NewCaError;
use super::specification::NewCa;
use super::{Ca, CaState, Urls};
use crate::Authority;
use crate::ca_keys::{CaKey, NewCaKey, SigningPurpose};
use crate::keystore::{self, NewKey};
use crate::tables;
use crate::tables::{CaCertificateRole, CaCertificateRow, CaRow, Insertion, NewIssued, Source};

/// Seconds by which renewed and cross-signed certificates are backdated, for clients whose clocks are slow.
pub(super) const BACKDATE_SECONDS: i64 = 300;

impl Authority {
    /// Creates a root: a key and a self-signed certificate, in one transaction with the audit events.
    ///
    /// # Errors
    /// [`NewCaError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn create_root(&self, new: &NewCa, actor: &str) -> Result<Arc<Ca>, NewCaError> {
        let read = new.read()?;
        let key = self.new_key(new).await?;
        let dates = Dates::of(new, self.now());
        let body = Body::of(new, &read, key.signer.spki(), new.path_length);
        let own = self.signing(CaKey::New(&key), SigningPurpose::CaCertificate { subject_key: Some(&key) });
        let certified = certify(body, &own, None, dates).await?;
        self.store_new(new, key, certified, None, actor).await
    }

    /// Creates an intermediate below a CA of this server (identifier or name).
    ///
    /// # Errors
    /// [`NewCaError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn create_intermediate(
        &self,
        parent: &str,
        new: &NewCa,
        actor: &str,
    ) -> Result<Arc<Ca>, NewCaError> {
        let read = new.read()?;
        let parent = self.issuing_parent(parent).await?;
        let issuer = self.issuer(&parent, &*parent.signer);
        let path_length = path_length_below(&issuer, new.path_length)?;
        let dates = Dates::of(new, self.now()).within(&parent.certificate, self.now())?;
        let key = self.new_key(new).await?;
        let body = Body::of(new, &read, key.signer.spki(), path_length);
        let purpose = SigningPurpose::CaCertificate { subject_key: Some(&key) };
        let issuer = Issuer { signer: &self.signing(CaKey::Of(&parent), purpose), ..issuer };
        let certified = certify(body, &*key.signer, Some(&issuer), dates).await?;
        self.store_new(new, key, certified, Some(parent.id), actor).await
    }

    /// Signs the name and key of `ca` with the key of `by` (each an identifier or name). Clients that trust the root of `by` then
    /// also trust certificates issued by `ca`. The new certificate has the contents of the certificate of `ca`. It expires with the
    /// certificate of `ca` or `by`, whichever expires first.
    ///
    /// # Errors
    /// [`NewCaError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn cross_sign(&self, ca: &str, by: &str, actor: &str) -> Result<Arc<Ca>, NewCaError> {
        let (ca, by) = (self.ca(ca).await?, self.issuing_parent(by).await?);
        if ca.signer.spki() == by.signer.spki() {
            return Err(NewCaError::SameKey(ca.name.clone(), by.name.clone()));
        }
        if ca.parent == Some(by.id) {
            return Err(NewCaError::Parent(ca.name.clone(), by.name.clone()));
        }
        let signing = self.signing(CaKey::Of(&by), SigningPurpose::CaCertificate { subject_key: None });
        let issuer = self.issuer(&by, &signing);
        let own = &ca.certificate;
        let path_length = own.basic_constraints.and_then(|constraints| constraints.path_len);
        let path_length = renewed_path_length(&issuer, path_length)?;
        let body = Body {
            subject: &own.subject,
            spki: &own.public_key.spki,
            extensions: repeated_extensions(&ca, path_length),
        };
        let until = own.not_after.min(by.certificate.not_after);
        let dates = Dates { from: self.now().plus(-BACKDATE_SECONDS).max(by.certificate.not_before), until };
        // `by` is valid now, so only the certificate of `ca` can have expired.
        if dates.until <= self.now() {
            return Err(NewCaError::Expired(ca.name.clone()));
        }
        let certified = certify(body, &*ca.signer, Some(&issuer), dates).await?;
        let row = self.certificate_row(ca.id, &certified, CaCertificateRole::Cross, Some(by.id));
        let issued = self.issued_row(&certified, by.id, actor);
        let event = self.event(
            "ca.cross_sign",
            ca.id,
            actor,
            json!({ "name": ca.name, "by": by.id, "by_name": by.name }),
        );
        let stored =
            self.store().write("ca_cross_sign", move |tx| store_cross(tx, row, issued, event).boxed());
        stored.await.map_err(|error| refusal(error, &ca.name))?;
        self.invalidate_cas_cache();
        Ok(self.ca_by_id(ca.id).await?)
    }

    pub(crate) fn now(&self) -> UnixTime {
        UnixTime(self.clock().now_seconds())
    }

    pub(super) async fn issuing_parent(&self, id_or_name: &str) -> Result<Arc<Ca>, NewCaError> {
        let parent = self.ca(id_or_name).await?;
        if parent.may_issue(self.now()) {
            Ok(parent)
        } else {
            Err(NewCaError::NotIssuing(parent.name.clone()))
        }
    }

    pub(super) fn issuer<'a>(&'a self, ca: &'a Ca, signer: &'a dyn Signer) -> Issuer<'a> {
        let urls = Urls::new(&self.options().base_url, ca.id);
        Issuer { name: &ca.name, certificate: &ca.certificate, signer, points: PublicationUrls::of(&urls) }
    }

    pub(super) async fn new_key(&self, new: &NewCa) -> Result<NewKey, NewCaError> {
        let label = format!("CA {}", new.name);
        let wanted = NewCaKey { kind: new.key_type, provider: new.key_provider.as_deref(), label: &label };
        Ok(self.ca_keys().make(wanted).await?)
    }

    async fn store_new(
        &self,
        new: &NewCa,
        key: NewKey,
        certified: Certified,
        parent: Option<Uuid>,
        actor: &str,
    ) -> Result<Arc<Ca>, NewCaError> {
        let id = Uuid::now_v7();
        let ca = CaRow {
            id,
            name: new.name.clone(),
            key_id: key.row.id,
            state: CaState::Active.to_string(),
            parent_id: parent,
            sha256: Some(*certified.certificate.fingerprint.as_bytes()),
            specification: specification(new),
            request: None,
            created_at_us: self.clock().now_us(),
            retiring_at_us: None,
            retired_at_us: None,
        };
        let details = json!({
            "name": new.name,
            "subject": certified.certificate.subject.text,
            "parent": parent,
            "fingerprint": certified.certificate.fingerprint.to_string(),
            "not_after": certified.certificate.not_after.to_string(),
        });
        let certificate = self.certificate_row(id, &certified, CaCertificateRole::Own, parent);
        let issued = self.issued_row(&certified, parent.unwrap_or(id), actor);
        let event = self.event("ca.create", id, actor, details);
        let (key, actor) = (key.row, actor.to_owned());
        let stored = self
            .store()
            .write("ca_create", move |tx| store_ca(tx, key, ca, certificate, issued, event, actor).boxed());
        stored.await.map_err(|error| refusal(error, &new.name))?;
        self.invalidate_cas_cache();
        Ok(self.ca_by_id(id).await?)
    }

    pub(super) fn certificate_row(
        &self,
        ca: Uuid,
        certified: &Certified,
        role: CaCertificateRole,
        issuer: Option<Uuid>,
    ) -> CaCertificateRow {
        let certificate = &certified.certificate;
        CaCertificateRow {
            ca_id: ca,
            sha256: *certificate.fingerprint.as_bytes(),
            role,
            position: 0,
            issuer_ca: issuer,
            der: certificate.der.to_vec(),
            not_after_us: in_us(certificate.not_after),
            created_at_us: self.clock().now_us(),
        }
    }

    /// Returns the row of a CA certificate as an issued certificate, so that it can be revoked and is in the inventory.
    pub(super) fn issued_row(&self, certified: &Certified, issuer: Uuid, actor: &str) -> NewIssued {
        NewIssued {
            id: Uuid::now_v7(),
            certificate: Arc::new(inventory_row(&certified.certificate)),
            ca: issuer,
            serial: certified.certificate.serial.content().to_vec(),
            profile: String::new(),
            source: Source::System,
            requester: actor.to_owned(),
            issued_at_us: self.clock().now_us(),
            shard: 0,
            idempotency: None,
        }
    }

    pub(super) fn event(
        &self,
        action: &'static str,
        ca: Uuid,
        actor: &str,
        details: serde_json::Value,
    ) -> AuditEvent {
        AuditEvent {
            at_us: self.clock().now_us(),
            actor: actor.to_owned(),
            action,
            resource: format!("ca/{ca}"),
            details,
        }
    }
}

/// Returns the stored form of a specification.
pub(super) fn specification(new: &NewCa) -> String {
    serde_json::to_string(new).unwrap_or_default()
}

/// Returns the path length for another certificate of a CA: the same as before, or less if the issuer allows less.
pub(super) fn renewed_path_length(issuer: &Issuer<'_>, own: Option<u32>) -> Result<Option<u32>, NewCaError> {
    let allowed = path_length_below(issuer, None)?;
    Ok(match (allowed, own) {
        (Some(allowed), Some(own)) => Some(allowed.min(own)),
        (allowed, own) => allowed.or(own),
    })
}

pub(super) fn repeated_extensions(ca: &Ca, path_length: Option<u32>) -> Vec<Extension> {
    use x509::{BasicConstraints, KeyUsage};
    let own = &ca.certificate;
    let usage = own.key_usage.unwrap_or(KeyUsage(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN));
    let mut extensions = vec![
        Extension::basic_constraints(BasicConstraints { ca: true, path_len: path_length }),
        Extension::key_usage(usage),
        Extension::subject_key_id(&ca.key_identifier()),
    ];
    extensions.extend(own.extended_key_usage.as_deref().map(Extension::extended_key_usage));
    if !own.policies.is_empty() {
        extensions.push(Extension::certificate_policies(&own.policies));
    }
    extensions.extend(own.name_constraints.as_ref().map(Extension::name_constraints));
    extensions
}

/// Error text of a transaction that was rolled back because the name is taken.
pub(super) const NAME_TAKEN: &str = "name taken";
/// Error text of a transaction that was rolled back because the key is blocked.
pub(super) const KEY_BLOCKED: &str = "key blocked";

fn refusal(error: StoreError, name: &str) -> NewCaError {
    match error {
        StoreError::Stale(what) if what == NAME_TAKEN => NewCaError::NameTaken(name.to_owned()),
        StoreError::Stale(what) if what == KEY_BLOCKED => NewCaError::Blocked,
        other => NewCaError::Store(other),
    }
}

async fn store_ca(
    tx: &mut Tx,
    key: KeyRow,
    mut ca: CaRow,
    certificate: CaCertificateRow,
    issued: NewIssued,
    event: AuditEvent,
    actor: String,
) -> Result<(), StoreError> {
    ca.key_id = keystore::insert(tx, key, "key.generate", actor).await?;
    if !tables::insert_ca(tx, &ca).await? {
        return Err(StoreError::Stale(NAME_TAKEN.to_owned()));
    }
    tables::insert_ca_certificates(tx, vec![certificate]).await?;
    record_issued(tx, issued).await?;
    store::audit(tx, vec![event]).await
}

async fn store_cross(
    tx: &mut Tx,
    certificate: CaCertificateRow,
    issued: NewIssued,
    event: AuditEvent,
) -> Result<(), StoreError> {
    tables::insert_ca_certificates(tx, vec![certificate]).await?;
    record_issued(tx, issued).await?;
    store::audit(tx, vec![event]).await
}

pub(super) async fn record_issued(tx: &mut Tx, issued: NewIssued) -> Result<(), StoreError> {
    let insertions = tables::insert_issued(tx, &[issued]).await?;
    if insertions.iter().all(|insertion| *insertion == Insertion::New) {
        Ok(())
    } else {
        Err(StoreError::Stale(KEY_BLOCKED.to_owned()))
    }
}
