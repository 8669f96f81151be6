//! Private keys. The only crate that ever holds private key bytes; it knows no network and no database.
//!
//! - [`Signer`]: the one way to use a private key, wherever it lives.
//! - [`PrivateKey`]: a key in this process; PKCS#8 in and out, PKCS#1 and SEC 1 in.
//! - [`Keyring`]: secrets sealed at rest under master keys that can be changed while all runs.
//! - `pkcs11` (a feature): keys in security modules.

pub(crate) mod encoding;
pub(crate) mod encrypted;
pub mod key_type;
pub mod keyring;
mod master;
#[cfg(feature = "pkcs11")]
pub mod pkcs11;
pub mod provider;
pub mod signer;
pub mod software;

pub use key_type::{KeyType, UnknownKeyType};
pub use keyring::{
    Argon2Cost, Context, Keyring, KeyringConfig, KeyringError, MasterKey, MasterKeyId, OpenError,
    PassphraseSource,
};
pub use provider::{Held, KeyProvider};
pub use signer::{Deadline, KeyRef, SignError, Signer};
pub use software::{DecryptError, KeyError, OaepHash, PrivateKey, constant_time_eq};
