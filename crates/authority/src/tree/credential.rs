//! CAs whose certificate and key are a credential. Certificates issued by such a CA can be revoked as usual, but this server does
//! not trust the CA.
//!
//! The credential store keeps the certificate and key of such a CA as a value. A copy of the key is in the table of keys, so that
//! CRLs are still signed after the value is deleted. Anyone who may write a credential can create such a CA. Therefore client
//! authentication and profiles do not accept it as one of the server's own CAs.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use keys::{PrivateKey, Signer};
use serde_json::json;
use uuid::Uuid;
use x509::build::Extension;
use x509::{Certificate, Fingerprint};

use super::error::ImportError;
use super::import::{Chain, find_parent};
use super::specification::{CREDENTIAL, CREDENTIAL_CAS_MAX, NAME_MAX};
use super::{Ca, Urls, inventory_row};
use crate::Authority;
use crate::issue::Source;
use crate::tables::NewIssued;

/// A version of a credential that contains a CA certificate and its key.
#[derive(Clone, Copy)]
pub struct CredentialCa<'a> {
    /// Path of the credential.
    pub path: &'a str,
    /// Certificate in this version of the credential.
    pub certificate: &'a Certificate,
    /// Private key in this version of the credential.
    pub key: &'a PrivateKey,
}

impl Authority {
    /// Returns the CA of a credential version, and imports it if it is not known yet.
    ///
    /// # Errors
    /// [`ImportError`], for example if the certificate is not a CA certificate or not valid now.
    pub async fn credential_ca(
        &self,
        credential: CredentialCa<'_>,
        actor: &str,
    ) -> Result<Arc<Ca>, ImportError> {
        let CredentialCa { path, certificate, key } = credential;
        if key.spki() != &*certificate.public_key.spki {
            return Err(ImportError::OtherKey);
        }
        if let Some(known) = self.ca_by_certificate(&certificate.fingerprint).await? {
            return Ok(known);
        }
        let name = name_of(path, &certificate.fingerprint);
        let chain = Chain::without_parents(certificate.clone(), self.now())?;
        let known = self.all_cas().await?;
        if known.iter().filter(|ca| ca.credential.is_some()).count() >= CREDENTIAL_CAS_MAX {
            return Err(ImportError::TooMany);
        }
        let parent = find_parent(&chain, &known);
        let specification = json!({ "imported": true, CREDENTIAL: path });
        match self.store_imported_ca(&name, chain, parent, key.clone(), specification, actor).await {
            // Another node or request imported the CA first.
            Err(ImportError::NameTaken(name)) => {
                self.invalidate_cas_cache();
                let known = self.ca_by_certificate(&certificate.fingerprint).await?;
                known.ok_or(ImportError::NameTaken(name))
            }
            other => other,
        }
    }

    /// Returns the extensions with which clients find the revocation status of a certificate of a CA from the credential store:
    /// the URLs of OCSP and of the issuer's certificate (RFC 5280 section 4.2.2.1), and of the CRL (section 4.2.1.13).
    #[must_use]
    pub fn revocation_extensions(&self, ca: &Ca) -> [Extension; 2] {
        let urls = Urls::new(&self.options().base_url, ca.id);
        [
            Extension::authority_info_access(&[urls.ocsp()], &[urls.certificate()]),
            Extension::crl_distribution_points(&[urls.crl()]),
        ]
    }

    /// Returns the row of a certificate that a CA from the credential store has signed. Store it with [`crate::issue::record`].
    #[must_use]
    pub fn issued_by_credential(&self, ca: &Ca, certificate: &Certificate, requester: &str) -> NewIssued {
        NewIssued {
            id: Uuid::now_v7(),
            certificate: Arc::new(inventory_row(certificate)),
            ca: ca.id,
            serial: certificate.serial.content().to_vec(),
            profile: String::new(),
            source: Source::Credential,
            requester: requester.to_owned(),
            issued_at_us: self.clock().now_us(),
            shard: 0,
            idempotency: None,
        }
    }
}

/// Returns the CA name of a credential, such as `credential deploy.cf.ca 01f3a2b4` for `/deploy/cf/ca`. The name contains as much
/// of the end of the path as fits, with dots for characters that CA names do not allow. The beginning of the certificate's
/// fingerprint follows, to distinguish versions.
fn name_of(path: &str, certificate: &Fingerprint) -> String {
    let tag = HEXLOWER.encode(&certificate.as_bytes()[..4]);
    let plain = |c: char| if c.is_alphanumeric() || "_-".contains(c) { c } else { '.' };
    let whole: Vec<char> = path.trim_start_matches('/').chars().map(plain).collect();
    let room = NAME_MAX - CREDENTIAL.len() - tag.len() - 2;
    let end: String = whole[whole.len().saturating_sub(room)..].iter().collect();
    format!("{CREDENTIAL} {end} {tag}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::check_name;

    #[test]
    fn any_credential_path_yields_a_valid_ca_name() {
        let fingerprint = Fingerprint::from_bytes([0xab; 32]);
        assert_eq!(name_of("/deploy/cf-1/ca_x", &fingerprint), "credential deploy.cf-1.ca_x abababab");
        assert_eq!(name_of("/a:b(c)/d+[e],f", &fingerprint), "credential a.b.c..d..e..f abababab");
        let long = format!("/{}/end", "x".repeat(1_000));
        let name = name_of(&long, &fingerprint);
        assert!(name.ends_with("x.end abababab") && name.chars().count() == NAME_MAX, "{name}");
        assert!(check_name(&name).is_ok());
    }
}
