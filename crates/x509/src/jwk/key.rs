//! Untrusted public keys: JWK (RFC 7517, RFC 7518 section 6, RFC 8037 section 2).

use std::fmt;
use std::sync::OnceLock;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::encoding::canonical;
use crate::der;

/// Permitted bits of an RSA modulus. Smaller ones are too weak, and larger ones only cost CPU time.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;
/// Maximum bytes of an RSA exponent. Every real one fits.
const RSA_EXPONENT_MAX: usize = 4;
/// Members of private or symmetric keys. A client that sends one has revealed its key.
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Object identifiers as arcs.
const RSA_ENCRYPTION: [u64; 7] = [1, 2, 840, 113_549, 1, 1, 1];
const EC_PUBLIC_KEY: [u64; 6] = [1, 2, 840, 10_045, 2, 1];
const P256: [u64; 7] = [1, 2, 840, 10_045, 3, 1, 7];
const P384: [u64; 5] = [1, 3, 132, 0, 34];
const P521: [u64; 5] = [1, 3, 132, 0, 35];
const ED25519: [u64; 4] = [1, 3, 101, 112];

/// Reason why a JWK is not accepted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct BadJwk(String);

/// A public key from a JWK. The key is parsed once for each algorithm, at first use.
pub struct JwkKey {
    kind: Kind,
    /// The members required by RFC 7638, in its order and without spaces.
    canonical: String,
    thumbprint: [u8; 32],
    spki: Box<[u8]>,
    /// Parsed key by [`Algorithm`], set at first use: an RSA key supports six algorithms.
    parsed: [OnceLock<Option<ParsedPublicKey>>; Algorithm::COUNT],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

impl JwkKey {
    /// Parses a JWK.
    ///
    /// # Errors
    /// [`BadJwk`] with the reason.
    pub fn from_jwk(jwk: &Value) -> Result<Self, BadJwk> {
        let Value::Object(members) = jwk else { return Err(bad("not a JSON object")) };
        if let Some(private) = PRIVATE_MEMBERS.iter().find(|member| members.contains_key(**member)) {
            return Err(bad(&format!(
                "the JWK has the private member {private:?}: that key is no longer secret, generate a new one"
            )));
        }
        match text(members, "kty")? {
            "RSA" => Self::rsa(members),
            "EC" => Self::ec(members),
            "OKP" => Self::okp(members),
            other => Err(bad(&format!("unsupported kty {other:?}; use RSA, EC or OKP"))),
        }
    }

    /// Parses the output of [`JwkKey::canonical`].
    ///
    /// # Errors
    /// As [`JwkKey::from_jwk`].
    pub fn from_canonical(text: &str) -> Result<Self, BadJwk> {
        let jwk = serde_json::from_str(text).map_err(|error| bad(&error.to_string()))?;
        Self::from_jwk(&jwk)
    }

    fn rsa(members: &Map<String, Value>) -> Result<Self, BadJwk> {
        let (n, e) = (bytes(members, "n")?, bytes(members, "e")?);
        if n.first() == Some(&0) || e.first() == Some(&0) {
            return Err(bad("n and e must not begin with a zero byte (RFC 7518 section 6.3.1)"));
        }
        let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
        if !RSA_BITS.contains(&bits) {
            return Err(bad(&format!(
                "the modulus has {bits} bits; use {} to {}",
                RSA_BITS.start(),
                RSA_BITS.end()
            )));
        }
        let odd = |number: &[u8]| number.last().is_some_and(|last| last & 1 == 1);
        if !odd(&n) || !odd(&e) || e.len() > RSA_EXPONENT_MAX || e == [1] {
            return Err(bad("the modulus or exponent is not valid for an RSA key"));
        }
        let spki = der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&RSA_ENCRYPTION).null();
                });
                let key = der::write(|w| {
                    w.sequence(|w| {
                        w.unsigned(&n).unsigned(&e);
                    });
                });
                w.bits(&key);
            });
        });
        Self::checked(Kind::Rsa, spki)
    }

    fn ec(members: &Map<String, Value>) -> Result<Self, BadJwk> {
        let crv = text(members, "crv")?;
        let (kind, curve, length): (_, &[u64], usize) = match crv {
            "P-256" => (Kind::P256, &P256, 32),
            "P-384" => (Kind::P384, &P384, 48),
            "P-521" => (Kind::P521, &P521, 66),
            other => return Err(bad(&format!("unsupported curve {other:?}; use P-256, P-384 or P-521"))),
        };
        let (x, y) = (bytes(members, "x")?, bytes(members, "y")?);
        if x.len() != length || y.len() != length {
            return Err(bad(&format!("x and y of {crv} must have {length} bytes each")));
        }
        let spki = der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&EC_PUBLIC_KEY).oid(curve);
                });
                w.bits(&[&[4][..], &x, &y].concat());
            });
        });
        Self::checked(kind, spki)
    }

    fn okp(members: &Map<String, Value>) -> Result<Self, BadJwk> {
        let crv = text(members, "crv")?;
        if crv != "Ed25519" {
            return Err(bad(&format!("unsupported curve {crv:?}; use Ed25519")));
        }
        let x = bytes(members, "x")?;
        if x.len() != 32 {
            return Err(bad("x of Ed25519 must have 32 bytes"));
        }
        let spki = der::write(|w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&ED25519);
                });
                w.bits(&x);
            });
        });
        Self::checked(Kind::Ed25519, spki)
    }

    /// Creates a key from its SubjectPublicKeyInfo. The parser of the library rejects points that are not on their curve.
    fn checked(kind: Kind, spki: Vec<u8>) -> Result<Self, BadJwk> {
        let no_key = || bad("the members do not form a valid public key");
        let canonical = canonical(&spki).ok_or_else(no_key)?;
        let thumbprint = sha256(canonical.as_bytes());
        let key =
            Self { kind, canonical, thumbprint, spki: spki.into(), parsed: [const { OnceLock::new() }; _] };
        let usual = match kind {
            Kind::Rsa => Algorithm::Rs256,
            Kind::P256 => Algorithm::Es256,
            Kind::P384 => Algorithm::Es384,
            Kind::P521 => Algorithm::Es512,
            Kind::Ed25519 => Algorithm::EdDsa,
        };
        if key.parsed(usual).is_some() { Ok(key) } else { Err(no_key()) }
    }

    /// Returns whether this type of key supports the algorithm.
    #[must_use]
    pub fn can(&self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::Es256 => self.kind == Kind::P256,
            Algorithm::Es384 => self.kind == Kind::P384,
            Algorithm::Es512 => self.kind == Kind::P521,
            Algorithm::EdDsa => self.kind == Kind::Ed25519,
            Algorithm::Rs256
            | Algorithm::Rs384
            | Algorithm::Rs512
            | Algorithm::Ps256
            | Algorithm::Ps384
            | Algorithm::Ps512 => self.kind == Kind::Rsa,
        }
    }

    /// Returns whether `signature` over `message` was made with this key.
    #[must_use]
    pub fn signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        self.can(algorithm)
            && self.parsed(algorithm).is_some_and(|key| key.verify_sig(message, signature).is_ok())
    }

    fn parsed(&self, algorithm: Algorithm) -> Option<&ParsedPublicKey> {
        self.parsed[algorithm as usize]
            .get_or_init(|| ParsedPublicKey::new(verification(algorithm), &*self.spki).ok())
            .as_ref()
    }

    /// Returns the key as JSON with only the members of RFC 7638 section 3.
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Returns the SHA-256 of [`JwkKey::canonical`] (RFC 7638).
    #[must_use]
    pub fn thumbprint(&self) -> &[u8; 32] {
        &self.thumbprint
    }

    /// Returns the thumbprint in the form of key authorizations (RFC 8555 section 8.1).
    #[must_use]
    pub fn thumbprint_text(&self) -> String {
        BASE64URL_NOPAD.encode(&self.thumbprint)
    }

    /// Returns the DER SubjectPublicKeyInfo.
    #[must_use]
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }
}

impl fmt::Debug for JwkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwkKey({:?} {})", self.kind, self.thumbprint_text())
    }
}

/// Returns the thumbprint that a SubjectPublicKeyInfo would have as an account key; `None` for key types that accounts cannot have.
/// A single lookup then checks whether the key of a certificate request belongs to any account.
#[must_use]
pub fn thumbprint_of_spki(spki: &[u8]) -> Option<[u8; 32]> {
    canonical(spki).map(|canonical| sha256(canonical.as_bytes()))
}

fn verification(algorithm: Algorithm) -> &'static dyn VerificationAlgorithm {
    match algorithm {
        Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
        Algorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        Algorithm::EdDsa => &signature::ED25519,
    }
}

fn bad(reason: &str) -> BadJwk {
    BadJwk(reason.to_owned())
}

fn text<'m>(members: &'m Map<String, Value>, name: &str) -> Result<&'m str, BadJwk> {
    members
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| bad(&format!("the member {name:?} is missing or is not a string")))
}

fn bytes(members: &Map<String, Value>, name: &str) -> Result<Vec<u8>, BadJwk> {
    BASE64URL_NOPAD
        .decode(text(members, name)?.as_bytes())
        .map_err(|_| bad(&format!("the member {name:?} is not base64url without padding")))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The key of RFC 7638 section 3.1.
    fn example() -> Value {
        json!({
            "kty": "RSA", "alg": "RS256", "kid": "2011-04-29", "e": "AQAB",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRX\
                  jBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqz\
                  s8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-\
                  G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        })
    }

    #[test]
    fn thumbprint_matches_the_rfc_7638_example() {
        let key = JwkKey::from_jwk(&example()).unwrap();
        assert_eq!(key.thumbprint_text(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        assert_eq!(thumbprint_of_spki(key.spki()).unwrap(), *key.thumbprint());
        assert_eq!(JwkKey::from_canonical(key.canonical()).unwrap().spki(), key.spki());
    }

    #[test]
    fn invalid_jwks_are_rejected() {
        let with = |member: &str, value: Value| {
            let mut jwk = example();
            jwk[member] = value;
            JwkKey::from_jwk(&jwk).err().map(|error| error.to_string())
        };
        assert!(with("use", json!("sig")).is_none());
        for (member, value, reason) in [
            ("d", json!("AA"), "secret"),
            ("n", json!("AQAB"), "17 bits"),
            ("n", json!(null), "missing"),
            ("e", json!("AA"), "n and e must not begin with a zero byte (RFC"),
            ("e", json!("AQ"), "exponent"),
            ("e", json!("AQAA"), "exponent"),
            ("e", json!("AQAB="), "base64url"),
            ("kty", json!(null), "kty"),
            ("kty", json!("oct"), "use RSA, EC or OKP"),
        ] {
            let error = with(member, value).unwrap();
            assert!(error.contains(reason), "{error}: {reason}");
        }
        // A point that is not on the curve.
        let zero = BASE64URL_NOPAD.encode(&[1; 32]);
        assert!(JwkKey::from_jwk(&json!({"kty": "EC", "crv": "P-256", "x": zero, "y": zero})).is_err());
    }
}
