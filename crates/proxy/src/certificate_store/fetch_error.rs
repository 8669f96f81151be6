//! Errors of fetching a leaf certificate from the store.

use super::new_name_limit::TooManyNames;
use crate::mint::MintError;

/// Reason why no leaf certificate is available for a host.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// Minting failed, for example because the CA did not sign.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// The client has requested too many new names.
    #[error(transparent)]
    TooManyNames(#[from] TooManyNames),
    /// Another proxy took too long to mint the leaf, and [`OutagePolicy::Refuse`](super::OutagePolicy::Refuse) forbids minting here.
    #[error("timeout: another proxy did not mint the certificate in time")]
    Awaited,
    /// The second level is unavailable, and [`OutagePolicy::Refuse`](super::OutagePolicy::Refuse) forbids minting until it is available
    /// again.
    #[error("the certificate store is unavailable, and leaf certificates are not minted without it")]
    StoreUnavailable,
}
