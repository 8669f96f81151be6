//! Publication URLs of a CA.

use uuid::Uuid;

/// Publication URLs of one CA, under [`crate::AuthorityOptions::base_url`]. Issued certificates contain them for years, so they use
/// the identifier of the CA, which never changes.
#[derive(Clone, Copy, Debug)]
pub struct Urls<'a> {
    base: &'a str,
    ca: Uuid,
}

impl<'a> Urls<'a> {
    /// Returns the URLs of a CA, under a base URL without a slash at its end.
    #[must_use]
    pub fn new(base: &'a str, ca: Uuid) -> Self {
        Self { base, ca }
    }

    /// Returns the URL of the certificate in DER (RFC 5280 section 4.2.2.1, caIssuers).
    #[must_use]
    pub fn certificate(&self) -> String {
        format!("{}/ca/{}.cer", self.base, self.ca)
    }

    /// Returns the URL of the full CRL.
    #[must_use]
    pub fn crl(&self) -> String {
        format!("{}/crl/{}.crl", self.base, self.ca)
    }

    /// Returns the URL of the CRL of one shard, from 1.
    #[must_use]
    pub fn crl_shard(&self, shard: u32) -> String {
        format!("{}/crl/{}/{shard}.crl", self.base, self.ca)
    }

    /// Returns the URL of the delta CRL.
    #[must_use]
    pub fn delta_crl(&self) -> String {
        format!("{}/crl/{}/delta.crl", self.base, self.ca)
    }

    /// Returns the URL of the OCSP responder. A GET request appends a slash and the encoded request (RFC 6960 appendix A.1).
    #[must_use]
    pub fn ocsp(&self) -> String {
        format!("{}/ocsp/{}", self.base, self.ca)
    }
}
