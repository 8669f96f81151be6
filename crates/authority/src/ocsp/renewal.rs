//! The delegated OCSP responder of a CA. Its key and certificate are created once for the cluster and renewed automatically.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flight::{Failed, Fresh};
use keys::{KeyType, Signer};
use serde_json::json;
use store::{AuditEvent, audit};
use uuid::Uuid;
use x509::build::{self, CertificateSpec, Extension};
use x509::{BasicConstraints, Certificate, KeyUsage, SerialNumber, UnixTime};

use super::error::OcspError;
use super::responder::Responder;
use crate::Authority;
use crate::ca_keys::{CaKey, SigningPurpose};
use crate::crl::SKEW_SECONDS;
use crate::issue::Source;
use crate::keystore::NewKey;
use crate::tables;
use crate::tables::{NewIssued, OcspResponderRow};
use crate::tree::{self, Ca};

/// OID of id-kp-OCSPSigning.
const OCSP_SIGNING: &str = "1.3.6.1.5.5.7.3.9";
/// Key type of responders: small, fast, and supported by all clients.
const KEY_TYPE: KeyType = KeyType::P256;
/// Timeout of a signature with the CA key.
const SIGN_FOR: Duration = Duration::from_secs(30);
/// Lifetime in microseconds of the lease for creating a responder.
const LEASE_US: i64 = 60_000_000;
/// Maximum number of checks whether another node has created the responder.
const RENEWAL_POLLS_MAX: u32 = 25;
/// Pause between two checks whether another node has created the responder.
const RENEWAL_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time for which a responder is used before the database is checked for a newer one.
const CACHE_LIFETIME_MAX: Duration = Duration::from_secs(600);
/// Maximum time for which a responder is used while another node is creating a newer one.
const CACHE_LIFETIME_DURING_RENEWAL: Duration = Duration::from_secs(5);

/// Age of a responder certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Age {
    /// The certificate is in the first half of its lifetime.
    Young,
    /// The certificate is in the second half of its lifetime, and still valid.
    Old,
    /// The certificate is expired.
    Over,
}

fn age(row: &OcspResponderRow, now_us: i64) -> Age {
    let half = row.not_before_us + (row.not_after_us - row.not_before_us) / 2;
    match now_us {
        now if now < half => Age::Young,
        now if now < row.not_after_us => Age::Old,
        _ => Age::Over,
    }
}

impl Authority {
    /// Returns the current responder. Creates a new one after half of the lifetime of the old one.
    pub(super) async fn responder(&self, ca: &Arc<Ca>) -> Result<Arc<Responder>, OcspError> {
        let cache = &self.responders().responders;
        let now = UnixTime(self.clock().now_seconds());
        if let Some(Ok(known)) = cache.get(&ca.id).map(|cached| cached.outcome.clone())
            && now < known.not_before.plus(known.not_after.since(known.not_before) / 2)
        {
            return Ok(known);
        }
        let (this, ca_wanted) = (self.clone(), Arc::clone(ca));
        let make = move || async move {
            let found = this.find_responder(&ca_wanted).await;
            let (value, lifetime) = found.map_err(|error| Failed { error, lifetime: Duration::ZERO })?;
            Ok(Fresh { value, lifetime })
        };
        match cache.refresh(&ca.id, make.clone()).await {
            Some(found) => found,
            None => cache.fetch(&ca.id, make).await,
        }
    }

    async fn find_responder(&self, ca: &Arc<Ca>) -> Result<(Arc<Responder>, Duration), OcspError> {
        let lease = format!("authority-ocsp-{}", ca.id);
        for _ in 0..RENEWAL_POLLS_MAX {
            let known = self.stored_responder(ca).await?;
            if let Some((Age::Young, responder)) = known {
                return Ok((responder, CACHE_LIFETIME_MAX));
            }
            let known = known.map(|(_, responder)| responder);
            match self.renew_under_lease(ca, &lease).await {
                Ok(Some(responder)) => return Ok((responder, CACHE_LIFETIME_MAX)),
                Ok(None) => {}
                // If a new responder cannot be created, for example because the disk is full, the old one is used while it is
                // valid.
                Err(error) if known.is_some() => {
                    tracing::warn!(ca = ca.name, %error, "cannot renew the OCSP responder certificate");
                }
                Err(error) => return Err(error),
            }
            if let Some(responder) = known {
                return Ok((responder, CACHE_LIFETIME_DURING_RENEWAL));
            }
            tokio::time::sleep(RENEWAL_POLL_INTERVAL).await;
        }
        Err(OcspError::NotReady(ca.name.clone()))
    }

    /// Creates a new responder; returns `None` while another node creates it.
    async fn renew_under_lease(&self, ca: &Ca, lease: &str) -> Result<Option<Arc<Responder>>, OcspError> {
        if !self.store().lease(lease, self.node(), self.clock().now_us(), LEASE_US).await? {
            return Ok(None);
        }
        let found = self.renew_responder(ca).await;
        self.store().release(lease, self.node()).await?;
        found.map(Some)
    }

    /// Creates the responders of all issuing CAs before the first request, because none can be created while the disk is full.
    pub(crate) async fn prepare_responders(&self) {
        let now = UnixTime(self.clock().now_seconds());
        let cas = match self.cas().await {
            Ok(cas) => cas,
            Err(error) => return tracing::warn!(%error, "cannot create an OCSP responder in advance"),
        };
        // A CA from the credential store gets a responder only at its first request, because there may be thousands of such CAs.
        for ca in cas.iter().filter(|ca| ca.may_issue(now)) {
            if let Err(error) = self.responder(ca).await {
                tracing::warn!(ca = ca.name, %error, "cannot create OCSP responders in advance");
            }
        }
    }

    /// Returns the responder in the database, unless it has expired or its key is unavailable.
    async fn stored_responder(&self, ca: &Ca) -> Result<Option<(Age, Arc<Responder>)>, OcspError> {
        let Some(row) = tables::Revocations::of(self.store()).ocsp_responder(ca.id).await? else {
            return Ok(None);
        };
        let age = age(&row, self.clock().now_us());
        if age == Age::Over {
            return Ok(None);
        }
        match self.keystore().signer(row.key_id).await {
            Ok(signer) => Ok(Some((age, Arc::new(Responder::of(&row, signer))))),
            Err(error) => {
                tracing::warn!(ca = ca.name, %error, "cannot open the key of the OCSP responder; creating another responder");
                Ok(None)
            }
        }
    }

    /// Returns a new responder. The caller holds the lease. First checks whether an earlier holder of the lease has created the
    /// responder.
    async fn renew_responder(&self, ca: &Ca) -> Result<Arc<Responder>, OcspError> {
        match self.stored_responder(ca).await? {
            Some((Age::Young, responder)) => Ok(responder),
            _ => self.make_responder(ca).await.map(Arc::new),
        }
    }

    /// Generates a key and issues a certificate for it. Both are stored with their audit event before use.
    async fn make_responder(&self, ca: &Ca) -> Result<Responder, OcspError> {
        let NewKey { row: key, signer } =
            self.keystore().prepare(KEY_TYPE, &format!("OCSP responder of {}", ca.name)).await?;
        let now_us = self.clock().now_us();
        let now = UnixTime(now_us.div_euclid(1_000_000));
        let life = i64::try_from(self.options().ocsp_responder_lifetime.as_secs()).unwrap_or(i64::MAX);
        let dates = (
            now.plus(-SKEW_SECONDS).max(ca.certificate.not_before),
            now.plus(life - 1).min(ca.certificate.not_after),
        );
        let signing = self.signing(CaKey::Of(ca), SigningPurpose::OcspResponder);
        let certificate = certify(ca, &signing, signer.spki(), dates).await?;
        let issued = NewIssued {
            id: Uuid::now_v7(),
            certificate: Arc::new(tree::inventory_row(&certificate)),
            ca: ca.id,
            serial: certificate.serial.content().to_vec(),
            profile: String::new(),
            source: Source::System,
            requester: "system:ocsp".to_owned(),
            issued_at_us: now_us,
            shard: 0,
            idempotency: None,
        };
        let mut row = OcspResponderRow {
            ca: ca.id,
            key_id: key.id,
            certificate: certificate.der.to_vec(),
            not_before_us: dates.0.0.saturating_mul(1_000_000),
            not_after_us: dates.1.0.saturating_mul(1_000_000),
        };
        let responder = Responder::of(&row, signer);
        let event = AuditEvent {
            at_us: now_us,
            actor: "system:ocsp".to_owned(),
            action: "ocsp.responder",
            resource: format!("certificate/{}", issued.id),
            details: json!({ "ca": ca.id, "serial": certificate.serial }),
        };
        let stored = self.store().write("ocsp_responder", move |tx| {
            Box::pin(async move {
                row.key_id = store::insert_key(tx, &key).await?;
                tables::insert_issued(tx, &[issued]).await?;
                tables::put_ocsp_responder(tx, &row).await?;
                audit(tx, vec![event]).await
            })
        });
        stored.await?;
        Ok(responder)
    }
}

async fn certify(
    ca: &Ca,
    signing: &dyn Signer,
    spki: &[u8],
    dates: (UnixTime, UnixTime),
) -> Result<Certificate, OcspError> {
    let tbs = responder_tbs(ca, spki, &tree::random_serial()?, dates);
    let signature = signing.sign(&tbs, Instant::now() + SIGN_FOR).await?;
    let der = build::signed(&tbs, &signing.algorithm(), &signature);
    Certificate::parse(&der).map_err(|error| OcspError::Certificate(error.to_string()))
}

/// Returns the tbsCertificate of a responder (RFC 6960 section 4.2.2.2): issued by the CA itself, for OCSPSigning, with
/// id-pkix-ocsp-nocheck.
pub(crate) fn responder_tbs(
    ca: &Ca,
    spki: &[u8],
    serial: &SerialNumber,
    dates: (UnixTime, UnixTime),
) -> Vec<u8> {
    let subject =
        build::distinguished_name(&[(build::Attribute::CommonName, responder_common_name(&ca.name))]);
    let extensions = [
        Extension::key_usage(KeyUsage(KeyUsage::DIGITAL_SIGNATURE)),
        Extension::extended_key_usage(&[OCSP_SIGNING.to_owned()]),
        Extension::basic_constraints(BasicConstraints { ca: false, path_len: None }),
        Extension::subject_key_id(&build::key_id(spki)),
        Extension::authority_key_id(&ca.key_identifier()),
        Extension::ocsp_no_check(),
    ];
    build::tbs_certificate(&CertificateSpec {
        serial,
        signature: ca.signer.algorithm(),
        issuer: &ca.certificate.subject.der,
        subject: &subject.der,
        not_before: dates.0,
        not_after: dates.1,
        spki,
        extensions: &extensions,
    })
}

/// Returns the common name of a responder, at most 64 characters (RFC 5280 appendix A.1).
fn responder_common_name(ca: &str) -> String {
    const SUFFIX: &str = " OCSP";
    let prefix: String = ca.chars().take(64 - SUFFIX.len()).collect();
    prefix + SUFFIX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ocsp_responder_is_due_for_renewal_at_half_its_lifetime() {
        let row = OcspResponderRow {
            ca: Uuid::nil(),
            key_id: Uuid::nil(),
            certificate: Vec::new(),
            not_before_us: 0,
            not_after_us: 100,
        };
        let table = [(0, Age::Young), (49, Age::Young), (50, Age::Old), (99, Age::Old), (100, Age::Over)];
        for (now, wanted) in table {
            assert_eq!(age(&row, now), wanted, "{now}");
        }
    }

    #[test]
    fn responder_name_is_truncated_to_64_characters() {
        assert_eq!(responder_common_name("web"), "web OCSP");
        assert_eq!(responder_common_name(&"ü".repeat(100)).chars().count(), 64);
    }
}
