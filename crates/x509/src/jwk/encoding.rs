//! Encodings of public keys and signatures.

use data_encoding::BASE64URL_NOPAD;

use crate::der::{DerError, Reader, tag};
use crate::{KeyAlgorithm, PublicKey};

/// Returns the JWK of a DER SubjectPublicKeyInfo, with only the members of RFC 7638 section 3.2, in their order and without spaces.
/// The SHA-256 of the JWK is the key's thumbprint. `None` if the key is not RSA, P-256, P-384, P-521 or Ed25519.
#[must_use]
pub fn canonical(spki: &[u8]) -> Option<String> {
    let key = PublicKey::parse(spki).ok()?;
    let bytes = key.key_bytes();
    let encode = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let point = |crv: &str, half: usize| {
        let (x, y) = bytes.strip_prefix(&[4]).filter(|point| point.len() == 2 * half)?.split_at(half);
        Some(format!(r#"{{"crv":"{crv}","kty":"EC","x":"{}","y":"{}"}}"#, encode(x), encode(y)))
    };
    match key.algorithm {
        KeyAlgorithm::Rsa => {
            let mut numbers = Reader::new(bytes).sequence().ok()?;
            let mut number = || {
                let content = numbers.expect(tag::INTEGER).ok()?.content;
                Some(encode(content.strip_prefix(&[0]).unwrap_or(content)))
            };
            let (n, e) = (number()?, number()?);
            Some(format!(r#"{{"e":"{e}","kty":"RSA","n":"{n}"}}"#))
        }
        KeyAlgorithm::EcP256 => point("P-256", 32),
        KeyAlgorithm::EcP384 => point("P-384", 48),
        KeyAlgorithm::EcP521 => point("P-521", 66),
        KeyAlgorithm::Ed25519 => Some(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(bytes))),
        _ => None,
    }
}

/// Converts an ECDSA signature from the DER of RFC 3279 section 2.2.3 to r and s, concatenated, each of `half` bytes (RFC 7518
/// section 3.4; PKCS#11 uses the same form). `half` is the length of the curve's order. `None` if the bytes are not such a
/// signature.
#[must_use]
pub fn ecdsa_der_to_fixed(der: &[u8], half: usize) -> Option<Vec<u8>> {
    let read = || -> Result<_, DerError> {
        let mut outer = Reader::new(der);
        let mut parts = outer.sequence()?;
        let (r, s) = (parts.expect(tag::INTEGER)?.content, parts.expect(tag::INTEGER)?.content);
        parts.end()?;
        outer.end()?;
        Ok((r, s))
    };
    let (r, s) = read().ok()?;
    let mut fixed = vec![0; 2 * half];
    let (left, right) = fixed.split_at_mut(half);
    for (out, integer) in [(left, r), (right, s)] {
        let zeros = integer.iter().take_while(|byte| **byte == 0).count();
        let magnitude = &integer[zeros..];
        let from = half.checked_sub(magnitude.len())?;
        out[from..].copy_from_slice(magnitude);
    }
    Some(fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_7638_example_key_is_encoded_canonically() {
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZ\
                 CiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJ\
                 ZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBni\
                 Iqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let spki = crate::der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&[1, 2, 840, 113_549, 1, 1, 1]).null();
                });
                w.bits_containing(|w| {
                    w.sequence(|w| {
                        w.unsigned(&BASE64URL_NOPAD.decode(n.as_bytes()).unwrap()).unsigned(&[1, 0, 1]);
                    });
                });
            });
        });
        let canonical = canonical(&spki).unwrap();
        assert_eq!(canonical, format!(r#"{{"e":"AQAB","kty":"RSA","n":"{n}"}}"#));
        let thumbprint = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, canonical.as_bytes());
        assert_eq!(
            BASE64URL_NOPAD.encode(thumbprint.as_ref()),
            "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
        );
        assert_eq!(super::canonical(b"nonsense"), None);
    }

    #[test]
    fn ecdsa_signature_integers_are_padded_to_the_order_length() {
        for (der, wanted) in [
            (&b"\x30\x06\x02\x01\x05\x02\x01\x06"[..], Some(vec![0, 0, 5, 0, 0, 6])),
            // The first byte of r is a sign byte, which is not part of the number.
            (b"\x30\x09\x02\x04\x00\xff\x01\x02\x02\x01\x06", Some(vec![0xff, 1, 2, 0, 0, 6])),
            (b"\x30\x09\x02\x04\x01\xff\x01\x02\x02\x01\x06", None),
            (b"\x30\x06\x02\x01\x05\x02\x01\x06\x00", None),
            (b"\x30\x09\x02\x01\x05\x02\x01\x06\x02\x01\x07", None),
            (b"\x30\x03\x02\x01\x05", None),
            (b"", None),
        ] {
            assert_eq!(ecdsa_der_to_fixed(der, 3), wanted, "{der:02x?}");
        }
    }
}
