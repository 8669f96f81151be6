//! Values that have fields, as they are set. What a response adds to them is not read.

use serde::{Deserialize, Serialize};

/// A certificate.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct CertificateValue {
    /// The authority that signed, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The name of the authority that signed; not with `ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_name: Option<String>,
    /// The certificate, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Its key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<String>,
}

/// A user.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct UserValue {
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// An RSA or SSH key.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct KeyPairValue {
    /// The public half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The private half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<String>,
}
