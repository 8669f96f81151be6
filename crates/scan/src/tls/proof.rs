//! Verifies that a handshake signature was made with the leaf's key.
//!
//! A signature that violates TLS rules (PKCS #1 v1.5 in TLS 1.3, a curve that does not match the scheme) still proves possession,
//! and the scheme is recorded.

use x509::der::{DerError, Reader};
use x509::{KeyAlgorithm, PublicKey, SignatureAlgorithm, SignatureError, verify_signature};

use super::{Proof, names};

/// Verifies a signature with the key of `leaf`, a DER certificate. Up to TLS 1.1 the scheme is not transmitted; it follows from the
/// key (RFC 4346 section 7.4.3, RFC 4492 section 5.4).
pub(super) fn check(leaf: &[u8], scheme: Option<u16>, message: &[u8], signature: &[u8]) -> Proof {
    let Ok(key) = public_key(leaf) else {
        return Proof::Unverifiable("the certificate's key cannot be parsed");
    };
    let algorithm = match (scheme, &key.algorithm) {
        (Some(scheme), _) => SignatureAlgorithm::from_tls_scheme(scheme),
        (None, KeyAlgorithm::Rsa) => {
            return Proof::Unverifiable("RSA with MD5 and SHA-1 combined, before TLS 1.2");
        }
        (None, KeyAlgorithm::Dsa) => Some(SignatureAlgorithm::DsaSha1),
        (None, _) => Some(SignatureAlgorithm::EcdsaSha1),
    };
    let Some(algorithm) = algorithm else {
        return Proof::Unverifiable("an unsupported signature scheme");
    };
    match verify_signature(&key, &algorithm, message, signature) {
        Ok(()) => Proof::Verified,
        Err(SignatureError::Unsupported(why)) => Proof::Unverifiable(why),
        Err(SignatureError::Invalid) => Proof::Invalid(match scheme {
            Some(scheme) => format!(
                "the {} signature over this handshake is not by the certificate's key",
                names::signature_scheme(scheme)
            ),
            None => "the signature over this handshake is not by the certificate's key".to_owned(),
        }),
    }
}

/// Returns the key of a certificate (RFC 5280 section 4.1). Parsing only this part takes about a microsecond; new certificates are
/// parsed completely elsewhere, once.
fn public_key(certificate: &[u8]) -> Result<PublicKey, DerError> {
    let mut tbs = Reader::new(certificate).sequence()?.sequence()?;
    tbs.optional(0xa0)?; // version
    for _ in ["serial", "signature", "issuer", "validity", "subject"] {
        tbs.any()?;
    }
    PublicKey::parse(tbs.any()?.whole)
}

/// Returns the number of bits of an unsigned number.
pub(super) fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros).map_or(0, |first| (number.len() - zeros) * 8 - first.leading_zeros() as usize)
}
