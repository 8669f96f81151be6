//! Security keys and passkeys of users (WebAuthn). Binary values are base64url without padding.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A registered security key or passkey.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = SecurityKey))]
pub struct SecurityKeyView {
    /// UUID of the key, the `{key}` in `/api/v1/users/{id}/security-keys/{key}`.
    pub id: Uuid,
    /// Name, chosen by the user.
    pub name: String,
    /// Host name of the console that the key was registered for. The key works only at this host name.
    pub host: String,
    /// Signature algorithm: `ES256`, `EdDSA` or `RS256`.
    pub algorithm: String,
    /// SHA-256 of the public key (`COSE_Key`), hexadecimal.
    pub public_key_sha256: String,
    /// Whether the authenticator verified the user by PIN or biometrics at registration. Such a key can sign in without a password.
    pub user_verified: bool,
    /// Whether the key can be copied to other devices, as a synchronised passkey.
    pub backup_eligible: bool,
    /// Whether the key is stored outside its authenticator.
    pub backed_up: bool,
    /// Registration time, RFC 3339.
    pub created_at: String,
    /// Time of the last use; null if never used.
    pub last_used_at: Option<String>,
}

/// A security key to register.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSecurityKey {
    /// Name for the key.
    #[cfg_attr(feature = "schemas", schema(example = "blue key", min_length = 1, max_length = 128))]
    pub name: String,
}

/// A WebAuthn ceremony that has begun. It can be finished once, within five minutes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SecurityKeyCeremony {
    /// Secret of the ceremony, to be returned with the response of the security key.
    pub ceremony: String,
    /// Expiry of the ceremony, RFC 3339.
    pub expires_at: String,
    /// Argument for the browser: `PublicKeyCredentialCreationOptionsJSON` or `PublicKeyCredentialRequestOptionsJSON` of WebAuthn
    /// Level 3.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub options: Value,
}

/// An approver's signature by a security key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = ApprovalSignature))]
pub struct ApprovalSignatureView {
    /// Actor that signed the plan.
    pub actor: String,
    /// SHA-256 of the signed plan, hexadecimal.
    pub plan_sha256: String,
    /// Identifier of the security key.
    pub security_key: Uuid,
    /// SHA-256 of the key's public key, hexadecimal, as in the audit event `user.security-key-add`.
    pub public_key_sha256: String,
    /// Time of the signature, RFC 3339.
    pub signed_at: String,
    /// The signature with all data that `bulla approval verify` needs.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub signature: Value,
}

/// The plan that an approver is about to sign.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PlanToSign {
    /// The `plan_sha256` that was shown, hexadecimal.
    pub plan_sha256: String,
}

/// Request body that registers a security key: the response of the new key.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SecurityKeyRegistration {
    /// Secret of the ceremony, from the response that began the ceremony.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub ceremony: String,
    /// `clientDataJSON` of the response.
    #[cfg_attr(feature = "schemas", schema(max_length = 5462))]
    pub client_data_json: String,
    /// `attestationObject` of the response.
    #[cfg_attr(feature = "schemas", schema(max_length = 21846))]
    pub attestation_object: String,
    /// Transports between browser and authenticator: `usb`, `nfc`, `ble`, `smart-card`, `hybrid`, `internal`. Others are ignored.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_items = 16))]
    pub transports: Vec<String>,
}

/// Response of a registered security key to a challenge.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SecurityKeyAssertion {
    /// Secret of the ceremony, from the response that began the ceremony.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub ceremony: String,
    /// WebAuthn credential id of the security key, base64url.
    #[cfg_attr(feature = "schemas", schema(max_length = 1364))]
    pub credential_id: String,
    /// `clientDataJSON` of the response.
    #[cfg_attr(feature = "schemas", schema(max_length = 5462))]
    pub client_data_json: String,
    /// `authenticatorData` of the response.
    #[cfg_attr(feature = "schemas", schema(max_length = 5462))]
    pub authenticator_data: String,
    /// `signature` of the response.
    #[cfg_attr(feature = "schemas", schema(max_length = 1366))]
    pub signature: String,
    /// `userHandle` of the response, if it has one.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 86))]
    pub user_handle: Option<String>,
}
