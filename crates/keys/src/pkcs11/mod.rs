//! Keys in hardware security modules, through PKCS#11.
//!
//! A [`Token`] has a pool of open sessions; each call uses one. Calls run on threads of their own, because a module may take long.
//! A call that finds its connection lost logs in again and retries once.

mod key;
mod master;
mod objects;
mod provider;
mod token;

use std::path::PathBuf;

pub use key::Pkcs11Key;
pub use master::WrappedMasterKey;
pub use token::{Token, TokenConfig, finish};

use crate::{KeyType, SignError};

/// An error of a security module.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenError {
    /// The library cannot be loaded.
    #[error("the PKCS#11 module {module} cannot be used: {reason}")]
    Module {
        /// Path of the library.
        module: PathBuf,
        /// Reason, as reported by the operating system or the module.
        reason: String,
    },
    /// No token has this label.
    #[error("no token has the label {label:?}; available tokens: {available}")]
    NoToken {
        /// The requested label.
        label: String,
        /// Labels of the tokens that exist.
        available: String,
    },
    /// The PIN is wrong, locked or expired.
    #[error("the token {label:?} rejects the PIN: {reason}; the token locks after several wrong PINs")]
    Pin {
        /// Label of the token.
        label: String,
        /// The module's message.
        reason: String,
    },
    /// No key matches the search.
    #[error("no private key {0} found on the token")]
    NoKey(String),
    /// Several keys match the search.
    #[error("several private keys {0} found on the token: select one by its id")]
    SeveralKeys(String),
    /// The key has no public key on the token or an unsupported type, or the token cannot generate such a key.
    #[error("the key {0}")]
    Unusable(String),
    /// The token does not generate keys of this type.
    #[error("keys of type {0} cannot be generated on PKCS#11 tokens")]
    Kind(KeyType),
    /// A call of the module failed.
    #[error("token error ({what}): {reason}")]
    Call {
        /// The operation that failed.
        what: &'static str,
        /// The module's message.
        reason: String,
    },
    /// The deadline passed during the call, or while the call waited for a free session.
    #[error("the token did not answer in time")]
    Late,
}

impl From<TokenError> for SignError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Late => Self::Late,
            TokenError::Module { .. }
            | TokenError::NoToken { .. }
            | TokenError::Pin { .. }
            | TokenError::Call { .. } => Self::Unavailable(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}
