//! Why a client gets no leaf.

use super::new_name_limit::TooManyNames;
use crate::mint::MintError;

/// Why a client gets no leaf.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FetchError {
    /// Minting failed.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// The client has asked for too many names that nobody asked for before.
    #[error(transparent)]
    TooManyNames(#[from] TooManyNames),
    /// Another proxy has taken too long to mint it, and by [`WhenAway::Refuse`](super::WhenAway::Refuse) it is not minted here.
    #[error("another proxy has taken too long to mint the certificate")]
    Awaited,
    /// The second level is away, and by [`WhenAway::Refuse`](super::WhenAway::Refuse) nothing is minted meanwhile.
    #[error("the certificate store is unavailable, and leaves are not minted without it")]
    Away,
}
