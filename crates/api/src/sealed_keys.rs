//! Private keys sealed to key policies.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A private key that is sealed to a policy.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = SealedKey))]
pub struct KeyView {
    /// SHA-256 of its SubjectPublicKeyInfo: its identity.
    pub spki_sha256: String,
    /// The display name.
    #[cfg_attr(feature = "schemas", schema(example = "www"))]
    pub name: String,
    /// Its kind.
    #[cfg_attr(feature = "schemas", schema(example = "p256"))]
    pub kind: String,
    /// Identity of the policy that it is sealed to.
    pub policy: Uuid,
    /// That policy's name.
    #[cfg_attr(feature = "schemas", schema(example = "eu"))]
    pub policy_name: String,
    /// To this pair of it.
    pub generation: u32,
    /// Actor that sealed it.
    pub created_by: String,
    /// Time of the first upload.
    pub created_at: String,
    /// When it was last sealed.
    pub updated_at: String,
}

/// A private key, sealed by anyone who has it.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = SealedKeyBody))]
pub struct KeyBody {
    /// What people call it; several may share a name.
    #[cfg_attr(feature = "schemas", schema(example = "www", min_length = 1, max_length = 128))]
    pub name: String,
    /// Its SubjectPublicKeyInfo, DER in base64.
    pub spki: String,
    /// Name or identity of the policy that it is sealed to.
    #[cfg_attr(feature = "schemas", schema(example = "eu"))]
    pub policy: String,
    /// The policy's newest pair.
    pub generation: u32,
    /// Its PKCS#8, sealed to the pair's public key: HPKE with X-Wing, HKDF-SHA256 and AES-256-GCM after one byte, 1; base64.
    pub sealed: String,
}
