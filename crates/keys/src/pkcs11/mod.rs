//! Keys in security modules, through PKCS#11.
//!
//! A [`Token`] keeps a few sessions open and lends them to one call each; calls run on threads of their own, as a module
//! may take long. A lost connection is noticed by the call that meets it, which logs in again and tries once more.

mod key;
mod master;
mod objects;
mod provider;
mod token;

use std::path::PathBuf;

pub use key::Pkcs11Key;
pub use master::WrappedMaster;
pub use token::{Token, TokenConfig, finish};

use crate::{KeyType, SignError};

/// An error of a security module.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenError {
    /// The library cannot be loaded.
    #[error("the PKCS#11 module {module} cannot be used: {reason}")]
    Module {
        /// Its path.
        module: PathBuf,
        /// The error of the system or the module.
        reason: String,
    },
    /// No token of this label.
    #[error("there is no token {label:?}; there are: {there}")]
    NoToken {
        /// The requested label.
        label: String,
        /// The existing labels.
        there: String,
    },
    /// The PIN is wrong, locked or expired.
    #[error("the token {label:?} does not accept the PIN: {reason}; after some wrong ones it locks")]
    Pin {
        /// The token.
        label: String,
        /// The message of the other side.
        reason: String,
    },
    /// The key does not exist.
    #[error("there is no private key {0} on the token")]
    NoKey(String),
    /// The name does not tell which key.
    #[error("there are several private keys {0} on the token: name one by its id")]
    SeveralKeys(String),
    /// A key that we cannot use, or the token cannot make.
    #[error("the key {0}")]
    Unusable(String),
    /// The token makes no keys of this kind.
    #[error("keys of kind {0} are not made on PKCS#11 tokens")]
    Kind(KeyType),
    /// A call failed.
    #[error("the token: {what}: {reason}")]
    Call {
        /// The requested operation.
        what: &'static str,
        /// The message of the other side.
        reason: String,
    },
    /// Not in time, or no session was free.
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
