//! Signers of log lists. Pure: no I/O.
//!
//! Google publishes a signature in a separate file for each list. Apple, the other publisher, does not sign its list.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509::{PublicKey, SignatureAlgorithm, verify_signature};

/// Longest accepted signature in bytes: the length for an RSA key of 8,192 bits.
pub const LIST_SIGNATURE_BYTES_MAX: usize = 1_024;

/// URL prefix of Google's current and former lists.
const GOOGLE_PREFIX: &str = "https://www.gstatic.com/ct/log_list/";
/// Google's list signing key, used with RSASSA-PKCS1-v1_5 and SHA-256. The 4,096-bit key has been the same since version 2 of the
/// lists (`https://www.gstatic.com/ct/log_list/v3/log_list_pubkey.pem`). It is built in and not fetched: an attacker who can
/// replace the list could also replace a fetched key.
const GOOGLE_KEY: &str = "MIICIjANBgkqhkiG9w0BAQEFAAOCAg8AMIICCgKCAgEAsu0BHGnQ++W2CTdyZyxv\
    HHRALOZPlnu/VMVgo2m+JZ8MNbAOH2cgXb8mvOj8flsX/qPMuKIaauO+PwROMjiq\
    fUpcFm80Kl7i97ZQyBDYKm3MkEYYpGN+skAR2OebX9G2DfDqFY8+jUpOOWtBNr3L\
    rmVcwx+FcFdMjGDlrZ5JRmoJ/SeGKiORkbbu9eY1Wd0uVhz/xI5bQb0OgII7hEj+\
    i/IPbJqOHgB8xQ5zWAJJ0DmG+FM6o7gk403v6W3S8qRYiR84c50KppGwe4YqSMkF\
    bLDleGQWLoaDSpEWtESisb4JiLaY4H+Kk0EyAhPSb+49JfUozYl+lf7iFN3qRq/S\
    IXXTh6z0S7Qa8EYDhKGCrpI03/+qprwy+my6fpWHi6aUIk4holUCmWvFxZDfixox\
    K0RlqbFDl2JXMBquwlQpm8u5wrsic1ksIv9z8x9zh4PJqNpCah0ciemI3YGRQqSe\
    /mRRXBiSn9YQBUPcaeqCYan+snGADFwHuXCd9xIAdFBolw9R9HTedHGUfVXPJDiF\
    4VusfX6BRR/qaadB+bqEArF/TzuDUr6FvOR4o8lUUxgLuZ/7HO+bHnaPFKYHHSm+\
    +z1lVDhhYuSZ8ax3T0C3FZpb7HMjZtpEorSV5ElKJEJwrhrBCMOD8L01EoSPrGlS\
    1w22i9uGHMn/uGQKo28u7AsCAwEAAQ==";

/// Signer of the lists below a URL prefix.
#[derive(Clone, Debug)]
pub struct ListSigner {
    prefix: String,
    key: PublicKey,
}

/// Error for a list whose signature is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the log list is not signed by the expected list signer")]
pub struct BadListSignature;

impl ListSigner {
    /// Creates a signer with the RSA key `key` for the lists whose URLs start with `prefix`.
    #[must_use]
    pub fn new(prefix: &str, key: PublicKey) -> Self {
        Self { prefix: prefix.to_owned(), key }
    }

    /// Returns Google's signer. Never `None`: the built-in key is valid.
    #[must_use]
    pub fn google() -> Option<Self> {
        let spki = STANDARD.decode(GOOGLE_KEY).ok()?;
        Some(Self::new(GOOGLE_PREFIX, PublicKey::parse(&spki).ok()?))
    }

    /// Returns the URL of the signature of the list at `url`: `log_list.sig` for `log_list.json`. `None`: this signer does not sign
    /// that list.
    #[must_use]
    pub fn signature_url(&self, url: &str) -> Option<String> {
        let name = url.strip_prefix(&*self.prefix)?.strip_suffix(".json")?;
        Some(format!("{}{name}.sig", self.prefix))
    }

    /// Verifies that `signature` is this signer's signature over the exact bytes of `list`.
    ///
    /// # Errors
    /// [`BadListSignature`].
    pub fn verify(&self, list: &[u8], signature: &[u8]) -> Result<(), BadListSignature> {
        let checked = verify_signature(&self.key, &SignatureAlgorithm::RsaSha256, list, signature);
        checked.map_err(|_| BadListSignature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_google_log_lists_have_signature_urls() {
        let google = ListSigner::google().unwrap();
        assert_eq!(google.key.bits, 4_096);
        // SHA-256 of the key file, DER.
        let pinned = "f1d8b68e50210d8e73d9a3e97f571773c52d7f28c0b1a71beee81d8562e6fd85";
        assert_eq!(google.key.spki_sha256.to_string().replace(':', "").to_lowercase(), pinned);
        for (url, signature) in [
            (
                "https://www.gstatic.com/ct/log_list/v3/log_list.json",
                Some("https://www.gstatic.com/ct/log_list/v3/log_list.sig"),
            ),
            (
                "https://www.gstatic.com/ct/log_list/v3/all_logs_list.json",
                Some("https://www.gstatic.com/ct/log_list/v3/all_logs_list.sig"),
            ),
            ("https://valid.apple.com/ct/log_list/current_log_list.json", None),
            ("http://www.gstatic.com/ct/log_list/v3/log_list.json", None),
            ("https://www.gstatic.com.example/ct/log_list/v3/log_list.json", None),
            ("https://www.gstatic.com/ct/log_list/v3/log_list.zip", None),
        ] {
            assert_eq!(google.signature_url(url).as_deref(), signature, "{url}");
        }
    }
}
