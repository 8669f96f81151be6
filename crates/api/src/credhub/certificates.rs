//! Certificates of the credential store, with their versions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::credentials::CertificateFacts;
use super::lenient;

/// The query of certificates and of their versions.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct CertificatesQuery {
    /// Only the certificate with this name.
    pub name: Option<String>,
    /// Of versions: `true` for those in use.
    pub current: Option<String>,
}

/// Certificates: the response of `GET /api/v1/certificates`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Certificates {
    /// The certificates.
    pub certificates: Vec<CertificateHistory>,
}

/// A certificate with its versions.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CertificateHistory {
    /// The credential's identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The name of the credential that signed it; empty or null where the store does not know.
    pub signed_by: Option<String>,
    /// Names of the credentials that it signed.
    #[serde(default)]
    pub signs: Vec<String>,
    /// Its versions, newest first.
    #[serde(default)]
    pub versions: Vec<CertificateVersionView>,
}

/// A version of a certificate without its value.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CertificateVersionView {
    /// The version's identity.
    pub id: Uuid,
    /// Facts about the certificate.
    #[serde(flatten)]
    pub facts: CertificateFacts,
}

/// How to generate a certificate again: `POST /api/v1/certificates/{id}/regenerate`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RegenerateCertificate {
    /// Whether the new version is the one in transition.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub set_as_transitional: Option<bool>,
    /// Whether its authority's version in transition may sign it.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub allow_transitional_parent_to_sign: Option<bool>,
    /// Bits of its key; as before when absent.
    #[serde(default, deserialize_with = "lenient::number")]
    pub key_length: Option<u32>,
    /// Its days; as before when absent.
    #[serde(default, deserialize_with = "lenient::number")]
    pub duration: Option<u32>,
    /// What is to be noted of it; as before when absent.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A version to add: `POST /api/v1/certificates/{id}/versions`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewVersion {
    /// The certificate with its key.
    #[serde(default)]
    pub value: Value,
    /// Whether this is the transitional version (CredHub's rotation of CAs).
    #[serde(default, deserialize_with = "lenient::flag")]
    pub transitional: Option<bool>,
}

/// The version in transition: `PUT /api/v1/certificates/{id}/update_transitional_version`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TransitionalVersion {
    /// The version's identity; null when none is to be in transition.
    pub version: Option<String>,
}
