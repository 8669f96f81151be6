//! Encryption of stored leaves: chain and key are sealed under the master key, each bound to its row.

use std::sync::Arc;

use flight::BoundedMap;
use keys::{Context, KeyError, Keyring, OpenError, PrivateKey};
use rustls::pki_types::CertificateDer;
use store::SealedColumn;
use x509::{Fingerprint, HostOrIp};

use crate::certificate_store::leaf_id::{KeyRecipients, LeafId};
use crate::mint::{BadLeaf, Leaf, LeafKey, LeafKeyKind, LeafKeySharing};
use crate::tables::{SEALED_LEAF_KEYS, SEALED_LEAVES, StoredLeaf};

/// Bytes of a certificate's length field.
const LENGTH: usize = 4;

/// Reason why a stored leaf cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredLeafError {
    /// The row of the leaf's key is missing.
    #[error("the key of the leaf certificate was deleted")]
    NoKey,
    /// The chain or the key cannot be decrypted.
    #[error(transparent)]
    Seal(#[from] OpenError),
    /// The decrypted bytes are not a complete chain.
    #[error("the stored value is truncated")]
    CutOff,
    /// The decrypted key is invalid.
    #[error("invalid key of a stored leaf certificate: {0}")]
    Key(#[from] KeyError),
    /// The chain is not a leaf certificate with this key.
    #[error(transparent)]
    Leaf(#[from] BadLeaf),
}

/// Encryption of stored chains and keys under the master key.
pub(super) struct LeafSealer(Arc<Keyring>);

impl LeafSealer {
    pub(super) fn new(ring: Arc<Keyring>) -> Self {
        Self(ring)
    }

    pub(super) fn seal_leaf(&self, id: &str, leaf: &Leaf) -> Vec<u8> {
        let mut chain = Vec::new();
        for der in &leaf.certified.cert {
            // A certificate is much smaller than 4 GiB.
            chain.extend_from_slice(&u32::try_from(der.len()).unwrap_or(u32::MAX).to_be_bytes());
            chain.extend_from_slice(der);
        }
        self.0.seal(&context(&SEALED_LEAVES, id), &chain)
    }

    pub(super) fn seal_key(&self, id: &str, key: &LeafKey) -> Vec<u8> {
        self.0.seal(&context(&SEALED_LEAF_KEYS, id), &key.private().to_pkcs8_der())
    }

    /// Decrypts the leaf `id`. Its key is decrypted once and cached in `open`.
    pub(super) fn open(
        &self,
        id: &str,
        stored: &StoredLeaf,
        open: &BoundedMap<String, LeafKey>,
    ) -> Result<Leaf, StoredLeafError> {
        let chain = chain_of(&self.0.open_sealed(&context(&SEALED_LEAVES, id), &stored.sealed)?)?;
        let key = match open.get(&stored.key_id) {
            Some(key) => key,
            None => {
                let key = self.open_key(stored)?;
                open.insert(stored.key_id.clone(), key.clone());
                key
            }
        };
        Ok(Leaf::of_chain(chain, key)?)
    }

    fn open_key(&self, stored: &StoredLeaf) -> Result<LeafKey, StoredLeafError> {
        let sealed = stored.key.as_ref().ok_or(StoredLeafError::NoKey)?;
        let der = self.0.open_sealed(&context(&SEALED_LEAF_KEYS, &stored.key_id), sealed)?;
        Ok(LeafKey::read(PrivateKey::from_pkcs8_der(&der)?)?)
    }
}

fn context<'a>(column: &'static SealedColumn, row: &'a str) -> Context<'a> {
    Context { table: column.table, row: row.as_bytes(), column: column.column }
}

fn chain_of(mut bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, StoredLeafError> {
    let mut chain = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() {
        let length = u32::from_be_bytes(*length) as usize;
        let (der, rest) = rest.split_at_checked(length).ok_or(StoredLeafError::CutOff)?;
        chain.push(CertificateDer::from(der.to_vec()));
        bytes = rest;
    }
    if chain.is_empty() || !bytes.is_empty() {
        return Err(StoredLeafError::CutOff);
    }
    Ok(chain)
}

/// Returns the row ID of a leaf: SHA-256 in hexadecimal over all parts of its identity, each with its length.
pub(super) fn digest_of(id: &LeafId) -> String {
    let mut text = Vec::with_capacity(192);
    let mut part = |bytes: &[u8]| {
        text.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        text.extend_from_slice(bytes);
    };
    part(b"bulla leaf 1");
    match &id.name {
        HostOrIp::Dns(host) => part(format!("dns:{}", host.as_str()).as_bytes()),
        HostOrIp::Ip(address) => part(format!("ip:{address}").as_bytes()),
    }
    part(id.authority.as_bytes());
    part(match id.kind {
        LeafKeyKind::P256 => b"p256",
        LeafKeyKind::Rsa2048 => b"rsa2048",
    });
    part(id.profile.as_bytes());
    // Leaves with shared keys keep the row IDs of earlier program versions, in which all leaves had shared keys.
    if id.keys == LeafKeySharing::ByHost {
        part(b"by-host");
    }
    if let Some(user) = &id.user {
        part(b"by-user");
        part(user.as_bytes());
    }
    if id.key_recipients != KeyRecipients::Nobody {
        part(b"handed-out");
    }
    part(id.mirrored.as_ref().map_or(&[], |mirrored| mirrored.as_bytes().as_slice()));
    Fingerprint::of(&text).to_string()
}

/// Returns the row ID of a leaf's key.
pub(super) fn key_id_of(key: &LeafKey) -> String {
    key.fingerprint().to_string()
}
