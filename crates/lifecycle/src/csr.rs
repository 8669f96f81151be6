//! Certificate signing requests (CSRs) for managed certificates.

use std::collections::BTreeSet;
use std::time::Instant;

use keys::{KeyType, Signer};
use x509::build::{Extension, signed};
use x509::csr::{self, CertificateRequest};
use x509::{DistinguishedName, GeneralName};

use crate::managed::ManagedCertificate;

/// Timeout for signing a CSR.
const SIGN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Returns a CSR for these names, signed with the key.
pub(crate) async fn signed_csr(
    signer: &dyn Signer,
    certificate: &ManagedCertificate,
) -> Result<Vec<u8>, String> {
    let subject = match &certificate.options.subject {
        Some(text) => DistinguishedName::from_text(text).map_err(|error| error.to_string())?,
        None => DistinguishedName::empty(),
    };
    let mut extensions =
        vec![Extension::subject_alt_names(&certificate.names).critical(subject.text.is_empty())];
    if certificate.options.must_staple {
        extensions.push(Extension::must_staple());
    }
    let tbs = csr::tbs(&subject.der, signer.spki(), &extensions, None);
    let signature =
        signer.sign(&tbs, Instant::now() + SIGN_TIMEOUT).await.map_err(|error| error.to_string())?;
    Ok(signed(&tbs, &signer.algorithm(), &signature))
}

/// Returns whether a CSR requests exactly these names.
pub(crate) fn requests_names(csr: &[u8], names: &[GeneralName]) -> bool {
    let Ok(request) = CertificateRequest::parse(csr) else { return false };
    let texts = |names: &[GeneralName]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    texts(&request.names()) == texts(names)
}

/// Checks that a CSR matches the certificate: a valid self-signature, the same names, and the same key type.
pub(crate) fn check_csr(csr: &[u8], certificate: &ManagedCertificate) -> Result<(), String> {
    let request = CertificateRequest::parse(csr).map_err(|error| error.to_string())?;
    request.verify().map_err(|error| format!("the CSR has no valid proof of possession: {error}"))?;
    if !requests_names(csr, &certificate.names) {
        return Err("the CSR requests other names".to_owned());
    }
    match KeyType::of(&request.public_key) {
        Some(kind) if kind == certificate.key_type => Ok(()),
        Some(kind) => {
            Err(format!("the key type is {}, expected {}", kind.name(), certificate.key_type.name()))
        }
        None => Err("the key type is unknown".to_owned()),
    }
}
