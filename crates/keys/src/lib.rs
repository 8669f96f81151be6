//! Private keys. The only crate that ever holds private key bytes; it knows no network and no database.
//!
//! - [`Signer`]: the one way to use a private key, wherever it lives.
//! - [`PrivateKey`]: a key in this process; PKCS#8 in and out, PKCS#1 and SEC 1 in.
//! - [`Keyring`]: secrets sealed at rest under master keys that can be changed while all runs.
//! - [`Scheme`] and [`sign_slice`]: signatures over what was hashed elsewhere, several at once where that is cheaper.
//! - [`verify`]: whether a key elsewhere really signed.
//! - [`sealed`]: keys that only certain nodes can open, wherever they lie.
//! - [`TicketKeys`]: what is sealed for hours only.
//! - [`age`]: files encrypted to a passphrase or to keys.
//! - [`Secret`]: a text that must not be seen.
//! - [`Tpm`]: a master key sealed by a TPM 2.0.
//! - [`pkcs11`]: keys in security modules.

pub mod age;
mod digest;
pub(crate) mod encoding;
pub(crate) mod encrypted;
mod error;
pub mod key_type;
pub mod keyring;
mod lanes;
mod master;
mod padding;
pub mod pkcs11;
pub mod provider;
mod random;
mod rsa_stock;
pub mod scheme;
pub mod sealed;
pub mod secret;
pub mod signer;
pub mod software;
mod tickets;
mod tpm;
pub mod verify;

pub use error::{DecryptError, KeyError, KeyFileError, SignError};
pub use key_type::KeyType;
pub use keyring::{
    Argon2Cost, Context, Keyring, KeyringConfig, KeyringError, MasterKey, MasterKeyId, MissingFile,
    OpenError, PassphraseSource, UnwrappedKey, Wrapper,
};
pub use lanes::{
    BATCH, BATCH_KINDS, BATCH_MIN, Batches, EC_BATCH_MIN, SignJob, Slice, are_made as batches_are_made,
    is_batched, prepare_tables, sign_slice,
};
pub use provider::{KeyProvider, ProvidedKey};
pub use rsa_stock::RsaStock;
pub use scheme::{Hash, Misfit, Scheme};
pub use secret::Secret;
pub use signer::{AtOnce, Deadline, Destination, KeyRef, Signer};
pub use software::{OaepHash, PrivateKey, constant_time_eq};
pub use tickets::{OVERHEAD as TICKET_OVERHEAD, TicketError, TicketKeys};
pub use tpm::{Pcrs, Tpm, TpmAddress, TpmError};
