//! Encodings of private keys: PKCS#8, PKCS#1 and SEC 1, in PEM and DER.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509::der::{DerError, Reader, oid_text, tag};
use zeroize::Zeroizing;

use crate::{KeyError, KeyType};

/// Largest private key that is read, in bytes. ML-DSA-87 in expanded form has 5 KB, RSA of 16,384 bits 10 KB.
pub(crate) const PRIVATE_KEY_BYTES_MAX: usize = 32 * 1024;
/// Characters of a PEM line (RFC 7468 section 2).
const LINE: usize = 64;

/// Format of an encoded private key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// PrivateKeyInfo (RFC 5958) with a key of this kind.
    Pkcs8(Pkcs8Kind),
    /// RSAPrivateKey (RFC 8017 appendix A.1.2).
    Pkcs1,
    /// ECPrivateKey (RFC 5915).
    Sec1,
    /// EncryptedPrivateKeyInfo (RFC 5958 section 3).
    Encrypted,
}

/// Algorithm that a PrivateKeyInfo names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pkcs8Kind {
    Rsa,
    /// An algorithm with a single key type.
    Exact(KeyType),
}

/// Returns the first private key of a PEM text. Other blocks (parameters, certificates) are skipped.
pub(crate) fn first_private_key_der(text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(KeyError::LegacyEncryption);
    }
    for (label, der) in x509::pem::blocks(text.as_bytes()) {
        let der = Zeroizing::new(der);
        if matches!(
            label.as_str(),
            "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" | "ENCRYPTED PRIVATE KEY"
        ) {
            return Ok(der);
        }
    }
    Err(KeyError::NoKey)
}

/// Detects the format from the DER structure.
pub(crate) fn format_of(der: &[u8]) -> Result<Format, KeyError> {
    if der.len() > PRIVATE_KEY_BYTES_MAX {
        return Err(KeyError::Malformed(format!("{} bytes are too long for a private key", der.len())));
    }
    parse_format(der).map_err(|error| KeyError::Malformed(error.to_string()))?
}

fn parse_format(der: &[u8]) -> Result<Result<Format, KeyError>, DerError> {
    let mut fields = Reader::new(der).sequence()?;
    if fields.peek() == Some(tag::SEQUENCE) {
        return Ok(Ok(Format::Encrypted));
    }
    fields.expect(tag::INTEGER)?;
    match fields.peek() {
        Some(tag::INTEGER) => Ok(Ok(Format::Pkcs1)),
        Some(tag::OCTET_STRING) => Ok(Ok(Format::Sec1)),
        _ => Ok(pkcs8_kind(fields.sequence()?)?.map(Format::Pkcs8)),
    }
}

fn pkcs8_kind(mut identifier: Reader<'_>) -> Result<Result<Pkcs8Kind, KeyError>, DerError> {
    let algorithm = oid_text(identifier.expect(tag::OID)?.content);
    let kind = match algorithm.as_str() {
        "1.2.840.113549.1.1.1" => Pkcs8Kind::Rsa,
        "1.2.840.10045.2.1" => {
            let curve = oid_text(identifier.expect(tag::OID)?.content);
            match curve.as_str() {
                "1.2.840.10045.3.1.7" => Pkcs8Kind::Exact(KeyType::P256),
                "1.3.132.0.34" => Pkcs8Kind::Exact(KeyType::P384),
                "1.3.132.0.35" => Pkcs8Kind::Exact(KeyType::P521),
                _ => return Ok(Err(KeyError::Unsupported(format!("the curve {curve}")))),
            }
        }
        "1.3.101.112" => Pkcs8Kind::Exact(KeyType::Ed25519),
        "2.16.840.1.101.3.4.3.17" => Pkcs8Kind::Exact(KeyType::MlDsa44),
        "2.16.840.1.101.3.4.3.18" => Pkcs8Kind::Exact(KeyType::MlDsa65),
        "2.16.840.1.101.3.4.3.19" => Pkcs8Kind::Exact(KeyType::MlDsa87),
        _ => return Ok(Err(KeyError::Unsupported(format!("the algorithm {algorithm}")))),
    };
    Ok(Ok(kind))
}

/// Returns the privateKey field of a PrivateKeyInfo. For RSA it contains the PKCS#1 encoding.
pub(crate) fn private_key_field(pkcs8: &[u8]) -> Option<&[u8]> {
    let mut fields = Reader::new(pkcs8).sequence().ok()?;
    fields.expect(tag::INTEGER).ok()?;
    fields.sequence().ok()?;
    fields.expect(tag::OCTET_STRING).ok().map(|key| key.content)
}

/// Encodes a PEM block. The text and its intermediate buffers are wiped when dropped.
pub(crate) fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    let base64 = Zeroizing::new(STANDARD.encode(der));
    // Reserves the full capacity first: a vector that grows leaves copies of the secret behind.
    let lines = base64.len().div_ceil(LINE);
    let mut text = Zeroizing::new(String::with_capacity(base64.len() + lines + 2 * label.len() + 40));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    for start in (0..base64.len()).step_by(LINE) {
        text.push_str(&base64[start..(start + LINE).min(base64.len())]);
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}
