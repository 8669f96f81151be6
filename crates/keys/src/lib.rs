//! Private keys. The only crate that ever holds private key bytes; it knows no network and no database.

pub mod key_type;
pub mod signer;
pub mod software;
pub mod keyring;
pub mod encoding;
