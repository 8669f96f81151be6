//! Who a node is, and where: said by the control plane, believed by all others.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keys::sealed::KemPublic;
use keys::{Deadline, KeyType, SignError, Signer};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use x509::{PublicKey, SpkiHash, verify_signature};

use super::Attributes;

/// Bytes of a statement's JSON: the public key has 1.6 kB, attributes 3.3 kB at most.
pub const PAYLOAD_MAX: usize = 16 * 1_024;

/// Stands before what is signed, so that the key's signatures over anything else are none of these.
const DOMAIN: &[u8] = b"bulla key node statement v1\n";

/// Why there is no statement, or it is not to be believed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StatementError {
    /// Of another control plane, or changed.
    #[error("the statement's signature is not this control plane's")]
    Forged,
    /// What signs statements is another key.
    #[error("statements are signed by an Ed25519 key, and this key is of another type")]
    NotEd25519,
    /// The signature is valid, but the content is malformed.
    #[error("the statement cannot be read; update the program: {0}")]
    Malformed(String),
    /// The statement is longer than any valid one.
    #[error("the statement is longer than {PAYLOAD_MAX} bytes")]
    TooLong,
    /// The key did not sign.
    #[error("the statement could not be signed: {0}")]
    Sign(#[from] SignError),
}

/// Who a node is. Lives for an hour: what was once true of a node and is no longer is soon believed by nobody.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Statement {
    /// Which node.
    pub node: Uuid,
    /// The display name.
    pub name: String,
    /// The name of its site.
    pub site: String,
    /// Address of the node for other nodes: host and port.
    pub address: String,
    /// What is sealed to it is sealed to this.
    pub kem: KemPublic,
    /// SHA-256 of the SubjectPublicKeyInfo of its TLS certificate.
    pub tls_spki_sha256: SpkiHash,
    /// Its site's attributes and its own.
    pub attributes: Attributes,
    /// When this was said, in seconds since 1970.
    pub issued_at_s: i64,
    /// Up to when it holds, in seconds since 1970.
    pub not_after_s: i64,
}

impl Statement {
    /// Whether it holds at `now_s` (seconds since 1970). One from the future does: a clock may be slow.
    #[must_use]
    pub fn holds_at(&self, now_s: i64) -> bool {
        now_s < self.not_after_s
    }

    /// Signs it.
    ///
    /// # Errors
    /// [`StatementError::NotEd25519`], [`StatementError::TooLong`], [`StatementError::Sign`]; never later than shortly
    /// after `deadline`.
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
        let signature = signer.sign(&signed_octets(&payload), deadline).await?;
        Ok(SignedStatement { payload, signature: STANDARD.encode(signature) })
    }
}

/// A statement as it travels. What is signed is the payload's bytes: nobody has to write JSON the same way twice.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct SignedStatement {
    /// The statement, JSON.
    pub payload: String,
    /// Ed25519 (RFC 8032), in base64.
    pub signature: String,
}

impl SignedStatement {
    /// What is stated, if the Ed25519 key of this SubjectPublicKeyInfo (DER) signed it. Whether it still holds is
    /// [`Statement::holds_at`].
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
        verify_signature(&key, &KeyType::Ed25519.algorithm(), &signed_octets(&self.payload), &signature)
            .map_err(|_| StatementError::Forged)?;
        serde_json::from_str(&self.payload).map_err(|error| StatementError::Malformed(error.to_string()))
    }

    /// When it ends, in seconds since 1970, as it says itself: for the control plane, which made it. `None` where that cannot be
    /// read.
    #[must_use]
    pub fn end_s(&self) -> Option<i64> {
        #[derive(Deserialize)]
        struct Life {
            not_after_s: i64,
        }
        Some(serde_json::from_str::<Life>(&self.payload).ok()?.not_after_s)
    }
}

fn signed_octets(payload: &str) -> Vec<u8> {
    [DOMAIN, payload.as_bytes()].concat()
}
