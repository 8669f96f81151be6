//! A leaf certificate and its key.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509::UnixTime;
use zeroize::Zeroizing;

use super::key::LeafKey;

/// A leaf certificate, ready for handshakes.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Chain and private key, in the form that rustls uses for handshakes.
    pub certified: Arc<CertifiedKey>,
    /// Key of the leaf. Other leaves may share it ([`LeafKeySharing`](super::LeafKeySharing)).
    pub key: LeafKey,
    /// Start of the validity.
    pub not_before: UnixTime,
    /// End of the validity.
    pub not_after: UnixTime,
}

/// Reason why a chain cannot be used as a leaf.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadLeaf {
    /// The chain is empty, or its first certificate cannot be parsed.
    #[error("cannot parse the certificate: {0}")]
    Unreadable(#[from] x509::ParseError),
    /// The certificate does not match the key.
    #[error("the certificate does not match the private key")]
    OtherKey,
}

impl Leaf {
    /// Creates a leaf from a stored chain, leaf certificate first.
    ///
    /// # Errors
    /// [`BadLeaf`]
    pub(crate) fn of_chain(chain: Vec<CertificateDer<'static>>, key: LeafKey) -> Result<Self, BadLeaf> {
        let own = x509::Certificate::parse(chain.first().map_or(&[], |der| der.as_ref()))?;
        if *own.public_key.spki != *key.spki() {
            return Err(BadLeaf::OtherKey);
        }
        let certified = Arc::new(CertifiedKey::new(chain, key.signing()));
        Ok(Self { certified, not_before: own.not_before, not_after: own.not_after, key })
    }

    /// Returns whether the leaf is valid at `now`.
    #[must_use]
    pub fn is_valid_at(&self, now: UnixTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// Returns the chain and the key as PEM, if the key may be sent to another process
    /// ([`KeysByOwner::for_consumers`](super::KeysByOwner::for_consumers)).
    #[must_use]
    pub fn to_pem(&self) -> Option<Zeroizing<String>> {
        let key = self.key.to_pkcs8_pem()?;
        let mut text = Zeroizing::new(self.chain_pem());
        text.push_str(&key);
        Some(text)
    }

    /// Returns the chain as PEM, leaf first.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        self.certified.cert.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect()
    }

    /// Returns the memory size in bytes, without the key, which leaves share.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        const ITSELF: usize = size_of::<Leaf>() + size_of::<CertifiedKey>() + 2 * size_of::<usize>();
        self.certified.cert.iter().fold(ITSELF, |sum, der| sum + size_of::<CertificateDer<'_>>() + der.len())
    }
}
