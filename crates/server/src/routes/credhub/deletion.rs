//! Deleted credentials that can be restored, and the versions of a name. An extension to CredHub.

use api::credhub::{
    self, DeletedView, ListedVersion, NameQuery, UndeleteRequest, UndeletedView, VersionsRequest,
    VersionsView,
};
use axum::Json;
use axum::response::{IntoResponse, Response};
use credentials::{CredentialError, Deleted, Name, VersionView, VersionsChange};
use http::StatusCode;
use store::DAY_US;

use super::answer::time;
use super::body::{self, Body};
use super::context::Context;
use super::data::{QueryResult, parse_query};
use super::principal::Principal;
use crate::credhub::Refused;

/// Maximum versions that one request changes.
pub(crate) const VERSIONS_MAX: usize = 1_000;

const NAME_IS_TAKEN: &str = "The name is taken by a newer credential. Delete that credential first, then undelete again: \
 the credential that was deleted last is restored.";

/// Lists the deleted credentials that the caller can restore, newest deletion first.
pub(super) async fn deleted(
    context: Context,
    Principal(requester): Principal,
) -> Result<Json<credhub::Deleted>, Refused> {
    let store = context.hub().credentials();
    let days = store.options().undelete_days;
    let credentials = store.deleted(&requester).await?.iter().map(|one| shown(one, days)).collect();
    Ok(Json(credhub::Deleted { credentials }))
}

fn shown(deleted: &Deleted, days: u32) -> DeletedView {
    DeletedView {
        name: deleted.name.clone(),
        kind: deleted.kind.to_string(),
        deleted_at: time(deleted.deleted_at_us),
        kept_until: time(kept_until(deleted.deleted_at_us, days)),
    }
}

fn kept_until(ended_at_us: i64, days: u32) -> i64 {
    ended_at_us.saturating_add(i64::from(days).saturating_mul(DAY_US))
}

pub(super) async fn undelete(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Json<UndeletedView>, Refused> {
    let request: UndeleteRequest = body::read(&body)?;
    let name = Name::parse(&request.name)?;
    let restored = match context.hub().credentials().undelete(&requester, &name).await {
        Err(CredentialError::Changed) => return Err(Refused::new(StatusCode::CONFLICT, NAME_IS_TAKEN)),
        other => other?,
    };
    Ok(Json(UndeletedView { name: restored.name, kind: restored.kind.to_string() }))
}

/// Lists the versions of a name, newest first, without their values.
pub(super) async fn versions(
    context: Context,
    Principal(requester): Principal,
    query: QueryResult<NameQuery>,
) -> Result<Json<VersionsView>, Refused> {
    let name = parse_query(query)?.name.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refused::bad("The query parameter name is required for this request."))?;
    let name = Name::parse(&name).map_err(|_| CredentialError::NotFound)?;
    let store = context.hub().credentials();
    let history = store.list_versions(&requester, &name).await?;
    let (now_us, days) = (context.server().clock().now_us(), store.options().undelete_days);
    let versions = history.versions.iter().map(|version| listed(version, now_us, days)).collect();
    Ok(Json(VersionsView { name: history.name, kind: history.kind.to_string(), versions }))
}

/// Returns the view of a version. An expired or deleted version has the time of its deletion and the end of its retention period. A
/// version that is still valid has its expiry, if any.
fn listed(version: &VersionView, now_us: i64, days: u32) -> ListedVersion {
    let mut shown = ListedVersion {
        number: version.number,
        id: version.id,
        version_created_at: time(version.created_at_us),
        ..ListedVersion::default()
    };
    match version.ends_at_us {
        None => {}
        Some(at_us) if at_us > now_us => shown.expires_at = Some(time(at_us)),
        Some(at_us) => {
            shown.deleted_at = Some(time(at_us));
            shown.kept_until = Some(time(kept_until(at_us, days)));
        }
    }
    shown
}

/// Deletes, restores or destroys versions: `{"name": …, "versions": [1, 2], "change": "delete" | "undelete" | "destroy"}`.
pub(super) async fn change(
    context: Context,
    Principal(requester): Principal,
    Body(body): Body,
) -> Result<Response, Refused> {
    let request: VersionsRequest = body::read(&body)?;
    let name = Name::parse(&request.name)?;
    let change = match request.change {
        Some(credhub::VersionsChange::Delete) => VersionsChange::Delete,
        Some(credhub::VersionsChange::Undelete) => VersionsChange::Undelete,
        Some(credhub::VersionsChange::Destroy) => VersionsChange::Destroy,
        None => return Err(Refused::bad("The field change must be one of delete, undelete and destroy.")),
    };
    let numbers = request.versions.filter(|numbers| (1..=VERSIONS_MAX).contains(&numbers.len()));
    let numbers = numbers.ok_or_else(|| {
        Refused::bad(format!("The field versions must be a list of 1 to {VERSIONS_MAX} numbers."))
    })?;
    context.hub().credentials().change_versions(&requester, &name, Some(numbers), change).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
