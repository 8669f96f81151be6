//! Deletion, restoration and destruction of versions.

use credentials::{Name, Operation, Requester, VersionsChange};
use http::StatusCode;
use serde_json::{Map, Value as Json};

use super::super::credhub::context::Context;
use super::super::credhub::deletion::VERSIONS_MAX;
use super::answer::{Body, Refused, denied_or, number};
use super::path::SecretName;
use super::principal::Principal;

/// Parses the version numbers in a body: a list, or a string with numbers separated by commas.
fn parse_version_numbers(body: &Map<String, Json>) -> Result<Vec<u64>, Refused> {
    let numbers: Option<Vec<u64>> = match body.get("versions") {
        Some(Json::Array(all)) => all.iter().map(number).collect(),
        Some(Json::String(text)) => text.split(',').map(|one| one.trim().parse().ok()).collect(),
        Some(one @ Json::Number(_)) => number(one).map(|one| vec![one]),
        _ => None,
    };
    let numbers = numbers.filter(|numbers| (1..=VERSIONS_MAX).contains(&numbers.len()));
    numbers.ok_or_else(|| {
        Refused::bad(format!(
            "no version number provided. hint: versions must be a list of 1 to {VERSIONS_MAX} numbers"
        ))
    })
}

/// Deletes, restores or destroys versions. Missing versions are no error for callers with permission.
async fn change(
    context: &Context,
    requester: &Requester,
    name: &Name,
    numbers: Option<Vec<u64>>,
    change: VersionsChange,
) -> Result<StatusCode, Refused> {
    let hub = context.hub();
    let operation = match change {
        VersionsChange::Undelete => Operation::Write,
        VersionsChange::Delete | VersionsChange::Destroy => Operation::Delete,
    };
    match hub.credentials().change_versions(requester, name, numbers, change).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => ok_if_absent(denied_or(hub, requester, name, operation, error).await),
    }
}

/// Converts the error for a missing object to success, because there is nothing to change.
pub(super) fn ok_if_absent(refused: Refused) -> Result<StatusCode, Refused> {
    if refused.is_absent() { Ok(StatusCode::NO_CONTENT) } else { Err(refused) }
}

pub(super) async fn delete_newest(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
) -> Result<StatusCode, Refused> {
    change(&context, &requester, &name, None, VersionsChange::Delete).await
}

pub(super) async fn delete(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    Body(body): Body,
) -> Result<StatusCode, Refused> {
    change(&context, &requester, &name, Some(parse_version_numbers(&body)?), VersionsChange::Delete).await
}

pub(super) async fn undelete(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    Body(body): Body,
) -> Result<StatusCode, Refused> {
    change(&context, &requester, &name, Some(parse_version_numbers(&body)?), VersionsChange::Undelete).await
}

pub(super) async fn destroy(
    context: Context,
    Principal { requester, .. }: Principal,
    SecretName(name): SecretName,
    Body(body): Body,
) -> Result<StatusCode, Refused> {
    change(&context, &requester, &name, Some(parse_version_numbers(&body)?), VersionsChange::Destroy).await
}
