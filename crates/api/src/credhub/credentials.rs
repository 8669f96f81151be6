//! Credentials: read, found, set, generated, regenerated.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::lenient;

/// The query of `GET /api/v1/data`: by name, or a search. Switches and numbers are texts, which the store checks.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DataQuery {
    /// The credential with this name.
    pub name: Option<String>,
    /// Search: credentials below this path.
    pub path: Option<String>,
    /// Search: credentials with this text in their names.
    pub name_like: Option<String>,
    /// With `name`: `true` for the current version, and the one in transition.
    pub current: Option<String>,
    /// With `name`: at most this many versions, newest first.
    pub versions: Option<String>,
    /// With a search: only certificates that expire within this many days.
    pub expires_within_days: Option<String>,
}

impl DataQuery {
    /// The current version of a name.
    #[must_use]
    pub fn current(name: &str) -> Self {
        Self { name: Some(name.to_owned()), current: Some("true".to_owned()), ..Self::default() }
    }

    /// The newest versions of a name; all where no number is given.
    #[must_use]
    pub fn versions(name: &str, count: Option<u32>) -> Self {
        Self {
            name: Some(name.to_owned()),
            versions: count.map(|count| count.to_string()),
            ..Self::default()
        }
    }

    /// All names below a path.
    #[must_use]
    pub fn below(path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..Self::default() }
    }
}

/// The query of requests about one name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct NameQuery {
    /// The name; needed.
    pub name: Option<String>,
}

impl NameQuery {
    /// The query of a name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self { name: Some(name.to_owned()) }
    }
}

/// Versions of one name: the response of `GET /api/v1/data?name=…`. The current version is first.
#[derive(Deserialize, Serialize)]
pub struct Data<C = CredentialView> {
    /// The versions.
    pub data: Vec<C>,
}

/// A version of a credential without its value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CredentialVersion {
    /// The credential's type: `password`, `certificate` and so on.
    #[serde(rename = "type")]
    pub kind: String,
    /// When the version was stored, RFC 3339.
    pub version_created_at: String,
    /// The version's identity.
    pub id: Uuid,
    /// The credential's name, as it was first written.
    pub name: String,
    /// Metadata of its creators.
    pub metadata: Option<Value>,
    /// When its time to live ends, RFC 3339; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Of certificates.
    #[serde(flatten)]
    pub certificate: Option<CertificateFacts>,
    /// Of certificates, in the response to their generation.
    #[serde(flatten)]
    pub generation: Option<GenerationFacts>,
}

/// What is known of a certificate without its value.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CertificateFacts {
    /// Whether it is its authority's version in transition.
    pub transitional: bool,
    /// When the certificate expires, RFC 3339; null when it cannot be read.
    pub expiry_date: Option<String>,
    /// Whether it may sign certificates; null where CredHub does not know.
    pub certificate_authority: Option<bool>,
    /// Whether it signed itself; null where CredHub does not know.
    pub self_signed: Option<bool>,
    /// Whether the store generated it; null where CredHub does not know.
    pub generated: Option<bool>,
}

/// How a certificate was generated.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GenerationFacts {
    /// Whether it lives longer than was asked for, because the store has a minimum.
    pub duration_overridden: bool,
    /// The days it was made for.
    pub duration_used: Value,
    /// The kind of its key, where the request named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_type: Option<Value>,
    /// The bits of its RSA key, where the request named no kind of key.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub key_length: Option<Value>,
}

/// A version of a credential with its value.
#[derive(Deserialize, Serialize)]
pub struct CredentialView<V = Value> {
    /// All but its value.
    #[serde(flatten)]
    pub version: CredentialVersion,
    /// The value: a text, or an object.
    pub value: V,
}

/// What a search found, newest first.
#[derive(Debug, Deserialize, Serialize)]
pub struct FoundCredentials<C = FoundView> {
    /// The credentials.
    pub credentials: Vec<C>,
}

/// A credential that a search found.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FoundView {
    /// Its name.
    pub name: String,
    /// When its newest version was stored, RFC 3339.
    pub version_created_at: String,
    /// When its certificate expires, RFC 3339; absent unless the search asked for it.
    #[serde(default, deserialize_with = "crate::patch::given", skip_serializing_if = "Option::is_none")]
    pub expiry_date: Option<Option<String>>,
}

/// The fields that decide how the body of `PUT` and `POST /api/v1/data` is read.
#[derive(Clone, Debug, Deserialize)]
pub struct RequestKind {
    /// The type of the credential; needed unless it is generated again.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether the credential is generated again.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub regenerate: Option<bool>,
}

/// A credential to set: `PUT /api/v1/data`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// Its name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The value: a text, or an object.
    #[serde(default)]
    pub value: Value,
    /// Metadata to store with it.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Its time to live, s; for good when absent. Not in CredHub.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// A credential to generate: `POST /api/v1/data`.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateRequest {
    /// Its name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// How to generate it; the defaults of its type when absent.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// What happens where there is a value: `converge` (default), `no-overwrite` or `overwrite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The older form of `mode`; not with it.
    #[serde(default, deserialize_with = "lenient::flag", skip_serializing_if = "Option::is_none")]
    pub overwrite: Option<bool>,
    /// Of a user: the name that goes with the generated password.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Metadata to store with it.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Whether it is a [`RegenerateRequest`].
    #[serde(default, deserialize_with = "lenient::flag", skip_serializing_if = "Option::is_none")]
    pub regenerate: Option<bool>,
    /// Its time to live, s; for good when absent. Not in CredHub.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// A credential to generate again as it was generated: `POST /api/v1/regenerate`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RegenerateRequest {
    /// Its name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// True in `POST /api/v1/data`, whose body this is as well.
    #[serde(default, deserialize_with = "lenient::flag", skip_serializing_if = "Option::is_none")]
    pub regenerate: Option<bool>,
    /// What is to be noted of it; as before when absent.
    #[serde(default, deserialize_with = "lenient::any", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Certificates to generate again: `POST /api/v1/bulk-regenerate`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BulkRegenerate {
    /// The name of the authority that signed them; needed.
    pub signed_by: Option<String>,
}

/// Result of [`BulkRegenerate`].
#[derive(Debug, Deserialize, Serialize)]
pub struct BulkRegenerated {
    /// Names of the certificates.
    pub regenerated_credentials: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_version_is_written_as_it_was_read() {
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
    fn requests_are_read_as_leniently_as_credhub_reads_them() {
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
