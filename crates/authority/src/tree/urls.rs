//! Publication URLs of a CA.

use uuid::Uuid;

/// The addresses of one authority, under [`crate::AuthorityOptions::base_url`]. Certificates carry them for years: they
/// name the authority by its id, which never changes.
#[derive(Clone, Copy, Debug)]
pub struct Urls<'a> {
    base: &'a str,
    ca: Uuid,
}

impl<'a> Urls<'a> {
    /// Of this authority, under a base without a slash at its end.
    #[must_use]
    pub fn new(base: &'a str, ca: Uuid) -> Self {
        Self { base, ca }
    }

    /// Its certificate, DER (RFC 5280 section 4.2.2.1, caIssuers).
    #[must_use]
    pub fn certificate(&self) -> String {
        format!("{}/ca/{}.cer", self.base, self.ca)
    }

    /// Its CRL with everything.
    #[must_use]
    pub fn crl(&self) -> String {
        format!("{}/crl/{}.crl", self.base, self.ca)
    }

    /// Its CRL of one shard, from 1.
    #[must_use]
    pub fn crl_shard(&self, shard: u32) -> String {
        format!("{}/crl/{}/{shard}.crl", self.base, self.ca)
    }

    /// Its delta CRL.
    #[must_use]
    pub fn delta_crl(&self) -> String {
        format!("{}/crl/{}/delta.crl", self.base, self.ca)
    }

    /// Its OCSP responder; a GET request appends a slash and the request (RFC 6960 appendix A.1).
    #[must_use]
    pub fn ocsp(&self) -> String {
        format!("{}/ocsp/{}", self.base, self.ca)
    }
}
