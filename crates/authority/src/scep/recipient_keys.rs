//! The RSA key to which clients encrypt requests to a CA, and its certificate.
//!
//! Each CA has one such key in the whole cluster, generated at the first use. Clients store the certificate for a long time, so a
//! new certificate is issued for the same key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use flight::{Failed, Fresh};
use keys::{Context, KeyType, PrivateKey, SignError, Signer};
use serde_json::json;
use store::{AuditEvent, KeyRow, SEALED_KEYS, StoreError, Tx, audit};
use uuid::Uuid;
use x509::build::{self, Attribute, CertificateSpec, Extension, distinguished_name};
use x509::{BasicConstraints, Certificate, DAY, KeyUsage, SerialNumber, UnixTime};

use super::Scep;
use super::recipient::{Recipient, RecipientError};
use crate::ca_keys::{CaKey, SigningPurpose};
use crate::issue::Source;
use crate::keystore::{self, KeyStoreError};
use crate::tables;
use crate::tables::{Insertion, NewIssued, RecipientRow};
use crate::tree::{self, Ca, Urls};

/// Key type that every SCEP client supports; many do not support larger keys.
const KEY_TYPE: KeyType = KeyType::Rsa2048;
/// Lifetime of the certificate in seconds: two years. A new certificate is issued after two thirds of this time.
pub(crate) const RECIPIENT_LIFETIME_SECONDS: i64 = 730 * DAY;
/// Seconds by which the start of validity precedes the current time, for clients whose clocks are slow.
const BACKDATE_SECONDS: i64 = 300;
/// Lifetime of a cached recipient. After a key is blocked on another node, this node may use it for this time.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);
/// Timeout of a signature with the CA key. Security modules in a network are slow.
const SIGN_FOR: Duration = Duration::from_secs(30);
/// Actor in the audit log.
const ACTOR: &str = "system:scep";

/// A decrypted key, and its row if it is not stored yet.
struct Key {
    id: Uuid,
    private: PrivateKey,
    new: Option<KeyRow>,
}

impl Scep {
    /// Returns the SCEP key of a CA. Concurrent calls generate or decrypt it only once.
    pub(super) async fn recipient(&self, ca: &Arc<Ca>) -> Result<Arc<Recipient>, RecipientError> {
        let (this, ca) = (self.clone(), Arc::clone(ca));
        let id = ca.id;
        let make = move || async move {
            let made = this.make_recipient(&ca).await;
            made.map(|made| Fresh { value: Arc::new(made), lifetime: CACHE_LIFETIME })
                .map_err(|error| Failed { error, lifetime: Duration::ZERO })
        };
        self.inner.recipients.fetch(&id, make).await
    }

    async fn make_recipient(&self, ca: &Ca) -> Result<Recipient, RecipientError> {
        let authority = &self.inner.authority;
        let now = UnixTime(authority.clock().now_seconds());
        let row = tables::Enrolments::of(authority.store()).recipient(ca.id).await?;
        let before = match &row {
            Some(row) => self.open(row).await,
            None => None,
        };
        match before {
            Some((certificate, key)) if !is_due(&certificate, ca, now) => {
                return Ok(Recipient { certificate, key: key.private });
            }
            // The CA issues no more certificates, so the old recipient stays in use.
            Some((certificate, key)) if !ca.may_issue(now) => {
                return Ok(Recipient { certificate, key: key.private });
            }
            None if !ca.may_issue(now) => return Err(RecipientError::NotIssuing(ca.name.clone())),
            _ => {}
        }
        let key = match before {
            Some((_, key)) => key,
            None => self.new_key(ca).await?,
        };
        let certificate = self.certify(ca, &key.private, now).await?;
        let private = key.private.clone();
        if self.store_recipient(ca, key, &certificate, row).await? {
            return Ok(Recipient { certificate, key: private });
        }
        // Another node stored its recipient first.
        let row = tables::Enrolments::of(authority.store()).recipient(ca.id).await?;
        let opened = match &row {
            Some(row) => self.open(row).await,
            None => None,
        };
        let (certificate, key) = opened.ok_or_else(|| {
            RecipientError::Faulty("the key was removed during the request: try again".to_owned())
        })?;
        Ok(Recipient { certificate, key: key.private })
    }

    /// Decrypts the key and parses the certificate of a row. Returns `None`, after logging the reason, if they cannot be used.
    async fn open(&self, row: &RecipientRow) -> Option<(Certificate, Key)> {
        let unusable = |reason: String| tracing::warn!(ca = %row.ca, "replacing the SCEP key: {reason}");
        let certificate =
            Certificate::parse(&row.certificate).map_err(|error| unusable(error.to_string())).ok()?;
        let key = self.open_key(row.key).await.map_err(|error| unusable(error.to_string())).ok()?;
        if *certificate.public_key.spki != *key.private.spki() {
            unusable("its certificate has a different key".to_owned());
            return None;
        }
        Some((certificate, key))
    }

    /// Returns the private key for decryption, which is possible only for keys that are stored encrypted in the database.
    async fn open_key(&self, id: Uuid) -> Result<Key, KeyStoreError> {
        let authority = &self.inner.authority;
        let row = store::Keys::of(authority.store()).get(id).await?.ok_or(KeyStoreError::Unknown(id))?;
        if row.blocked_at_us.is_some() {
            return Err(KeyStoreError::Blocked { id, reason: row.blocked_reason.unwrap_or_default() });
        }
        let sealed = row.sealed.ok_or(KeyStoreError::NoProvider(row.provider))?;
        let context = Context { table: SEALED_KEYS.table, row: id.as_bytes(), column: SEALED_KEYS.column };
        let opened = authority.keystore().keyring().open_sealed(&context, &sealed);
        let der = opened.map_err(|error| KeyStoreError::Sealed { id, error })?;
        Ok(Key { id, private: PrivateKey::from_pkcs8_der(&der)?, new: None })
    }

    async fn new_key(&self, ca: &Ca) -> Result<Key, RecipientError> {
        let private = PrivateKey::generate_in_background(KEY_TYPE).await.map_err(KeyStoreError::from)?;
        let label = format!("SCEP to {}", ca.name);
        let row = self.inner.authority.keystore().seal(private.clone(), &label).row;
        Ok(Key { id: row.id, private, new: Some(row) })
    }

    async fn certify(&self, ca: &Ca, key: &PrivateKey, now: UnixTime) -> Result<Certificate, RecipientError> {
        let mut random = [0; 16];
        rand::fill(&mut random)
            .map_err(|_| SignError::Failed("the operating system returned no random bytes".to_owned()))?;
        let authority = &self.inner.authority;
        let urls = Urls::new(&authority.options().base_url, ca.id);
        let dates = (
            now.plus(-BACKDATE_SECONDS).max(ca.certificate.not_before),
            now.plus(RECIPIENT_LIFETIME_SECONDS).min(ca.certificate.not_after),
        );
        let tbs = recipient_tbs(ca, urls, key.spki(), &SerialNumber::from_random(random), dates);
        let signing = authority.signing(CaKey::Of(ca), SigningPurpose::ScepRecipient);
        let signature = signing.sign(&tbs, Instant::now() + SIGN_FOR).await?;
        let der = build::signed(&tbs, &signing.algorithm(), &signature);
        let certificate =
            Certificate::parse(&der).map_err(|error| RecipientError::Faulty(error.to_string()))?;
        let verified = certificate.signed_by(&ca.certificate.public_key);
        verified.map_err(|error| RecipientError::Faulty(error.to_string()))?;
        Ok(certificate)
    }

    /// Stores key and certificate in place of `before`. Returns false if another node has already stored its own.
    async fn store_recipient(
        &self,
        ca: &Ca,
        key: Key,
        certificate: &Certificate,
        before: Option<RecipientRow>,
    ) -> Result<bool, RecipientError> {
        let authority = &self.inner.authority;
        let now_us = authority.clock().now_us();
        let row = RecipientRow {
            ca: ca.id,
            key: key.id,
            certificate: certificate.der.to_vec(),
            not_after_us: certificate.not_after.0.saturating_mul(1_000_000),
        };
        let issued = NewIssued {
            id: Uuid::now_v7(),
            certificate: Arc::new(tree::inventory_row(certificate)),
            ca: ca.id,
            serial: certificate.serial.content().to_vec(),
            profile: String::new(),
            source: Source::System,
            requester: ACTOR.to_owned(),
            issued_at_us: now_us,
            shard: 0,
            idempotency: None,
        };
        let stored = authority.store().write("recipient_put", move |tx| {
            Box::pin(async move {
                if !tables::put_recipient(tx, &row, now_us, before.as_ref().map(|row| &row.certificate[..]))
                    .await?
                {
                    return Ok(false);
                }
                if let Some(key) = key.new {
                    keystore::insert(tx, key, "key.generate", ACTOR.to_owned()).await?;
                }
                store_issued(tx, issued).await.map(|()| true)
            })
        });
        Ok(stored.await?)
    }
}

async fn store_issued(tx: &mut Tx, issued: NewIssued) -> Result<(), StoreError> {
    let event = AuditEvent {
        at_us: issued.issued_at_us,
        actor: ACTOR.to_owned(),
        action: "certificate.issue",
        resource: format!("certificate/{}", issued.id),
        details: json!({ "ca": issued.ca, "serial": issued.certificate.serial, "for": "SCEP" }),
    };
    let insertions = tables::insert_issued(tx, &[issued]).await?;
    if insertions != [Insertion::New] {
        return Err(StoreError::Stale("the SCEP key is blocked".to_owned()));
    }
    audit(tx, vec![event]).await
}

/// Returns whether two thirds of the certificate's lifetime have passed, or the CA has a new key.
fn is_due(certificate: &Certificate, ca: &Ca, now: UnixTime) -> bool {
    let life = certificate.not_after.since(certificate.not_before);
    now > certificate.not_before.plus(life / 3 * 2)
        || certificate.issuer.der != ca.certificate.subject.der
        || certificate.authority_key_id.as_deref() != Some(&ca.key_identifier())
}

/// Returns the tbsCertificate of the encryption certificate (RFC 8894 section 3.5.2).
pub(crate) fn recipient_tbs(
    ca: &Ca,
    urls: Urls<'_>,
    spki: &[u8],
    serial: &SerialNumber,
    dates: (UnixTime, UnixTime),
) -> Vec<u8> {
    build::tbs_certificate(&CertificateSpec {
        serial,
        signature: ca.signer.algorithm(),
        issuer: &ca.certificate.subject.der,
        subject: &subject(&ca.name),
        not_before: dates.0,
        not_after: dates.1,
        spki,
        extensions: &[
            Extension::basic_constraints(BasicConstraints { ca: false, path_len: None }),
            Extension::key_usage(KeyUsage(KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_ENCIPHERMENT)),
            Extension::subject_key_id(&build::key_id(spki)),
            Extension::authority_key_id(&ca.key_identifier()),
            Extension::crl_distribution_points(&[urls.crl()]),
            Extension::authority_info_access(&[urls.ocsp()], &[urls.certificate()]),
        ],
    })
}

/// Returns the subject `CN=SCEP NAME`, within the 64 characters of a common name (RFC 5280 appendix A.1).
fn subject(ca: &str) -> Arc<[u8]> {
    let name: String = format!("SCEP {ca}").chars().take(64).collect();
    distinguished_name(&[(Attribute::CommonName, name)]).der
}
