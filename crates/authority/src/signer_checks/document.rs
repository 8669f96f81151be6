//! Parsing and comparison of documents before they are signed.

use x509::{Certificate, SignatureAlgorithm, build};

use super::refusal::Refusal;

/// Parses a tbsCertificate into the certificate that its signature would create. Rejects trailing data.
pub(super) fn certificate(tbs: &[u8], algorithm: &SignatureAlgorithm) -> Result<Certificate, Refusal> {
    let der = build::signed(tbs, algorithm, &[0; 64]);
    let draft =
        Certificate::parse(&der).map_err(|error| Refusal::Differs(format!("not a certificate: {error}")))?;
    if draft.tbs() != tbs || !draft.faults.is_empty() {
        return Err(Refusal::Differs("not a well-formed certificate".to_owned()));
    }
    Ok(draft)
}

/// Compares a document with the expected one. An error describes the first difference.
pub(super) fn same(draft: &Certificate, tbs: &[u8], expected: &[u8]) -> Result<(), Refusal> {
    if tbs == expected {
        return Ok(());
    }
    let expected = certificate(expected, &draft.signature)?;
    let differs = |what: &str| Err(Refusal::Differs(format!("another {what}")));
    if draft.issuer.der != expected.issuer.der {
        return differs("issuer");
    }
    if draft.subject_alt_names != expected.subject_alt_names {
        return differs("list of names");
    }
    if draft.subject.der != expected.subject.der {
        return differs("subject");
    }
    if draft.public_key.spki != expected.public_key.spki {
        return differs("key");
    }
    if (draft.not_before, draft.not_after) != (expected.not_before, expected.not_after) {
        return differs("validity");
    }
    differs("extension")
}
