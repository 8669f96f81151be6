//! WebAuthn Level 3 as pure functions: registrations and assertions of security keys and passkeys.
//!
//! - [`registration`]: a new credential, from an attestation object.
//! - [`assertion`]: a signature of a registered credential.
//! - [`approval`]: signatures over the SHA-256 of a plan, which can be verified later without a server.
//!
//! Attestation statements are skipped: Bulla asks for none, and trusts a key because its user registered it. Algorithms: ES256,
//! EdDSA (Ed25519) and RS256.

pub mod approval;
pub mod assertion;
mod authenticator_data;
mod base64url;
mod cbor;
mod client_data;
mod error;
mod public_key;
pub mod registration;

pub use assertion::Assertion;
pub use base64url::Base64Url;
pub use client_data::Expected;
pub use error::Error;
pub use public_key::{Algorithm, PublicKey};
pub use registration::{Credential, Registration};

/// Minimum and maximum length of a credential id, in bytes. WebAuthn requires at least 16 and at most 1023.
pub const CREDENTIAL_ID_BYTES: std::ops::RangeInclusive<usize> = 16..=1023;

/// Maximum length of the client data, in bytes.
pub const CLIENT_DATA_MAX: usize = 4 << 10;

/// Maximum length of an attestation object, in bytes. Statements with certificate chains have a few kilobytes.
pub const ATTESTATION_OBJECT_MAX: usize = 16 << 10;

/// Maximum length of authenticator data, in bytes.
pub const AUTHENTICATOR_DATA_MAX: usize = 4 << 10;

/// Maximum length of a signature, in bytes: RSA with 8192 bits.
pub const SIGNATURE_MAX: usize = 1 << 10;

/// Maximum length of a user handle, in bytes.
pub const USER_HANDLE_MAX: usize = 64;
