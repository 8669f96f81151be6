//! Private keys. This is the only crate that holds private key bytes. It uses no network and no database.
//!
//! - [`Signer`]: the interface to every private key, local or remote.
//! - [`PrivateKey`]: a key in this process. Reads PKCS#8, PKCS#1 and SEC 1; writes PKCS#8.
//! - [`Keyring`]: secrets encrypted at rest under master keys that can be changed at runtime.
//! - [`Scheme`] and [`sign_slice`]: signatures over precomputed digests, in batches where that is cheaper.
//! - [`verify`]: checks that a remote key made a signature.
//! - [`sealed`]: keys that only certain nodes can open, wherever they are stored.
//! - [`TicketKeys`]: encryption of values that are valid for hours only.
//! - [`age`]: files encrypted to a passphrase or to keys.
//! - [`Secret`]: a text that must not be shown. [`SecretJson`]: JSON with secrets, kept byte for byte.
//! - [`Tpm`]: a master key sealed by a TPM 2.0.
//! - [`pkcs11`]: keys in hardware security modules.

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
pub mod secret_json;
pub mod signer;
pub mod software;
mod tickets;
mod tpm;
pub mod verify;

pub use error::{DecryptError, KeyError, KeyFileError, SignError};
pub use key_type::KeyType;
pub use keyring::{
    Argon2Cost, Context, Keyring, KeyringConfig, KeyringError, MasterKeyId, MasterKeySource,
    MissingFileAction, OpenError, PassphraseSource, UnwrappedKey, Wrapper,
};
pub use lanes::{
    BATCH, BATCH_KINDS, BATCH_MIN, Batches, EC_BATCH_MIN, SignJob, Slice, are_made as batches_are_made,
    is_batched, prepare_tables, sign_slice,
};
pub use provider::{KeyProvider, ProvidedKey};
pub use rsa_stock::RsaStock;
pub use scheme::{Hash, Misfit, Scheme};
pub use secret::Secret;
pub use secret_json::SecretJson;
pub use signer::{CallLimit, Deadline, Destination, KeyRef, Signer};
pub use software::{OaepHash, PrivateKey, constant_time_eq};
pub use tickets::{OVERHEAD as TICKET_OVERHEAD, TicketError, TicketKeys};
pub use tpm::{Pcrs, Tpm, TpmAddress, TpmError};
