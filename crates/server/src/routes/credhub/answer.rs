//! Answers as CredHub writes them.

use credentials::{Value, Version, VersionView};
use serde_json::{Value as Json, json};

/// A time in whole seconds, as CredHub writes them.
pub(super) fn time(us: i64) -> String {
    let at = jiff::Timestamp::from_microsecond(us).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A version, with its value.
pub(super) fn credential(version: &Version, both_cas: bool) -> Json {
    let mut shown = json!({
        "type": version.kind().name(),
        "version_created_at": time(version.created_at_us),
        "id": version.id,
        "name": version.name,
        "metadata": version.metadata,
        "value": version.value.shown(both_cas),
    });
    if let Some(ends_at_us) = version.ends_at_us {
        shown["expires_at"] = time(ends_at_us).into();
    }
    if matches!(version.value, Value::Certificate(_)) {
        let facts = version.facts.unwrap_or_default();
        shown["transitional"] = version.transitional.into();
        shown["expiry_date"] = version.not_after_us.map(time).into();
        shown["certificate_authority"] = facts.certificate_authority.into();
        shown["self_signed"] = facts.self_signed.into();
        shown["generated"] = facts.generated.into();
    }
    shown
}

/// A version that was generated: certificates tell how.
pub(super) fn generated(version: &Version, both_cas: bool) -> Json {
    let mut shown = credential(version, both_cas);
    if matches!(version.value, Value::Certificate(_))
        && let Some(kept) = &version.parameters
    {
        let longer = version.facts.and_then(|facts| facts.minimum_days);
        shown["duration_overridden"] = longer.is_some().into();
        shown["duration_used"] = longer.map_or_else(|| kept["duration"].clone(), Into::into);
        match kept.get("key_type") {
            Some(kind) => shown["key_type"] = kind.clone(),
            None => shown["key_length"] = kept["key_length"].clone(),
        }
    }
    shown
}

/// What is known of a version without its value.
pub(super) fn certificate_version(version: &VersionView) -> Json {
    let facts = version.facts.unwrap_or_default();
    json!({
        "id": version.id,
        "expiry_date": version.not_after_us.map(time),
        "transitional": version.transitional,
        "certificate_authority": facts.certificate_authority,
        "self_signed": facts.self_signed,
        "generated": facts.generated,
    })
}
