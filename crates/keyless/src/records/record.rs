//! The record of a signature.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use x509::{SpkiHash, merkle};

use crate::Key;
use crate::tenant::Tenant;

/// Maximum bytes of an input that a draft copies; longer inputs are hashed immediately.
const INLINE_MAX: usize = 64;

/// The signed input: a short digest, or an Ed25519 message that may be long. Short inputs are hashed later, off the path of
/// requests.
pub(super) enum Input {
    Short([u8; INLINE_MAX], u8),
    Long(merkle::Hash),
}

impl Input {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut short = [0; INLINE_MAX];
        match short.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Self::Short(short, bytes.len() as u8)
            }
            None => Self::Long(merkle::sha256(bytes)),
        }
    }

    fn hash(&self) -> merkle::Hash {
        match self {
            Self::Short(bytes, length) => merkle::sha256(&bytes[..usize::from(*length)]),
            Self::Long(hash) => *hash,
        }
    }
}

/// A signature that waits to be written to disk as a [`SignatureRecord`].
pub(super) struct UnwrittenRecord {
    pub(super) at: SystemTime,
    pub(super) tenant: Arc<Tenant>,
    pub(super) client: Option<SpkiHash>,
    pub(super) key: Arc<Key>,
    pub(super) operation: &'static str,
    pub(super) input: Input,
}

/// The record of a signature as written: a line of JSON, which is a leaf of its segment's tree.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SignatureRecord {
    /// Time of the signature, in microseconds since 1970-01-01 UTC.
    pub at_us: u64,
    /// Name of the tenant.
    pub tenant: String,
    /// Version of the tenants' rules: the number of changes since the service started.
    pub rules: u64,
    /// SHA-256 of the public key (SubjectPublicKeyInfo) in the client's certificate; `None` for a client on a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// SHA-256 of the signing key's public key (SubjectPublicKeyInfo).
    pub key: String,
    /// Policy that the key is sealed to, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Name of the operation as in metrics, for example `pss-sha256`.
    pub operation: String,
    /// SHA-256 of the signed input: of a digest, or of an Ed25519 message.
    pub input: String,
}

impl SignatureRecord {
    pub(super) fn of(made: &UnwrittenRecord) -> Self {
        let UnwrittenRecord { at, tenant, client, key, operation, input } = made;
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self {
            at_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
            tenant: tenant.name().to_owned(),
            rules: tenant.generation(),
            client: client.map(|client| client.to_string()),
            key: key.spki_sha256.to_string(),
            policy: key.policy.as_deref().map(str::to_owned),
            operation: (*operation).to_owned(),
            input: HEXLOWER.encode(&input.hash()),
        }
    }
}
