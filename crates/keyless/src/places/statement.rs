//! Statements about the identity and location of a node, signed by the control plane.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keys::sealed::KemPublic;
use keys::{Deadline, KeyType, SignError, Signer};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::{PublicKey, SpkiHash, verify_signature};

use super::Attributes;

/// Maximum bytes of a statement's JSON: the public key has 1.6 kB, attributes at most 3.3 kB.
pub const PAYLOAD_MAX: usize = 16 * 1_024;

/// Prefix of the signed data, so that other signatures of the key cannot be used as statements.
const DOMAIN: &[u8] = b"bulla key node statement v1\n";

/// Reason why a statement cannot be signed or verified.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StatementError {
    /// The signature is invalid: another control plane signed the statement, or its content was changed.
    #[error("the statement is not signed by this control plane")]
    Forged,
    /// The signing key is not an Ed25519 key.
    #[error("statements require an Ed25519 key, but this key has another type")]
    NotEd25519,
    /// The signature is valid, but the content is malformed.
    #[error("cannot parse the statement; if the control plane is newer, update this node: {0}")]
    Malformed(String),
    /// The statement is longer than any valid one.
    #[error("the statement is longer than {PAYLOAD_MAX} bytes")]
    TooLong,
    /// The key failed to sign.
    #[error("cannot sign the statement: {0}")]
    Sign(#[from] SignError),
}

/// Identity of a node. It is valid for about an hour, so that outdated information soon expires.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Statement {
    /// Permanent ID of the node.
    pub node: Uuid,
    /// Display name of the node.
    pub name: String,
    /// Name of the node's site.
    pub site: String,
    /// Address of the node for other nodes: host and port.
    pub address: String,
    /// Public key for data that is sealed to the node.
    pub kem: KemPublic,
    /// SHA-256 of the SubjectPublicKeyInfo in the node's TLS certificate.
    pub tls_spki_sha256: SpkiHash,
    /// Attributes of the node and its site.
    pub attributes: Attributes,
    /// Time of issue, in seconds since 1970-01-01 UTC.
    pub issued_at_s: i64,
    /// End of validity, in seconds since 1970-01-01 UTC.
    pub not_after_s: i64,
}

impl Statement {
    /// Returns whether the statement is valid at `now_s` (seconds since 1970-01-01 UTC). A statement from the future is valid: the
    /// local clock may be slow.
    #[must_use]
    pub fn holds_at(&self, now_s: i64) -> bool {
        now_s < self.not_after_s
    }

    /// Signs the statement.
    ///
    /// # Errors
    /// [`StatementError::NotEd25519`], [`StatementError::TooLong`], [`StatementError::Sign`]. Signing fails at the latest
    /// shortly after `deadline`.
    #[crate::boxed]
    pub async fn sign(
        &self,
        signer: &dyn Signer,
        deadline: Deadline,
    ) -> Result<SignedStatement, StatementError> {
        if signer.key_type() != KeyType::Ed25519 {
            return Err(StatementError::NotEd25519);
        }
        let payload =
            serde_json::to_string(self).map_err(|error| StatementError::Malformed(error.to_string()))?;
        if payload.len() > PAYLOAD_MAX {
            return Err(StatementError::TooLong);
        }
        let signature = signer.sign(&signed_bytes(&payload), deadline).await?;
        Ok(SignedStatement { payload, signature: STANDARD.encode(signature) })
    }
}

/// A statement with its signature. The signature covers the bytes of the payload, so no canonical JSON is needed.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct SignedStatement {
    /// The statement as JSON.
    pub payload: String,
    /// Ed25519 signature (RFC 8032) in base64.
    pub signature: String,
}

impl SignedStatement {
    /// Verifies the signature by the Ed25519 key with this SubjectPublicKeyInfo (DER), and returns the statement. The caller checks
    /// the validity with [`Statement::holds_at`].
    ///
    /// # Errors
    /// [`StatementError`]
    pub fn verify(&self, spki: &[u8]) -> Result<Statement, StatementError> {
        if self.payload.len() > PAYLOAD_MAX {
            return Err(StatementError::TooLong);
        }
        let key = PublicKey::parse(spki).ok().filter(|key| KeyType::of(key) == Some(KeyType::Ed25519));
        let key = key.ok_or(StatementError::NotEd25519)?;
        let signature = STANDARD.decode(&self.signature).map_err(|_| StatementError::Forged)?;
        verify_signature(&key, &KeyType::Ed25519.algorithm(), &signed_bytes(&self.payload), &signature)
            .map_err(|_| StatementError::Forged)?;
        serde_json::from_str(&self.payload).map_err(|error| StatementError::Malformed(error.to_string()))
    }

    /// Returns the end of validity in seconds since 1970-01-01 UTC, without verification: for the control plane, which issued the
    /// statement. `None` if the payload cannot be parsed.
    #[must_use]
    pub fn end_s(&self) -> Option<i64> {
        #[derive(Deserialize)]
        struct Life {
            not_after_s: i64,
        }
        Some(serde_json::from_str::<Life>(&self.payload).ok()?.not_after_s)
    }
}

fn signed_bytes(payload: &str) -> Vec<u8> {
    [DOMAIN, payload.as_bytes()].concat()
}
