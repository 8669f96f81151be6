//! Contents and signature of CA certificates. Needs no database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::{SignError, Signer};
use store::NewCertificate;
use x509::build::{self, CertificateSpec, Extension};
use x509::{BasicConstraints, Certificate, DistinguishedName, KeyUsage, SerialNumber, UnixTime};

use super::Urls;
use super::error::NewCaError;
use super::specification::{NewCa, ParsedSpecification};

/// Timeout of a signature with a CA key for CA certificates, which are rare. Security modules in a network are slow.
pub(crate) const SIGN_FOR: Duration = Duration::from_secs(30);

/// The issuer of a CA certificate: the parent CA, or the CA itself.
#[derive(Clone, Debug)]
pub(crate) struct Issuer<'a> {
    pub(crate) name: &'a str,
    pub(crate) certificate: &'a Certificate,
    pub(crate) signer: &'a dyn Signer,
    /// Publication URLs of the parent.
    pub(crate) points: PublicationUrls,
}

/// Publication URLs of an issuer: CRLs, OCSP responders and the issuer's certificate. The certificates that it signs contain these
/// URLs. Each list may be empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublicationUrls {
    pub(crate) crl: Vec<String>,
    pub(crate) ocsp: Vec<String>,
    pub(crate) issuer: Vec<String>,
}

impl PublicationUrls {
    /// Returns the URLs under which this server publishes the documents of a CA.
    pub(crate) fn of(urls: &Urls<'_>) -> Self {
        Self { crl: vec![urls.crl()], ocsp: vec![urls.ocsp()], issuer: vec![urls.certificate()] }
    }

    fn extensions(&self) -> Vec<Extension> {
        let mut extensions = Vec::new();
        if !self.crl.is_empty() {
            extensions.push(Extension::crl_distribution_points(&self.crl));
        }
        if !self.ocsp.is_empty() || !self.issuer.is_empty() {
            extensions.push(Extension::authority_info_access(&self.ocsp, &self.issuer));
        }
        extensions
    }
}

/// A newly signed certificate. Its signature was verified with the issuer's key.
#[derive(Clone, Debug)]
pub(crate) struct Certified {
    pub(crate) certificate: Arc<Certificate>,
}

/// The contents of a CA certificate except the dates and the data of its issuer.
#[derive(Clone, Debug)]
pub(crate) struct Body<'a> {
    pub(crate) subject: &'a DistinguishedName,
    pub(crate) spki: &'a [u8],
    /// Extensions in this order: basic constraints, key usage, subject key identifier, then extended key usage, policies and name
    /// constraints where they are not empty.
    pub(crate) extensions: Vec<Extension>,
}

impl<'a> Body<'a> {
    /// Returns the contents for a new CA.
    pub(crate) fn of(
        new: &NewCa,
        read: &'a ParsedSpecification,
        spki: &'a [u8],
        path_length: Option<u32>,
    ) -> Self {
        let mut extensions = vec![
            Extension::basic_constraints(BasicConstraints { ca: true, path_len: path_length }),
            Extension::key_usage(KeyUsage(
                KeyUsage::DIGITAL_SIGNATURE | KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN,
            )),
            Extension::subject_key_id(&build::key_id(spki)),
        ];
        if !new.extended_key_usage.is_empty() {
            extensions.push(Extension::extended_key_usage(&new.extended_key_usage));
        }
        if !new.policies.is_empty() {
            extensions.push(Extension::certificate_policies(&new.policies));
        }
        if !new.name_limits.is_empty() {
            extensions.push(Extension::name_constraints(&read.constraints));
        }
        Self { subject: &read.subject, spki, extensions }
    }
}

/// First and last second of a certificate's validity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Dates {
    pub(crate) from: UnixTime,
    pub(crate) until: UnixTime,
}

impl Dates {
    /// Returns dates that start now, slightly backdated.
    pub(crate) fn of(new: &NewCa, now: UnixTime) -> Self {
        Self { from: now.plus(-new.backdate_seconds), until: now.plus(new.lifetime_seconds - 1) }
    }

    /// Limits the dates to the issuer's dates. An earlier start is moved to the issuer's start. A later end is an error: a chain
    /// becomes invalid when any of its certificates expires, and many clients do not report this clearly.
    pub(crate) fn within(self, issuer: &Certificate, now: UnixTime) -> Result<Self, NewCaError> {
        if self.until > issuer.not_after {
            return Err(NewCaError::Outlives {
                requested: self.until,
                until: issuer.not_after,
                seconds: issuer.not_after.since(now).saturating_add(1).max(0),
            });
        }
        Ok(Self { from: self.from.max(issuer.not_before), ..self })
    }
}

/// Returns the path length of a new CA below an issuer: the requested one, or the maximum that the issuer allows.
pub(crate) fn path_length_below(
    issuer: &Issuer<'_>,
    requested: Option<u32>,
) -> Result<Option<u32>, NewCaError> {
    let allowed = issuer.certificate.basic_constraints.and_then(|constraints| constraints.path_len);
    match (allowed, requested) {
        (None, requested) => Ok(requested),
        (Some(0), _) => Err(NewCaError::NoneBelow(issuer.name.to_owned())),
        (Some(allowed), None) => Ok(Some(allowed - 1)),
        (Some(allowed), Some(requested)) if requested < allowed => Ok(Some(requested)),
        (Some(allowed), Some(requested)) => Err(NewCaError::PathLength { requested, allowed: allowed - 1 }),
    }
}

/// Signs a certificate with the key of the parent or with its own key, and verifies the signature.
pub(crate) async fn certify(
    body: Body<'_>,
    own: &dyn Signer,
    issuer: Option<&Issuer<'_>>,
    dates: Dates,
) -> Result<Certified, NewCaError> {
    let mut extensions = body.extensions;
    if let Some(issuer) = issuer {
        let id = issuer.certificate.subject_key_id.clone();
        let id = id.unwrap_or_else(|| build::key_id(issuer.signer.spki()).to_vec());
        extensions.push(Extension::authority_key_id(&id));
        extensions.extend(issuer.points.extensions());
    }
    let signer = issuer.map_or(own, |issuer| issuer.signer);
    let serial = random_serial()?;
    let tbs = build::tbs_certificate(&CertificateSpec {
        serial: &serial,
        signature: signer.algorithm(),
        issuer: issuer.map_or(&body.subject.der, |issuer| &issuer.certificate.subject.der),
        subject: &body.subject.der,
        not_before: dates.from,
        not_after: dates.until,
        spki: body.spki,
        extensions: &extensions,
    });
    let signature = signer.sign(&tbs, Instant::now() + SIGN_FOR).await?;
    let der = build::signed(&tbs, &signer.algorithm(), &signature);
    verified(&der, signer.spki())
}

/// Verifies the signature, so that a faulty key or module is detected before clients detect it.
fn verified(der: &[u8], issuer_spki: &[u8]) -> Result<Certified, NewCaError> {
    let unverified = |reason: String| NewCaError::Unverified(reason);
    let certificate = Certificate::parse(der).map_err(|error| unverified(error.to_string()))?;
    let key = x509::PublicKey::parse(issuer_spki).map_err(|error| unverified(error.to_string()))?;
    certificate.signed_by(&key).map_err(|error| unverified(error.to_string()))?;
    Ok(Certified { certificate: Arc::new(certificate) })
}

/// Returns a serial number with 126 random bits.
pub(crate) fn random_serial() -> Result<SerialNumber, SignError> {
    let mut bytes = [0; 16];
    let filled = aws_lc_rs::rand::fill(&mut bytes);
    filled.map_err(|_| SignError::Failed("the operating system returned no random bytes".to_owned()))?;
    Ok(SerialNumber::from_random(bytes))
}

/// Returns the inventory row of a certificate, with every name for searches, including email addresses and URIs.
#[must_use]
pub fn inventory_row(certificate: &Certificate) -> NewCertificate {
    let names: Vec<String> = certificate.subject_alt_names.iter().map(ToString::to_string).collect();
    let common_names = &certificate.subject.common_names;
    NewCertificate::new(certificate, if names.is_empty() { common_names.clone() } else { names })
}

pub(crate) fn in_us(time: UnixTime) -> i64 {
    time.0.saturating_mul(1_000_000)
}
