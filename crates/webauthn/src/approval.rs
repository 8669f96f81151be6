//! Signatures of approvers: assertions whose challenge contains the SHA-256 of the approved plan.
//!
//! A signature carries all that its verification needs, so that it can be verified years later, and without the server. Whether its
//! public key belonged to the approver is in the audit log: the registration of a key records the SHA-256 of its public key.

use serde::{Deserialize, Serialize};

use crate::assertion::Assertion;
use crate::base64url::Base64Url;
use crate::client_data::{Expected, sha256};
use crate::error::Error;

/// Prefix that separates challenges of approvals from challenges of other ceremonies and versions.
const DOMAIN: &[u8] = b"Bulla approval, version 1\0";

/// Length of the random nonce in a statement, in bytes.
pub const NONCE_BYTES: usize = 32;

/// Statement that an approver signs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Statement<'a> {
    /// Identifier of the approval, pending change or enrolment: the bytes of its UUID.
    pub subject: [u8; 16],
    /// SHA-256 of the plan that the approver signs.
    pub plan_sha256: [u8; 32],
    /// The approver, such as `user:ann`.
    pub actor: &'a str,
    /// Random bytes, so that a signature can be used once.
    pub nonce: [u8; NONCE_BYTES],
}

impl Statement<'_> {
    /// Returns the challenge of the ceremony: SHA-256 over domain, subject, plan, SHA-256 of the actor, and nonce.
    #[must_use]
    pub fn challenge(&self) -> [u8; 32] {
        let actor = sha256(self.actor.as_bytes());
        let parts: [&[u8]; 5] = [DOMAIN, &self.subject, &self.plan_sha256, &actor, &self.nonce];
        sha256(&parts.concat())
    }
}

/// The signature of an approver, as stored with the decision.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ApprovalSignature {
    /// The signing key's public key as `COSE_Key`.
    pub public_key: Base64Url,
    /// Relying party identifier: the host name of the server.
    pub rp_id: String,
    /// Origin of the page on which the approver signed.
    pub origin: String,
    /// The nonce of the challenge.
    pub nonce: Base64Url,
    /// Assertion of the security key over the challenge.
    #[serde(flatten)]
    pub assertion: Assertion,
}

impl ApprovalSignature {
    /// Verifies that this key signed the approval of this plan for this approver, and that its authenticator detected user presence.
    /// Returns whether the authenticator also verified the user by PIN or biometrics.
    ///
    /// # Errors
    /// [`Error`].
    pub fn verify(&self, subject: [u8; 16], plan_sha256: [u8; 32], actor: &str) -> Result<bool, Error> {
        let nonce = self.nonce.0.as_slice().try_into().map_err(|_| Error::Size)?;
        let challenge = Statement { subject, plan_sha256, actor, nonce }.challenge();
        let expected = Expected {
            challenge: &challenge,
            rp_id: &self.rp_id,
            origin: &self.origin,
            user_verification: false,
        };
        Ok(self.assertion.verify_signature(&expected, &self.public_key.0)?.user_verified)
    }

    /// Returns the SHA-256 of the public key, by which the audit log names it.
    #[must_use]
    pub fn key_sha256(&self) -> [u8; 32] {
        sha256(&self.public_key.0)
    }
}
