//! Credential values with several fields (certificate, user, key pair), in requests that set them. Fields that only responses
//! contain are ignored.

use serde::{Deserialize, Serialize};

/// Value of a certificate credential.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct CertificateValue {
    /// Certificate of the CA that signed, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// Name of the CA that signed. Not allowed with `ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_name: Option<String>,
    /// The certificate, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Private key of the certificate, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<String>,
}

/// Value of a user credential.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct UserValue {
    /// Username; optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// Value of an RSA or SSH credential.
#[derive(Clone, Default, Deserialize, Serialize)]
pub struct KeyPairValue {
    /// Public key. Any text is accepted. A generated key is PEM for RSA, and an OpenSSH line for SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// Private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<String>,
}
