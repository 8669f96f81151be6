//! References to credentials in bindings of services: `POST /api/v1/interpolate`.

use serde::Deserialize;

/// A binding whose credentials are a reference. Its other fields are left as they are.
#[derive(Clone, Debug, Deserialize)]
pub struct BindingReference {
    /// The reference, which the value of the credential replaces.
    pub credentials: CredentialReference,
}

/// A reference to a credential.
#[derive(Clone, Debug, Deserialize)]
pub struct CredentialReference {
    /// The name, which may be in double parentheses.
    #[serde(rename = "credhub-ref", alias = "credhub_ref")]
    pub name: String,
}
