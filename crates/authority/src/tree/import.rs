//! Import of CAs with their key, and of certificates that an external parent CA signed for keys of this server.

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use keys::{KeyType, PrivateKey, Signer};
use serde_json::{Value, json};
use store::{AuditEvent, KeyRow, NewCertificate, StoreError, Tx};
use uuid::Uuid;
use x509::{Certificate, KeyUsage, UnixTime, build, csr, pem};

use super::certificate::{Body, SIGN_FOR, in_us, inventory_row};
use super::create::{NAME_TAKEN, specification};
use super::error::{ImportError, NewCaError};
use super::specification::{NewCa, check_name};
use super::{Ca, CaState, PendingCa};
use crate::Authority;
use crate::ca_keys::{CaKey, CaKeyLocation, SigningPurpose};
use crate::keystore;
use crate::tables;
use crate::tables::{CaCertificateRole, CaCertificateRow, CaRow};

/// Maximum number of certificates in a chain. Clients accept no longer chains.
const CHAIN_MAX: usize = 16;

/// A CSR for an external parent CA.
#[derive(Clone, Debug)]
pub struct Request {
    /// The CA that waits for its certificate.
    pub pending: Arc<PendingCa>,
    /// The CSR (RFC 2986) in PEM.
    pub pem: String,
}

/// An imported chain: the certificate of the CA and its parents' certificates.
pub(super) struct Chain {
    own: Certificate,
    above: Vec<Certificate>,
}

impl Authority {
    /// Imports a CA with its key: the PEM of its certificate, followed by its parents' certificates (the root may be omitted), and the
    /// PEM of the private key. If its issuer is a CA of this server, that CA becomes its parent.
    ///
    /// # Errors
    /// [`ImportError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn import_ca(
        &self,
        name: &str,
        chain_pem: &str,
        key_pem: &str,
        actor: &str,
    ) -> Result<Arc<Ca>, ImportError> {
        if self.ca_keys().custody() == CaKeyLocation::Apart {
            return Err(ImportError::SignerApart);
        }
        check_name(name)?;
        let chain = Chain::read(chain_pem, self.now())?;
        let key = PrivateKey::from_pem(key_pem)?;
        if key.spki() != &*chain.own.public_key.spki {
            return Err(ImportError::OtherKey);
        }
        let parent = find_parent(&chain, &self.cas().await?);
        self.store_imported_ca(name, chain, parent, key, json!({ "imported": true }), actor).await
    }

    /// Stores an imported CA with its encrypted key.
    pub(super) async fn store_imported_ca(
        &self,
        name: &str,
        chain: Chain,
        parent: Option<Uuid>,
        key: PrivateKey,
        specification: Value,
        actor: &str,
    ) -> Result<Arc<Ca>, ImportError> {
        let id = Uuid::now_v7();
        let now_us = self.clock().now_us();
        let key = self.keystore().seal(key, &format!("CA {name}"));
        let ca = CaRow {
            id,
            name: name.to_owned(),
            key_id: key.row.id,
            state: CaState::Active.to_string(),
            parent_id: parent,
            sha256: Some(*chain.own.fingerprint.as_bytes()),
            specification: specification.to_string(),
            request: None,
            created_at_us: now_us,
            retiring_at_us: None,
            retired_at_us: None,
        };
        let event = self.event("ca.import", id, actor, chain.details(name, parent));
        let certificates = chain.rows(id, parent, now_us);
        let inventory = chain.inventory();
        let actor = actor.to_owned();
        let stored = self.store().write("ca_import", move |tx| {
            store_import(tx, Some((key.row, actor)), Some(ca), certificates, inventory, event).boxed()
        });
        stored.await.map_err(|error| refusal(error, name))?;
        self.invalidate_cas_cache();
        Ok(self.ca_by_id(id).await?)
    }

    /// Generates a key and a CSR, which an external CA (such as an offline root) certifies. The new CA is pending until
    /// [`Self::install_intermediate`] is called.
    ///
    /// # Errors
    /// [`NewCaError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn intermediate_csr(&self, new: &NewCa, actor: &str) -> Result<Request, NewCaError> {
        let read = new.read()?;
        let key = self.new_key(new).await?;
        let body = Body::of(new, &read, key.signer.spki(), new.path_length);
        let tbs = csr::tbs(&body.subject.der, body.spki, &body.extensions, None);
        let signing = self.signing(CaKey::New(&key), SigningPurpose::CaRequest);
        let signature = signing.sign(&tbs, Instant::now() + SIGN_FOR).await?;
        let request = build::signed(&tbs, &signing.algorithm(), &signature);
        let pending = PendingCa {
            id: Uuid::now_v7(),
            name: new.name.clone(),
            key_id: key.row.id,
            request: request.as_slice().into(),
            spki: key.signer.spki().into(),
            created_at_us: self.clock().now_us(),
        };
        let ca = CaRow {
            id: pending.id,
            name: new.name.clone(),
            key_id: key.row.id,
            state: "pending".to_owned(),
            parent_id: None,
            sha256: None,
            specification: specification(new),
            request: Some(request),
            created_at_us: pending.created_at_us,
            retiring_at_us: None,
            retired_at_us: None,
        };
        let details = json!({ "name": new.name, "subject": read.subject.text });
        let event = self.event("ca.request", pending.id, actor, details);
        let (row, actor) = (key.row, actor.to_owned());
        let stored =
            self.store().write("ca_request", move |tx| store_request(tx, row, ca, event, actor).boxed());
        stored.await.map_err(|error| match error {
            StoreError::Stale(_) => NewCaError::NameTaken(new.name.clone()),
            other => NewCaError::Store(other),
        })?;
        self.invalidate_cas_cache();
        let pem = request_pem(&pending.request);
        Ok(Request { pending: Arc::new(pending), pem })
    }

    /// Installs the certificate of a pending CA: its PEM, followed by the certificates of its parents.
    ///
    /// # Errors
    /// [`ImportError`]; nothing is stored then.
    #[crate::boxed]
    pub async fn install_intermediate(
        &self,
        id: Uuid,
        chain_pem: &str,
        actor: &str,
    ) -> Result<Arc<Ca>, ImportError> {
        let forest = self.forest().await?;
        let pending = forest.pending.iter().find(|pending| pending.id == id).cloned();
        let pending = pending.ok_or(ImportError::NotPending(id))?;
        let chain = Chain::read(chain_pem, self.now())?;
        if chain.own.public_key.spki != pending.spki {
            return Err(ImportError::OtherKey);
        }
        let parent = find_parent(&chain, &self.cas().await?);
        let event = self.event("ca.install", id, actor, chain.details(&pending.name, parent));
        let certificates = chain.rows(id, parent, self.clock().now_us());
        let inventory = chain.inventory();
        let sha256 = *chain.own.fingerprint.as_bytes();
        let installed = self.store().write("ca_install", move |tx| {
            async move {
                if !tables::install_ca(tx, id, &sha256, parent).await? {
                    return Ok(false);
                }
                store_import(tx, None, None, certificates, inventory, event).await?;
                Ok(true)
            }
            .boxed()
        });
        if !installed.await? {
            return Err(ImportError::NotPending(id));
        }
        self.invalidate_cas_cache();
        Ok(self.ca_by_id(id).await?)
    }

    /// Cancels a pending CA that waits for its certificate. Its key stays stored but unused. Returns false if the CA is no longer
    /// pending.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn cancel_request(&self, id: Uuid, actor: &str) -> Result<bool, StoreError> {
        let event = self.event("ca.cancel", id, actor, json!({}));
        let cancelled = self.store().write("ca_cancel", move |tx| cancel(tx, id, event).boxed()).await?;
        self.invalidate_cas_cache();
        Ok(cancelled)
    }
}

/// Returns the CA among `cas` that signed the first certificate of the chain, found by name and signature.
pub(super) fn find_parent(chain: &Chain, cas: &[Arc<Ca>]) -> Option<Uuid> {
    if chain.own.is_self_issued() {
        return None;
    }
    let parent = cas.iter().find(|ca| {
        let above = &ca.certificate;
        chain.own.issuer.matches(&above.subject) && chain.own.signed_by(&above.public_key).is_ok()
    });
    parent.map(|ca| ca.id)
}

impl Chain {
    /// Returns a chain with only the CA certificate.
    pub(super) fn without_parents(own: Certificate, now: UnixTime) -> Result<Self, ImportError> {
        check_ca_certificate(&own, now)?;
        Ok(Self { own, above: Vec::new() })
    }

    fn read(text: &str, now: UnixTime) -> Result<Self, ImportError> {
        let mut certificates = Vec::new();
        for (at, (_, der)) in pem::certificates(text.as_bytes()).take(CHAIN_MAX + 1).enumerate() {
            let position = at + 1;
            let bad = |reason: String| ImportError::Certificate { position, reason };
            if position > CHAIN_MAX {
                return Err(bad(format!("a chain may have at most {CHAIN_MAX} certificates")));
            }
            certificates.push(Certificate::parse(&der).map_err(|error| bad(error.to_string()))?);
        }
        for (at, pair) in certificates.windows(2).enumerate() {
            let [below, above] = pair else { continue };
            let linked = below.issuer.matches(&above.subject) && below.signed_by(&above.public_key).is_ok();
            if !linked || !above.is_ca() {
                return Err(ImportError::NotChain { position: at + 1 });
            }
        }
        let mut certificates = certificates.into_iter();
        let own = certificates.next().ok_or(ImportError::NoCertificate)?;
        check_ca_certificate(&own, now)?;
        Ok(Self { own, above: certificates.collect() })
    }

    fn rows(&self, ca: Uuid, parent: Option<Uuid>, now_us: i64) -> Vec<CaCertificateRow> {
        let row = |certificate: &Certificate, role, position, issuer_ca| CaCertificateRow {
            ca_id: ca,
            sha256: *certificate.fingerprint.as_bytes(),
            role,
            position,
            issuer_ca,
            der: certificate.der.to_vec(),
            not_after_us: in_us(certificate.not_after),
            created_at_us: now_us,
        };
        let mut rows = vec![row(&self.own, CaCertificateRole::Own, 0, parent)];
        // If the parent is a CA of this server, its chain is already known.
        if parent.is_none() {
            let above = self.above.iter().zip(0..);
            rows.extend(above.map(|(above, position)| row(above, CaCertificateRole::Above, position, None)));
        }
        rows
    }

    fn inventory(&self) -> Vec<NewCertificate> {
        [&self.own].into_iter().chain(&self.above).map(inventory_row).collect()
    }

    fn details(&self, name: &str, parent: Option<Uuid>) -> serde_json::Value {
        json!({
            "name": name,
            "subject": self.own.subject.text,
            "issuer": self.own.issuer.text,
            "parent": parent,
            "fingerprint": self.own.fingerprint.to_string(),
            "not_after": self.own.not_after.to_string(),
        })
    }
}

fn check_ca_certificate(own: &Certificate, now: UnixTime) -> Result<(), ImportError> {
    if !own.is_ca() {
        return Err(ImportError::NotCa("its basic constraints do not have CA:TRUE"));
    }
    if own.key_usage.is_some_and(|usage| !usage.allows(KeyUsage::KEY_CERT_SIGN)) {
        return Err(ImportError::NotCa("its key usage does not include keyCertSign"));
    }
    if KeyType::of(&own.public_key).is_none() {
        return Err(ImportError::KeyKind);
    }
    if now < own.not_before || now > own.not_after {
        return Err(ImportError::Dates { from: own.not_before, until: own.not_after });
    }
    if own.is_self_issued() && own.signed_by(&own.public_key).is_err() {
        return Err(ImportError::NotCa("it is self-issued but not signed by its own key"));
    }
    Ok(())
}

/// Encodes a CSR in PEM (RFC 7468 section 7).
pub(crate) fn request_pem(der: &[u8]) -> String {
    pem::encode("CERTIFICATE REQUEST", der)
}

fn refusal(error: StoreError, name: &str) -> ImportError {
    match error {
        StoreError::Stale(what) if what == NAME_TAKEN => ImportError::NameTaken(name.to_owned()),
        other => ImportError::Store(other),
    }
}

async fn store_import(
    tx: &mut Tx,
    key: Option<(KeyRow, String)>,
    ca: Option<CaRow>,
    certificates: Vec<CaCertificateRow>,
    inventory: Vec<NewCertificate>,
    event: AuditEvent,
) -> Result<(), StoreError> {
    let imported_key_id = match key {
        Some((row, actor)) => Some(keystore::insert(tx, row, "key.import", actor).await?),
        None => None,
    };
    if let Some(mut ca) = ca {
        ca.key_id = imported_key_id.unwrap_or(ca.key_id);
        if !tables::insert_ca(tx, &ca).await? {
            return Err(StoreError::Stale(NAME_TAKEN.to_owned()));
        }
    }
    tables::insert_ca_certificates(tx, certificates).await?;
    store::insert_known_certificates(tx, &inventory, event.at_us).await?;
    store::audit(tx, vec![event]).await
}

async fn store_request(
    tx: &mut Tx,
    key: KeyRow,
    mut ca: CaRow,
    event: AuditEvent,
    actor: String,
) -> Result<(), StoreError> {
    ca.key_id = keystore::insert(tx, key, "key.generate", actor).await?;
    if !tables::insert_ca(tx, &ca).await? {
        return Err(StoreError::Stale(NAME_TAKEN.to_owned()));
    }
    store::audit(tx, vec![event]).await
}

async fn cancel(tx: &mut Tx, id: Uuid, event: AuditEvent) -> Result<bool, StoreError> {
    let deleted = tables::delete_pending_ca(tx, id).await?;
    if deleted {
        store::audit(tx, vec![event]).await?;
    }
    Ok(deleted)
}
