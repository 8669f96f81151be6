//! Reasons for which a signer rejects an order.

use keys::SignError;
use store::StoreError;

use crate::issue::IssueError;
use crate::keystore::KeyStoreError;
use crate::profile::ProfileError;
use crate::tree::CaError;

/// Reason why a signer rejects an order. Nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The document differs from the one that the signer builds for the same purpose.
    #[error("the document differs from the one the signer computed from the request: {0}")]
    Differs(String),
    /// The profile or one of its policies forbids the document.
    #[error(transparent)]
    Policy(#[from] IssueError),
    /// The stored profile does not match the signer's configuration.
    #[error("the signer does not sign for profile {name:?}: {reason}")]
    Profile {
        /// Name of the profile.
        name: String,
        /// Description of the mismatch.
        reason: String,
    },
    /// The profile requires an approval.
    #[error("profile {profile:?} requires an approval: {reason}")]
    Consent {
        /// Name of the profile.
        profile: String,
        /// Missing part of the approval.
        reason: String,
    },
    /// The CRL undoes a revocation of an earlier one.
    #[error("the CRL is rejected: {0}")]
    Crl(String),
    /// The signer's directory cannot be read or written.
    #[error("cannot store the newest CRL in the signer's folder: {0}")]
    NotStored(String),
    /// The CA certificate or CSR is not allowed.
    #[error("the CA certificate is rejected: {0}")]
    CaCertificate(String),
    /// The CA cannot be read.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The key cannot be decrypted.
    #[error(transparent)]
    Key(#[from] KeyStoreError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Refusal {
    /// Returns whether the same order may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Store(_)
                | Self::NotStored(_)
                | Self::Ca(CaError::Store(_))
                | Self::Policy(IssueError::Store(_) | IssueError::Profile(ProfileError::Store(_)))
                | Self::Key(KeyStoreError::Store(_) | KeyStoreError::Provider { .. })
        )
    }
}

impl From<Refusal> for SignError {
    fn from(refusal: Refusal) -> Self {
        match refusal.is_transient() {
            true => Self::Unavailable(format!("signer unavailable: {refusal}")),
            false => Self::Failed(format!("rejected by the signer: {refusal}")),
        }
    }
}

impl From<ProfileError> for Refusal {
    fn from(error: ProfileError) -> Self {
        Self::Policy(error.into())
    }
}
