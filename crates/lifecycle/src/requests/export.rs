//! Export of certificates and keys. Each export writes an audit row.

use authority::keystore::KeyStoreError;
use futures_util::FutureExt;
use keys::{Context, PrivateKey};
use p12_keystore::{Certificate, KeyStore, KeyStoreEntry, PrivateKeyChain};
use serde_json::json;
use store::SEALED_KEYS;
use uuid::Uuid;
use x509::Fingerprint;
use zeroize::Zeroizing;

use super::release::{KeyUse, NotApproved, ReleaseError};
use crate::error::{DataError, from_data};
use crate::handle::Lifecycle;
use crate::ledger::{Ledger, transaction};
use crate::managed::{KeyLocation, ManagedCertificate, split};
use crate::tables;
use crate::tables::managed::ManagedVersion;

/// Minimum length of a PKCS#12 password, in bytes: an attacker can try passwords offline.
pub const PASSWORD_BYTES_MIN: usize = 8;

/// Format of an exported certificate: PEM with or without the key, or PKCS#12.
#[derive(Clone)]
pub enum ExportFormat {
    /// The chain in PEM: leaf first, without root.
    Chain,
    /// The chain, then the private key as PKCS#8, both in PEM.
    ChainAndKey,
    /// A PKCS#12 file with the chain and the key.
    Pkcs12 {
        /// Password that encrypts the file; at least [`PASSWORD_BYTES_MIN`] bytes.
        password: Zeroizing<String>,
    },
}

/// An exported certificate. It may contain a private key.
pub struct Exported {
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// SHA-256 of the leaf of the exported version.
    pub fingerprint: Fingerprint,
    /// Content: PEM text or DER.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Media type of `bytes`.
    pub media_type: &'static str,
}

/// Reason why a certificate was not exported.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExportError {
    /// The certificate has nothing to export, or must not be exported. Contains the reason.
    #[error("{0}")]
    NotExportable(&'static str),
    /// Another person must approve, and did not.
    #[error(transparent)]
    NotApproved(#[from] NotApproved),
    /// The private key cannot be read from the key store.
    #[error(transparent)]
    Keys(#[from] KeyStoreError),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(ExportError);

impl From<ReleaseError> for ExportError {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::NotApproved(error) => error.into(),
            ReleaseError::Data(error) => error.into(),
        }
    }
}

impl Lifecycle {
    /// Exports the current version of a certificate. The audit row is written before a key is returned.
    ///
    /// # Errors
    /// [`ExportError::NotExportable`] if there is no version or its key is not in this server. [`ExportError::NotApproved`] for the
    /// key of a certificate for which another person must approve.
    #[crate::boxed]
    pub async fn export(
        &self,
        id: Uuid,
        format: &ExportFormat,
        actor: &str,
    ) -> Result<Exported, ExportError> {
        let view = tables::Managed::of(&self.inner.store).get(id).await?;
        let view = view.ok_or_else(|| DataError::not_found("certificate", id))?;
        let certificate = ManagedCertificate::from_view(&view)?;
        let version = match view.row.version {
            Some(version) => tables::Managed::of(&self.inner.store).version(version).await?,
            None => None,
        };
        let version = version.ok_or(ExportError::NotExportable("the certificate was never issued"))?;
        let chain = split(&version.chain);
        let chain_pem: String = chain.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect();
        let (bytes, media_type, what) = match format {
            ExportFormat::Chain => {
                (Zeroizing::new(chain_pem.into_bytes()), "application/pem-certificate-chain", "chain")
            }
            ExportFormat::ChainAndKey => {
                let key = self.private_key(&certificate, &version, KeyUse::Export).await?;
                let mut text = Zeroizing::new(chain_pem.into_bytes());
                text.extend_from_slice(key.to_pkcs8_pem().as_bytes());
                (text, "application/x-pem-file", "key")
            }
            ExportFormat::Pkcs12 { password } => {
                if password.len() < PASSWORD_BYTES_MIN {
                    return Err(ExportError::NotExportable("a PKCS#12 password must have at least 8 bytes"));
                }
                let key = self.private_key(&certificate, &version, KeyUse::Export).await?;
                let file = pkcs12(&chain, &key, &version.fingerprint, &certificate.name, password);
                let file = file
                    .map_err(|_| ExportError::NotExportable("cannot create a PKCS#12 file with this key"))?;
                (file, "application/x-pkcs12", "pkcs12")
            }
        };
        self.note_export(&certificate, &version, what, actor).await?;
        Ok(Exported {
            certificate: id,
            name: certificate.name,
            fingerprint: Fingerprint::from_bytes(version.fingerprint),
            bytes,
            media_type,
        })
    }

    /// Returns the private key of a version for this use, if this server stores it.
    pub(super) async fn private_key(
        &self,
        certificate: &ManagedCertificate,
        version: &ManagedVersion,
        uses: KeyUse,
    ) -> Result<PrivateKey, ExportError> {
        let reason = match certificate.key_location {
            KeyLocation::Agent { .. } => "the key is on the agent's host and cannot be exported",
            KeyLocation::KeyService => "the key is in the key service and cannot be exported",
            KeyLocation::Server => {
                "Bulla does not have the key: the certificate was discovered, or issued for an external key"
            }
        };
        let id = version.key.ok_or(ExportError::NotExportable(reason))?;
        self.check_release(certificate, version, uses).await?;
        let row = store::Keys::of(&self.inner.store).get(id).await?.ok_or(KeyStoreError::Unknown(id))?;
        if row.blocked_at_us.is_some() {
            return Err(KeyStoreError::Blocked { id, reason: row.blocked_reason.unwrap_or_default() }.into());
        }
        let sealed = row
            .sealed
            .ok_or(ExportError::NotExportable("the key is in the key service and cannot be exported"))?;
        let context = Context { table: SEALED_KEYS.table, row: id.as_bytes(), column: SEALED_KEYS.column };
        let opened = self.inner.keystore.keyring().open_sealed(&context, &sealed);
        let der = opened.map_err(|error| KeyStoreError::Sealed { id, error })?;
        let key = PrivateKey::from_pkcs8_der(&der).map_err(KeyStoreError::from)?;
        if *key.spki_hash().as_bytes() == version.spki_sha256 {
            Ok(key)
        } else {
            Err(KeyStoreError::Swapped(id).into())
        }
    }

    async fn note_export(
        &self,
        certificate: &ManagedCertificate,
        version: &ManagedVersion,
        what: &'static str,
        actor: &str,
    ) -> Result<(), DataError> {
        let mut ledger = Ledger::new(self.now_us(), actor);
        let fingerprint = Fingerprint::from_bytes(version.fingerprint).to_string();
        ledger.audit_resource(
            format!("certificate/{}", certificate.id),
            "certificate.export",
            json!({ "what": what, "fingerprint": fingerprint }),
        );
        let work = transaction(move |tx| async move { ledger.write(tx).await.map(drop) }.boxed());
        Ok(self.inner.store.write("export", work).await?)
    }
}

fn pkcs12(
    chain: &[Vec<u8>],
    key: &PrivateKey,
    fingerprint: &[u8; 32],
    name: &str,
    password: &str,
) -> Result<Zeroizing<Vec<u8>>, p12_keystore::error::Error> {
    let certificates: Result<Vec<_>, _> = chain.iter().map(|der| Certificate::from_der(der)).collect();
    let entry = PrivateKeyChain::new(
        fingerprint.to_vec(),
        p12_keystore::PrivateKey::from_der(&key.to_pkcs8_der())?,
        certificates?,
    );
    let mut store = KeyStore::new();
    store.add_entry(name, KeyStoreEntry::PrivateKeyChain(entry));
    Ok(Zeroizing::new(store.writer(password).write()?))
}
