//! Conversion of request bodies to the options of a managed certificate.

use api::certificates::{CertificatePatch, KeyLocationBody, NewCertificateBody, TargetBody};
use keys::KeyType;
use lifecycle::managed::{
    CertificateChange, KeyLocation, ManagedCertificate, NewCertificate, Options, TargetRef,
};
use lifecycle::renewal::RenewalRule;
use serde::Deserialize;
use serde_json::Value;

use crate::problem::Problem;

pub(crate) fn key_location(body: KeyLocationBody) -> KeyLocation {
    match body {
        KeyLocationBody::Server => KeyLocation::Server,
        KeyLocationBody::Agent { agent } => KeyLocation::Agent { agent },
        KeyLocationBody::KeyService => KeyLocation::KeyService,
    }
}

pub(super) fn key_location_body(location: KeyLocation) -> KeyLocationBody {
    match location {
        KeyLocation::Server => KeyLocationBody::Server,
        KeyLocation::Agent { agent } => KeyLocationBody::Agent { agent },
        KeyLocation::KeyService => KeyLocationBody::KeyService,
    }
}

pub(crate) fn target_ref(body: TargetBody) -> TargetRef {
    match body {
        TargetBody::Deploy { target, agent } => TargetRef::Deploy { target, agent },
        TargetBody::Endpoint { host, port, protocol, server_name } => {
            TargetRef::Endpoint { host, port, protocol, server_name }
        }
    }
}

pub(super) fn target_body(target: TargetRef) -> TargetBody {
    match target {
        TargetRef::Deploy { target, agent } => TargetBody::Deploy { target, agent },
        TargetRef::Endpoint { host, port, protocol, server_name } => {
            TargetBody::Endpoint { host, port, protocol, server_name }
        }
    }
}

/// Returns the options of a certificate from the members of a request body.
pub(crate) fn options_of(
    auto_renew: Option<bool>,
    renewal: Option<&Value>,
    notes: String,
) -> Result<Options, Problem> {
    Ok(Options {
        auto_renew: auto_renew.unwrap_or(true),
        renewal: renewal.map(rule).transpose()?,
        notes,
        ..Options::default()
    })
}

fn rule(value: &Value) -> Result<RenewalRule, Problem> {
    RenewalRule::deserialize(value).map_err(|error| Problem::unprocessable(format_args!("renewal: {error}")))
}

fn key_type(name: Option<&str>) -> Result<KeyType, Problem> {
    let Some(name) = name else { return Ok(KeyType::P256) };
    name.parse().map_err(|error: coded::UnknownName| Problem::unprocessable(error))
}

pub(super) fn new_certificate(body: NewCertificateBody) -> Result<NewCertificate, Problem> {
    let options = Options {
        lifetime_seconds: body.lifetime_seconds,
        subject: body.subject,
        must_staple: body.must_staple,
        issuer_profile: body.issuer_profile,
        ..options_of(body.auto_renew, body.renewal.as_ref(), body.notes)?
    };
    Ok(NewCertificate {
        name: body.name,
        names: body.names,
        profile: body.profile,
        issuer: body.issuer,
        owner: body.owner,
        team: body.team,
        tags: body.tags,
        environment: body.environment,
        policy: body.policy,
        key_location: body.key_location.map_or(KeyLocation::Server, key_location),
        key_type: key_type(body.key_type.as_deref())?,
        targets: body.targets.into_iter().map(target_ref).collect(),
        options,
        issue: body.issue.unwrap_or(true),
    })
}

pub(super) fn certificate_change(
    body: CertificatePatch,
    before: &ManagedCertificate,
) -> Result<CertificateChange, Problem> {
    let mut options = before.options.clone();
    if let Some(auto_renew) = body.auto_renew {
        options.auto_renew = auto_renew;
    }
    if let Some(renewal) = &body.renewal {
        options.renewal = renewal.as_ref().map(rule).transpose()?;
    }
    if let Some(seconds) = body.lifetime_seconds {
        options.lifetime_seconds = seconds;
    }
    if let Some(subject) = body.subject {
        options.subject = subject;
    }
    if let Some(must_staple) = body.must_staple {
        options.must_staple = must_staple;
    }
    if let Some(profile) = body.issuer_profile {
        options.issuer_profile = profile;
    }
    if let Some(notes) = body.notes {
        options.notes = notes;
    }
    Ok(CertificateChange {
        name: body.name,
        names: body.names,
        profile: body.profile,
        issuer: body.issuer,
        owner: body.owner,
        team: body.team,
        tags: body.tags,
        environment: body.environment,
        policy: body.policy,
        key_location: body.key_location.map(key_location),
        key_type: body.key_type.as_deref().map(|name| key_type(Some(name))).transpose()?,
        targets: body.targets.map(|targets| targets.into_iter().map(target_ref).collect()),
        options: Some(options),
        renew: body.renew,
    })
}
