//! Certificates of the credential store, with their versions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::credentials::CertificateFacts;
use super::lenient;

/// Query parameters of the lists of certificates and of their versions.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct CertificatesQuery {
    /// Only the certificate with this name.
    pub name: Option<String>,
    /// For versions: `true` selects the current and the transitional version.
    pub current: Option<String>,
}

/// Certificates: the response of `GET /api/v1/certificates`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Certificates {
    /// The selected certificates, each with its versions.
    pub certificates: Vec<CertificateHistory>,
}

/// A certificate with its versions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CertificateHistory {
    /// UUID of the credential, used in `/api/v1/certificates/{id}/versions`.
    pub id: Uuid,
    /// Name of the credential, such as `/team/db`.
    pub name: String,
    /// Name of the credential that signed the certificate; empty or null if unknown.
    pub signed_by: Option<String>,
    /// Names of the credentials that this certificate signed.
    #[serde(default)]
    pub signs: Vec<String>,
    /// Versions of the certificate, newest first.
    #[serde(default)]
    pub versions: Vec<CertificateVersionView>,
}

/// A version of a certificate without its value.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CertificateVersionView {
    /// UUID of the version, used in `/api/v1/data/{id}`.
    pub id: Uuid,
    /// Properties of the certificate that are visible without its value.
    #[serde(flatten)]
    pub facts: CertificateFacts,
}

/// Options for regenerating a certificate: `POST /api/v1/certificates/{id}/regenerate`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RegenerateCertificate {
    /// Whether the new version becomes the transitional version.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub set_as_transitional: Option<bool>,
    /// Whether the transitional version of the CA may sign the certificate.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub allow_transitional_parent_to_sign: Option<bool>,
    /// Key length in bits; unchanged when absent.
    #[serde(default, deserialize_with = "lenient::number")]
    pub key_length: Option<u32>,
    /// Lifetime in days; unchanged when absent.
    #[serde(default, deserialize_with = "lenient::number")]
    pub duration: Option<u32>,
    /// Metadata of the new version; unchanged when absent.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A certificate version to add: `POST /api/v1/certificates/{id}/versions`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewVersion {
    /// The certificate with its private key.
    #[serde(default)]
    pub value: Value,
    /// Whether this is the transitional version (CredHub's rotation of CAs).
    #[serde(default, deserialize_with = "lenient::flag")]
    pub transitional: Option<bool>,
}

/// Selection of the transitional version: `PUT /api/v1/certificates/{id}/update_transitional_version`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TransitionalVersion {
    /// Identifier of the version; null for no transitional version.
    pub version: Option<String>,
}
