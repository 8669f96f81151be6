//! One record.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use x509::{SpkiHash, merkle};

use crate::Key;
use crate::tenant::Tenant;

/// Bytes of what is signed that a draft keeps as they are; of longer inputs it keeps the hash.
const INLINE_MAX: usize = 64;

/// What was signed: a digest is short, a message of Ed25519 may be long. The hash of short ones is made off the path.
pub(super) enum Input {
    Short([u8; INLINE_MAX], u8),
    Long(merkle::Hash),
}

impl Input {
    pub(super) fn of(octets: &[u8]) -> Self {
        let mut short = [0; INLINE_MAX];
        match short.get_mut(..octets.len()) {
            Some(room) => {
                room.copy_from_slice(octets);
                Self::Short(short, octets.len() as u8)
            }
            None => Self::Long(merkle::sha256(octets)),
        }
    }

    fn hash(&self) -> merkle::Hash {
        match self {
            Self::Short(octets, length) => merkle::sha256(&octets[..usize::from(*length)]),
            Self::Long(hash) => *hash,
        }
    }
}

/// A signature that was made, before it is written as a [`SignatureRecord`].
pub(super) struct UnwrittenRecord {
    pub(super) at: SystemTime,
    pub(super) tenant: Arc<Tenant>,
    pub(super) client: Option<SpkiHash>,
    pub(super) key: Arc<Key>,
    pub(super) operation: &'static str,
    pub(super) input: Input,
}

/// A signature that was made, as it is written: a line of JSON, which is a leaf of its segment's tree.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SignatureRecord {
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// For which tenant.
    pub tenant: String,
    /// How often the tenants' rules had been changed since the service started.
    pub rules: u64,
    /// SHA-256 of the public key (SubjectPublicKeyInfo) of the client's certificate; `None`: through a Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// SHA-256 of the signing key's public half (SubjectPublicKeyInfo).
    pub key: String,
    /// The policy that the key is sealed to, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The operation, as in metrics: `pss-sha256`.
    pub operation: String,
    /// SHA-256 of what was signed: of a digest, for Ed25519 of the message.
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
