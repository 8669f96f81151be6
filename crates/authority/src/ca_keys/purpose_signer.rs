//! A CA key restricted to one purpose.

use futures_util::future::BoxFuture;
use keys::{Deadline, KeyType, SignError, Signer};
use x509::SignatureAlgorithm;

use super::order::{CaKey, CaKeys, SigningOrder, SigningPurpose};

/// A CA key restricted to one purpose. Certificate builders use it as a signer. Each signature is a signing order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PurposeSigner<'a> {
    pub(crate) keys: &'a dyn CaKeys,
    pub(crate) key: CaKey<'a>,
    pub(crate) purpose: SigningPurpose<'a>,
}

impl PurposeSigner<'_> {
    fn key(&self) -> &dyn Signer {
        match self.key {
            CaKey::Of(ca) => &*ca.signer,
            CaKey::New(new) => &*new.signer,
        }
    }
}

impl Signer for PurposeSigner<'_> {
    fn key_type(&self) -> KeyType {
        self.key().key_type()
    }

    fn spki(&self) -> &[u8] {
        self.key().spki()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key().algorithm()
    }

    fn sign<'a>(
        &'a self,
        message: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        self.keys.sign(SigningOrder { key: self.key, purpose: self.purpose, tbs: message }, deadline)
    }
}
