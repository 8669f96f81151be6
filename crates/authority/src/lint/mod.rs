//! Checks before a signature: weak keys, and certificates that clients would reject.

mod fermat;
mod rsa;

use aws_lc_rs::signature::{self as lc, ParsedPublicKey, VerificationAlgorithm};
use x509::lint::{self, LintContext};
use x509::{Certificate, Finding, KeyAlgorithm, PublicKey, Severity, UnixTime};

/// Minimum severity of a finding that prevents the issuance, because some clients would reject the certificate.
pub const SEVERITY_REFUSED: Severity = Severity::Medium;

/// Returns the reason why the key is weak; `None` for a sound key.
#[must_use]
pub fn weak_key_reason(key: &PublicKey) -> Option<String> {
    let algorithm: &'static dyn VerificationAlgorithm = match key.algorithm {
        KeyAlgorithm::Rsa => {
            if let Some(weakness) = rsa::weakness(key) {
                return Some(weakness);
            }
            &lc::RSA_PKCS1_2048_8192_SHA256
        }
        KeyAlgorithm::EcP256 => &lc::ECDSA_P256_SHA256_ASN1,
        KeyAlgorithm::EcP384 => &lc::ECDSA_P384_SHA384_ASN1,
        KeyAlgorithm::EcP521 => &lc::ECDSA_P521_SHA512_ASN1,
        KeyAlgorithm::Ed25519 => &lc::ED25519,
        KeyAlgorithm::MlDsa(44) => &lc::ML_DSA_44,
        KeyAlgorithm::MlDsa(65) => &lc::ML_DSA_65,
        KeyAlgorithm::MlDsa(87) => &lc::ML_DSA_87,
        ref other => return Some(format!("keys of type {other} are not supported")),
    };
    // The library checks that the point is on its curve and that the numbers have a valid form.
    let parsed = ParsedPublicKey::new(algorithm, key.key_bytes());
    parsed
        .err()
        .map(|_| "the public key is malformed: not a point of its curve, or numbers out of range".to_owned())
}

/// Requirements that the lints check in addition to those for every certificate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LintRequirements {
    /// Whether TLS servers present the certificate. Such a certificate needs names and the extended key usage `serverAuth`.
    pub for_servers: bool,
    /// Whether the rules of publicly trusted CAs apply.
    pub publicly_trusted: bool,
}

/// Returns the findings that prevent the issuance of `certificate` at `now`.
#[must_use]
pub fn objections(certificate: &Certificate, now: UnixTime, required: LintRequirements) -> Vec<Finding> {
    let context = LintContext {
        publicly_trusted: required.publicly_trusted,
        // A certificate may become valid in the future, so it is linted at its start of validity.
        ..LintContext::for_private_leaf(now.max(certificate.not_before))
    };
    let matters = |finding: &Finding| {
        // Ignore expiry warnings: a short-lived, backdated certificate is always close to its expiry.
        let soon = [&lint::EXPIRING, &lint::EXPIRING_FRACTION];
        let servers = [&lint::NO_SAN, &lint::COMMON_NAME_ONLY, &lint::NOT_SERVER_AUTH];
        finding.rule.severity >= SEVERITY_REFUSED
            && !soon.iter().any(|rule| rule.code == finding.rule.code)
            && (required.for_servers || !servers.iter().any(|rule| rule.code == finding.rule.code))
    };
    lint::lint(certificate, &context).into_iter().filter(matters).collect()
}

#[cfg(test)]
mod tests {
    use keys::{KeyType, PrivateKey, Signer};

    use super::*;

    #[test]
    fn freshly_generated_keys_are_not_weak() {
        for kind in KeyType::ALL {
            let key = PrivateKey::generate(kind).unwrap();
            let key = PublicKey::parse(key.spki()).unwrap();
            assert_eq!(weak_key_reason(&key), None, "{kind}");
        }
    }

    #[test]
    fn point_off_its_curve_is_rejected() {
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let mut spki = key.spki().to_vec();
        *spki.last_mut().unwrap() ^= 1;
        let key = PublicKey::parse(&spki).unwrap();
        assert!(weak_key_reason(&key).unwrap().contains("malformed"));
    }
}
