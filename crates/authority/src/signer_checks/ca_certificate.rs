//! Checks of CA certificates and of CSRs for them.

use keys::{KeyRef, Signer};
use x509::csr::CertificateRequest;
use x509::{Certificate, KeyUsage, build};

use super::document::certificate;
use super::refusal::Refusal;
use crate::Authority;
use crate::keystore::NewKey;
use crate::tree::Ca;

/// The key that signs, and its CA; `None` for a newly generated key.
pub(super) struct Issuing<'a> {
    pub(super) key: &'a KeyRef,
    pub(super) ca: Option<&'a Ca>,
}

/// Checks a CA certificate. The certified key must be a key of the signer itself, so that a server cannot obtain a CA certificate
/// for its own key.
pub(super) async fn check(
    authority: &Authority,
    issuing: Issuing<'_>,
    subject_key: Option<&NewKey>,
    tbs: &[u8],
) -> Result<(), Refusal> {
    let refuse = |reason: &str| Err(Refusal::CaCertificate(reason.to_owned()));
    let draft = certificate(tbs, &issuing.key.algorithm())?;
    let signs = draft.key_usage.is_some_and(|usage| usage.0 & KeyUsage::KEY_CERT_SIGN != 0);
    if !draft.is_ca() || !signs || !draft.unknown_critical.is_empty() {
        return refuse("the certificate is not a CA certificate");
    }
    if !has_subject_key(authority, &issuing, subject_key, &draft).await? {
        return refuse("its key is not in this signer");
    }
    let own = *draft.public_key.spki == *issuing.key.spki();
    let issuer = match issuing.ca {
        Some(ca) => &ca.certificate.subject.der,
        None => &draft.subject.der,
    };
    if draft.issuer.der != *issuer || (issuing.ca.is_none() && !own) {
        return refuse("the issuer is another CA");
    }
    match issuing.ca {
        Some(ca) if !own && draft.not_after > ca.certificate.not_after => {
            refuse("the certificate is valid for longer than its issuer")
        }
        _ => Ok(()),
    }
}

async fn has_subject_key(
    authority: &Authority,
    issuing: &Issuing<'_>,
    subject_key: Option<&NewKey>,
    draft: &Certificate,
) -> Result<bool, Refusal> {
    let spki = &*draft.public_key.spki;
    if spki == issuing.key.spki() {
        return Ok(true);
    }
    if let Some(new) = subject_key {
        return Ok(authority.keystore().open_row(&new.row).await?.spki() == spki);
    }
    for ca in authority.cas_by_key(&draft.public_key.spki_sha256).await? {
        if ca.credential.is_none() && authority.keystore().signer(ca.key_id).await?.spki() == spki {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that a CSR is for the key that signs it. The external parent CA decides about the contents of the certificate.
pub(super) fn check_request(key: &dyn Signer, tbs: &[u8]) -> Result<(), Refusal> {
    let der = build::signed(tbs, &key.algorithm(), &[0; 64]);
    let request = CertificateRequest::parse(&der)
        .map_err(|error| Refusal::CaCertificate(format!("not a certification request: {error}")))?;
    if *request.public_key.spki == *key.spki() {
        return Ok(());
    }
    Err(Refusal::CaCertificate("the request is for another key".to_owned()))
}
