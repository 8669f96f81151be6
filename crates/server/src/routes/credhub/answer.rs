//! Responses in CredHub's format.

use api::credhub::{
    CertificateFacts, CertificateVersionView, CredentialVersion, CredentialView, GenerationFacts,
};
use credentials::{CaVersions, Facts, Value, Version, VersionView};
use keys::SecretJson;

/// Formats a time in whole seconds, as in CredHub.
pub(super) fn time(us: i64) -> String {
    let at = jiff::Timestamp::from_microsecond(us).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the view of a version with its value.
pub(super) fn credential(version: &Version, ca_versions: CaVersions) -> CredentialView<SecretJson> {
    let is_certificate = matches!(version.value, Value::Certificate(_));
    let facts = || certificate(version.facts, version.not_after_us, version.transitional);
    CredentialView {
        version: CredentialVersion {
            kind: version.kind().name().to_owned(),
            version_created_at: time(version.created_at_us),
            id: version.id,
            name: version.name.clone(),
            metadata: version.metadata.clone(),
            expires_at: version.ends_at_us.map(time),
            certificate: is_certificate.then(facts),
            generation: None,
        },
        value: version.value.response(ca_versions),
    }
}

/// Returns the view of a generated version. For a certificate, the view contains the parameters that the store used.
pub(super) fn generated(version: &Version, ca_versions: CaVersions) -> CredentialView<SecretJson> {
    let mut response = credential(version, ca_versions);
    if matches!(version.value, Value::Certificate(_))
        && let Some(parameters) = &version.parameters
    {
        let longer = version.facts.and_then(|facts| facts.minimum_days);
        let key_type = parameters.get("key_type").cloned();
        response.version.generation = Some(GenerationFacts {
            duration_overridden: longer.is_some(),
            duration_used: longer.map_or_else(|| parameters["duration"].clone(), Into::into),
            key_length: key_type.is_none().then(|| parameters["key_length"].clone()),
            key_type,
        });
    }
    response
}

/// Returns the view of a version without its value.
pub(super) fn certificate_version(version: &VersionView) -> CertificateVersionView {
    let facts = certificate(version.facts, version.not_after_us, version.transitional);
    CertificateVersionView { id: version.id, facts }
}

fn certificate(facts: Option<Facts>, not_after_us: Option<i64>, transitional: bool) -> CertificateFacts {
    let facts = facts.unwrap_or_default();
    CertificateFacts {
        transitional,
        expiry_date: not_after_us.map(time),
        certificate_authority: Some(facts.certificate_authority),
        self_signed: Some(facts.self_signed),
        generated: Some(facts.generated),
    }
}
