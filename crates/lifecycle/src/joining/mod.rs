//! How a program elsewhere becomes one of ours: a token used once, a key made there, a certificate from here. Agents join
//! so, and the nodes of the key service.

mod authority;
mod certify;
mod token;

use store::{IdentityKind, IdentitySettings, NewIdentity, Store, StoreError};
use uuid::Uuid;
use x509::csr::CertificateRequest;
use x509::{Certificate, KeyAlgorithm, SpkiHash};

pub use authority::{AGENT_PROFILE, CertifyByAuthority, NODE_PROFILE};
pub use certify::{Certified, Certify, CertifyError, IdentityKey};
pub(crate) use token::{TOKENS_KEPT_US, Token, check_seconds, hash_of};

/// Octets of the name of an agent, a group, a target, a site or a node.
pub const NAME_MAX: usize = 128;

/// A public key that somebody has proved to hold.
pub(crate) struct ProvedKey {
    /// Its SubjectPublicKeyInfo, DER.
    pub(crate) spki: Vec<u8>,
    /// SHA-256 of that.
    pub(crate) sha256: [u8; 32],
    /// Its kind.
    pub(crate) algorithm: KeyAlgorithm,
}

impl ProvedKey {
    /// The key that has signed this request (PEM or DER).
    pub(crate) fn of_csr(csr: &str) -> Result<Self, String> {
        let csr = CertificateRequest::from_pem_or_der(csr.as_bytes()).map_err(|error| error.to_string())?;
        csr.verify().map_err(|error| error.to_string())?;
        let key = csr.public_key;
        Ok(Self { spki: key.spki.to_vec(), sha256: *key.spki_sha256.as_bytes(), algorithm: key.algorithm })
    }

    /// By which a certificate for it is asked for once, however often its holder asks.
    pub(crate) fn idempotency_key(&self, kind: &str, id: Uuid) -> String {
        format!("{kind}:{id}:enroll:{}", SpkiHash::from_bytes(self.sha256))
    }
}

/// SHA-256 of the SubjectPublicKeyInfo of a certificate that a connection shows; `None` when it cannot be read.
pub(crate) fn shown_key(certificate_der: &[u8]) -> Option<[u8; 32]> {
    Some(*Certificate::parse(certificate_der).ok()?.public_key.spki_sha256.as_bytes())
}

/// The identity of one who joined, known by the URI in its certificate. `kind` is its role too.
pub(crate) fn identity_of(kind: &str, id: Uuid, uri: &str, key: &IdentityKey, at_us: i64) -> NewIdentity {
    NewIdentity {
        id,
        kind: IdentityKind::Certificate,
        key_hash: key(uri),
        label: format!("uri:{uri}"),
        settings: IdentitySettings {
            name: format!("{kind}-{id}"),
            email: None,
            grants: format!(r#"[{{"role":"{kind}","scope":"any"}}]"#),
            enabled: true,
            expires_at_us: None,
        },
        created_at_us: at_us,
        created_by: format!("{kind}:{id}"),
    }
}

/// The revision of the identity of one who joined, to remove it with.
pub(crate) async fn identity_revision(store: &Store, id: Uuid) -> Result<Option<i64>, StoreError> {
    Ok(store.identity(IdentityKind::Certificate, id).await?.map(|known| known.revision))
}

/// Another name than the one that is taken. The last digits of a UUIDv7 are random.
pub(crate) fn other_name(name: &str, id: Uuid) -> String {
    let digits = id.simple().to_string();
    format!("{name}-{}", &digits[digits.len() - 8..])
}

/// Whether something may be called so.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let fits = !name.is_empty() && name.len() <= NAME_MAX && name.trim() == name;
    if fits && !name.chars().any(|letter| letter.is_control() || letter == '/') {
        return Ok(());
    }
    Err(format!("the name {name:?} has to have 1 to {NAME_MAX} octets, no slash, and no space at its ends"))
}
