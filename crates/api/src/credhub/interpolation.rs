//! References to credentials in service bindings: `POST /api/v1/interpolate`.

use serde::Deserialize;

/// A service binding whose credentials are a reference. Its other fields are not changed.
#[derive(Clone, Debug, Deserialize)]
pub struct BindingReference {
    /// The reference, which is replaced by the value of the credential.
    pub credentials: CredentialReference,
}

/// A reference to a credential.
#[derive(Clone, Debug, Deserialize)]
pub struct CredentialReference {
    /// Name of the credential. Double parentheses around it are allowed.
    #[serde(rename = "credhub-ref", alias = "credhub_ref")]
    pub name: String,
}
