//! Private keys that are encrypted to key policies.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A private key that is encrypted to a key policy.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = SealedKey))]
pub struct KeyView {
    /// SHA-256 of the SubjectPublicKeyInfo, which identifies the key.
    pub spki_sha256: String,
    /// Display name of the key; several keys may have the same name.
    #[cfg_attr(feature = "schemas", schema(example = "www"))]
    pub name: String,
    /// Key type.
    #[cfg_attr(feature = "schemas", schema(example = "p256"))]
    pub kind: String,
    /// Identifier of the policy to which the key is encrypted.
    pub policy: Uuid,
    /// Name of the policy.
    #[cfg_attr(feature = "schemas", schema(example = "eu"))]
    pub policy_name: String,
    /// Generation of the policy's key pair to which the key is encrypted.
    pub generation: u32,
    /// Actor that uploaded the key.
    pub created_by: String,
    /// Time of the first upload, RFC 3339.
    pub created_at: String,
    /// Time of the last upload, RFC 3339.
    pub updated_at: String,
}

/// A sealed private key to upload.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = SealedKeyBody))]
pub struct KeyBody {
    /// Display name; several keys may have the same name.
    #[cfg_attr(feature = "schemas", schema(example = "www", min_length = 1, max_length = 128))]
    pub name: String,
    /// SubjectPublicKeyInfo of the key, DER, base64.
    pub spki: String,
    /// Name or identifier of the policy to which the key is encrypted.
    #[cfg_attr(feature = "schemas", schema(example = "eu"))]
    pub policy: String,
    /// Generation of the policy's newest key pair.
    pub generation: u32,
    /// The private key (PKCS#8), encrypted to the public key of the pair: one byte with the value 1, then HPKE with X-Wing,
    /// HKDF-SHA256 and AES-256-GCM; base64.
    pub sealed: String,
}
