//! Ids of master keys.

use std::fmt;

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;

/// Bytes of a master key.
pub(crate) const KEY: usize = 32;

/// Bytes of a master key id.
pub(crate) const MASTER_KEY_ID: usize = 8;

/// Id of a master key. It is derived from the key but reveals nothing about it. A wrong key file is therefore detected before any
/// value is opened.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct MasterKeyId(pub(crate) [u8; MASTER_KEY_ID]);

impl MasterKeyId {
    /// Creates an id from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; MASTER_KEY_ID]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the id, as in sealed values.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; MASTER_KEY_ID] {
        &self.0
    }
}

impl fmt::Display for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_write(&self.0, f)
    }
}

impl fmt::Debug for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKeyId({self})")
    }
}

/// Computes the id of a master key.
pub(crate) fn id_of(secret: &[u8; KEY]) -> MasterKeyId {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, b"bulla master key id 1");
    let mut id = [0; MASTER_KEY_ID];
    id.copy_from_slice(&tag.as_ref()[..MASTER_KEY_ID]);
    MasterKeyId(id)
}
