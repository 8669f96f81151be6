//! Why a signer does not sign.

use keys::SignError;
use store::StoreError;

use crate::issue::IssueError;
use crate::keystore::KeyStoreError;
use crate::profile::ProfileError;
use crate::tree::CaError;

/// Why a signer does not sign. Nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The document is not the one that its purpose leads to.
    #[error("the document differs from what the signer makes of the request: {0}")]
    Differs(String),
    /// The profile, or the policy that it names, forbids it.
    #[error(transparent)]
    Policy(#[from] IssueError),
    /// The stored profile is not the one that the signer's configuration pins.
    #[error("profile {name:?} is not signed for: {reason}")]
    Profile {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The profile needs an approval.
    #[error("profile {profile:?} needs an approval: {reason}")]
    Consent {
        /// The profile's name.
        profile: String,
        /// The missing part.
        reason: String,
    },
    /// The CRL takes back what an earlier one said.
    #[error("the CRL is refused: {0}")]
    Crl(String),
    /// The signer's folder cannot be read or written.
    #[error("the newest CRL cannot be kept in the signer's folder: {0}")]
    NotKept(String),
    /// The CA certificate or request is not one the signer signs.
    #[error("the CA certificate is refused: {0}")]
    CaCertificate(String),
    /// The CA cannot be read.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The key cannot be opened.
    #[error(transparent)]
    Key(#[from] KeyStoreError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Refusal {
    /// Whether the same order may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Store(_)
                | Self::NotKept(_)
                | Self::Ca(CaError::Store(_))
                | Self::Policy(IssueError::Store(_) | IssueError::Profile(ProfileError::Store(_)))
                | Self::Key(KeyStoreError::Store(_) | KeyStoreError::Provider { .. })
        )
    }
}

impl From<Refusal> for SignError {
    fn from(refusal: Refusal) -> Self {
        match refusal.is_transient() {
            true => Self::Unavailable(format!("the signer: {refusal}")),
            false => Self::Failed(format!("the signer refuses: {refusal}")),
        }
    }
}

impl From<ProfileError> for Refusal {
    fn from(error: ProfileError) -> Self {
        Self::Policy(error.into())
    }
}
