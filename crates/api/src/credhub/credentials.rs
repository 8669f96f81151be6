//! Requests that read, search, set, generate and regenerate credentials.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::lenient;

/// The query of `GET /api/v1/data`: by name, or a search. Boolean and numeric parameters are strings, which the store validates.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DataQuery {
    /// Name of the credential, such as `/team/db`.
    pub name: Option<String>,
    /// Search: credentials below this path.
    pub path: Option<String>,
    /// Search: credentials whose name contains this text.
    pub name_like: Option<String>,
    /// With `name`: `true` selects the current and the transitional version.
    pub current: Option<String>,
    /// With `name`: at most this many versions, newest first.
    pub versions: Option<String>,
    /// With a search: only certificates that expire within this many days.
    pub expires_within_days: Option<String>,
}

impl DataQuery {
    /// Returns the query for the current version of a name.
    #[must_use]
    pub fn current(name: &str) -> Self {
        Self { name: Some(name.to_owned()), current: Some("true".to_owned()), ..Self::default() }
    }

    /// Returns the query for the newest `count` versions of a name, or for all versions without `count`.
    #[must_use]
    pub fn versions(name: &str, count: Option<u32>) -> Self {
        Self {
            name: Some(name.to_owned()),
            versions: count.map(|count| count.to_string()),
            ..Self::default()
        }
    }

    /// Returns the query for all names below a path.
    #[must_use]
    pub fn below(path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..Self::default() }
    }
}

/// The query of requests that concern one name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct NameQuery {
    /// Name of the credential; required.
    pub name: Option<String>,
}

impl NameQuery {
    /// Returns the query for a name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self { name: Some(name.to_owned()) }
    }
}

/// Versions of one name, the current version first: the response of `GET /api/v1/data?name=…`.
#[derive(Deserialize, Serialize)]
pub struct Data<C = CredentialView> {
    /// Versions of the credential, with their values.
    pub data: Vec<C>,
}

/// A version of a credential without its value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CredentialVersion {
    /// Type of the credential: `password`, `certificate` and so on.
    #[serde(rename = "type")]
    pub kind: String,
    /// Creation time of the version, RFC 3339.
    pub version_created_at: String,
    /// UUID of the version, used in `/api/v1/data/{id}`.
    pub id: Uuid,
    /// Name of the credential, spelled as in its first version.
    pub name: String,
    /// Metadata set by the creator.
    pub metadata: Option<Value>,
    /// Expiry time of the credential, RFC 3339; absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Properties of the certificate; only for certificates.
    #[serde(flatten)]
    pub certificate: Option<CertificateFacts>,
    /// Parameters that the store used; only in the response to the generation of a certificate.
    #[serde(flatten)]
    pub generation: Option<GenerationFacts>,
}

/// Properties of a certificate that are visible without its value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CertificateFacts {
    /// Whether this is the transitional version of a CA certificate.
    pub transitional: bool,
    /// Expiry time of the certificate, RFC 3339; null if the certificate cannot be read.
    pub expiry_date: Option<String>,
    /// Whether the certificate is a CA certificate; null if unknown.
    pub certificate_authority: Option<bool>,
    /// Whether the certificate is self-signed; null if unknown.
    pub self_signed: Option<bool>,
    /// Whether the store generated the certificate; null if unknown.
    pub generated: Option<bool>,
}

/// Parameters that the store used to generate a certificate.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GenerationFacts {
    /// Whether the store increased the requested lifetime to the minimum of the store.
    pub duration_overridden: bool,
    /// Lifetime in days.
    pub duration_used: Value,
    /// Key type, if the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_type: Option<Value>,
    /// RSA key length in bits, if the request named no key type.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub key_length: Option<Value>,
}

/// A version of a credential with its value.
#[derive(Deserialize, Serialize)]
pub struct CredentialView<V = Value> {
    /// All fields except the value.
    #[serde(flatten)]
    pub version: CredentialVersion,
    /// The value: a string or an object.
    pub value: V,
}

/// Results of a search, newest first.
#[derive(Debug, Deserialize, Serialize)]
pub struct FoundCredentials<C = FoundView> {
    /// Credentials that match the search, without their values.
    pub credentials: Vec<C>,
}

/// A credential in the results of a search.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FoundView {
    /// Name of the credential, such as `/team/db`.
    pub name: String,
    /// Creation time of the newest version, RFC 3339.
    pub version_created_at: String,
    /// Expiry time of the certificate, RFC 3339; present only if the search requested it.
    #[serde(default, deserialize_with = "crate::patch::given", skip_serializing_if = "Option::is_none")]
    pub expiry_date: Option<Option<String>>,
}

/// Fields that determine the type of the body of `PUT` and `POST /api/v1/data`.
#[derive(Clone, Debug, Deserialize)]
pub struct RequestKind {
    /// Type of the credential; required unless `regenerate` is true.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether to regenerate the existing credential instead of generating a new one.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub regenerate: Option<bool>,
}

/// A credential to set: `PUT /api/v1/data`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, bound(deserialize = "V: Deserialize<'de> + Default"))]
pub struct SetRequest<V = Value> {
    /// Name of the credential, such as `/team/db`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Type of the credential.
    #[serde(rename = "type")]
    pub kind: String,
    /// The value: a string or an object.
    #[serde(default)]
    pub value: V,
    /// Metadata to store with the credential.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Time to live in seconds; no expiry when absent. Not in CredHub.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// A credential to generate: `POST /api/v1/data`.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateRequest {
    /// Name of the credential, such as `/team/db`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Type of the credential.
    #[serde(rename = "type")]
    pub kind: String,
    /// Generation parameters; the defaults of the type when absent.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Behaviour if the credential exists: `converge` (the default), `no-overwrite` or `overwrite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Older form of `mode`. Not allowed with `mode`.
    #[serde(default, deserialize_with = "lenient::flag", skip_serializing_if = "Option::is_none")]
    pub overwrite: Option<bool>,
    /// For type `user`: the username for the generated password.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Metadata to store with the credential.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Whether the body is a [`RegenerateRequest`].
    #[serde(default, deserialize_with = "lenient::flag", skip_serializing_if = "Option::is_none")]
    pub regenerate: Option<bool>,
    /// Time to live in seconds; no expiry when absent. Not in CredHub.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// A credential to regenerate with its previous parameters: `POST /api/v1/regenerate`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RegenerateRequest {
    /// Name of the credential, such as `/team/db`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// True in `POST /api/v1/data`, which accepts this body too.
    #[serde(default, deserialize_with = "lenient::flag", skip_serializing_if = "Option::is_none")]
    pub regenerate: Option<bool>,
    /// Metadata of the new version; unchanged when absent.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Certificates to regenerate: `POST /api/v1/bulk-regenerate`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BulkRegenerate {
    /// Name of the CA that signed the certificates; required.
    pub signed_by: Option<String>,
}

/// Result of `POST /api/v1/bulk-regenerate`.
#[derive(Debug, Deserialize, Serialize)]
pub struct BulkRegenerated {
    /// Names of the regenerated certificates.
    pub regenerated_credentials: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn credential_views_roundtrip_through_json() {
        let password = json!({
            "type": "password", "version_created_at": "2026-11-21T05:00:00Z", "id": Uuid::nil(), "name": "/a",
            "metadata": null, "value": "x",
        });
        let mut certificate = password.clone();
        let facts = json!({
            "expires_at": "2026-12-21T05:00:00Z", "transitional": true, "expiry_date": null,
            "certificate_authority": null, "self_signed": false, "generated": true, "duration_overridden": false,
            "duration_used": 30, "key_length": 2048,
        });
        certificate.as_object_mut().unwrap().extend(facts.as_object().unwrap().clone());
        for document in [password, certificate] {
            let read: CredentialView = serde_json::from_value(document.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), document);
        }
    }

    #[test]
    fn generate_request_parsing_is_as_lenient_as_credhub() {
        let body = json!({ "name": null, "type": "password", "overwrite": "TRUE", "ttl_seconds": "60", "metadata": null });
        let read: GenerateRequest = serde_json::from_value(body).unwrap();
        assert_eq!((read.name.as_str(), read.overwrite, read.ttl_seconds), ("", Some(true), Some(60)));
        assert_eq!(
            (read.metadata, read.value),
            (Some(Value::Null), None),
            "null is a note, an absent one is none"
        );
        for bad in [
            json!({ "type": "password", "overwrite": 1 }),
            json!({ "type": "password", "ttl_seconds": -1 }),
            json!({ "type": "password", "ttl_seconds": 4_294_967_296_u64 }),
            json!({ "type": "password", "name": 7 }),
            json!({ "type": "password", "x": 7 }),
        ] {
            assert!(serde_json::from_value::<GenerateRequest>(bad.clone()).is_err(), "{bad}");
        }
    }
}
